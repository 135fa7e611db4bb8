// src/explain/tables.h: the numbers of a step as terminal blocks: labels at the left, one body a head.
#pragma once
#include "explain/block.h"
#include "explain/view.h"

namespace attn::explain_detail {

/// What fits: decimals of scores and weights (vectors have four), and how wide a token may be at the left.
struct TableStyle {
  int pair_decimals = 4;
  int label_width = 12;
  int most_columns = 8;  // of a vector
  int room = 86;         // columns beside the labels
  Ink ink{TextOptions::Colour::none};
};

/// Columns the widest number of a scores or weights table takes, its gap included.
int pair_cell_width(const Explanation& explanation, const TableStyle& style);

/// Token heads of the chosen rows; `head_lines` empty lines above them.
Block labels_block(const ExplainStep& step, std::int64_t sentence, const Selection& rows, int head_lines,
                   const TableStyle& style);

/// One head of one sentence. `title` (may be empty) stands above when `head_lines` leaves room for it.
Block body_block(const ExplainStep& step, const Grid& grid, std::int64_t sentence, std::int64_t head,
                 const SentenceView& view, const std::string& title, int head_lines, const TableStyle& style);

/// The same, columns cut into blocks of at most `style.room`: a sum by hand has many.
std::vector<Block> body_blocks(const ExplainStep& step, const Grid& grid, std::int64_t sentence, std::int64_t head,
                               const SentenceView& view, const std::string& title, int head_lines,
                               const TableStyle& style);

/// Rows a table of this step shows, the closing sum included.
Selection rows_shown(const ExplainStep& step, const Grid& grid, const SentenceView& view);

}  // namespace attn::explain_detail
