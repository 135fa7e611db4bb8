// src/explain/terminal_tables.h: lays out the numbers of a step as terminal blocks: labels at the left, one body for
// each head.
#pragma once
#include "explain/terminal_block.h"
#include "explain/view.h"

namespace attn::explain_detail {

/// Sets what fits: the decimals of scores and weights (vectors have four) and the width of tokens at the left.
struct TableStyle {
  int pair_decimals = 4;
  int label_width = 12;
  int most_columns = 8;  // of a vector
  int room = 86;         // columns beside the labels
  Ink ink{TextOptions::Colour::none};
};

/// Returns the columns that the widest number of a scores or weights table takes, including its gap.
int pair_cell_width(const Explanation& explanation, const TableStyle& style);

/// Returns the tokens of the chosen rows as labels, below `head_lines` empty lines.
Block labels_block(const ExplainStep& step, std::int64_t sentence, const Selection& rows, int head_lines,
                   const TableStyle& style);

/// Lays out one head of one sentence. `title` (may be empty) stands above it when `head_lines` leaves room.
Block body_block(const ExplainStep& step, const Grid& grid, std::int64_t sentence, std::int64_t head,
                 const SentenceView& view, const std::string& title, int head_lines, const TableStyle& style);

/// Does the same, except for a worked-out query row, which has many columns: returns several blocks of at most
/// `style.room`, without the products that do not fit.
std::vector<Block> body_blocks(const ExplainStep& step, const Grid& grid, std::int64_t sentence, std::int64_t head,
                               const SentenceView& view, const std::string& title, int head_lines,
                               const TableStyle& style);

/// Returns the rows that a table of this step shows, including the closing sum.
Selection rows_shown(const ExplainStep& step, const Grid& grid, const SentenceView& view);

}  // namespace attn::explain_detail
