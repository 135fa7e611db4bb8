// src/explain/terminal_tables.cc: lays out tables: aligned numbers, tokens as column titles, heat and signs.
#include "explain/terminal_tables.h"
#include "explain/numbers.h"
#include "explain/heat_colours.h"
#include "explain/shown.h"
#include "explain/utf8.h"

#include <algorithm>
#include <cmath>

namespace attn::explain_detail {
namespace {

using Kind = ExplainStep::Kind;
constexpr int kGap = 2;  // columns between numbers

const std::vector<std::string>& heads_of_columns(const ExplainStep& step, std::int64_t sentence) {
  static const std::vector<std::string> none;
  return step.columns.empty() ? none
                              : step.columns[static_cast<std::size_t>(std::min<std::int64_t>(
                                    sentence, static_cast<std::int64_t>(step.columns.size()) - 1))];
}

struct Cell {
  std::string text;
  double heat = -1;  // negative: no colour
  bool faint = false;
};

int decimals_of(const ExplainStep& step, const TableStyle& style) { return is_pairs(step) ? style.pair_decimals : 4; }

/// Returns the minimum number of columns for a number; coloured weights have room for a longer token above.
int least_width(const ExplainStep& step, const TableStyle& style) {
  return decimals_of(step, style) + (step.kind == Kind::weights && style.ink.coloured() ? 4 : 2);
}

/// Returns the coloured column to the right of a number in a coloured cell.
std::string margin_of(const ExplainStep& step, const TableStyle& style) {
  return step.kind == Kind::weights && style.ink.coloured() ? " " : "";
}

Cell cell_of(const ExplainStep& step, const Grid& grid, std::int64_t b, std::int64_t h, std::int64_t row,
             std::int64_t column, const TableStyle& style) {
  const Hidden reason = grid.hidden(b, h, row, column);
  if (reason != Hidden::visible) return {sign_of(reason) + margin_of(step, style), -1, true};
  const double value = grid.at(b, h, row, column);
  const int decimals = is_whole(step, column) ? 0 : decimals_of(step, style);
  if (step.kind != Kind::weights) return {format_number(value, decimals), -1, false};
  if (value == 0 && tells_zeros(step)) return {"0" + margin_of(step, style), -1, true};
  const std::string text = format_weight(value, decimals);
  if (style.ink.coloured()) return {text + margin_of(step, style), heat(value, grid.columns()), false};
  const std::string glyph = shade_glyph(shade_of(value, grid.columns()));
  return {(decimals >= 4 ? glyph + glyph : glyph) + " " + text, -1, false};
}

Line row_of(const std::vector<Cell>& cells, const std::vector<int>& widths, const Ink& ink) {
  Line line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    // the gap is coloured too, so that the map has no stripes
    const std::string padded = pad_left(cell.text, widths[i] + kGap);
    line.text += cell.heat >= 0 ? ink.on_heat(cell.heat, padded) : cell.faint ? ink.faint(padded) : padded;
    line.width += widths[i] + kGap;
  }
  return line;
}

}  // namespace

int pair_cell_width(const Explanation& explanation, const TableStyle& style) {
  const int decimals = style.pair_decimals;
  int width =
      style.ink.coloured() ? decimals + 4 : display_width(format_weight(0.5, decimals)) + (decimals >= 4 ? 3 : 2);
  for (const ExplainStep& step : explanation.steps) {
    if (step.kind != Kind::pairs) continue;
    double least = 0, most = 0;
    for (const double value : step.values.to_vector())
      if (std::isfinite(value)) least = std::min(least, value), most = std::max(most, value);
    for (const double end : {least, most}) width = std::max(width, display_width(format_number(end, decimals)));
  }
  return width + kGap;
}

Selection rows_shown(const ExplainStep& step, const Grid& grid, const SentenceView& view) {
  Selection rows = step.key_rows ? view.keys : view.rows;
  if (step.kind == Kind::table && rows.of != grid.rows()) return first_of(grid.rows(), grid.rows());  // no tokens
  if (step.kind == Kind::keys)
    for (std::int64_t extra = view.keys.of; extra < grid.rows(); ++extra) rows.index.push_back(extra);
  return rows;
}

Block labels_block(const ExplainStep& step, std::int64_t sentence, const Selection& rows, int head_lines,
                   const TableStyle& style) {
  std::vector<Line> lines(static_cast<std::size_t>(head_lines));
  const auto& labels = step.rows[static_cast<std::size_t>(sentence)];
  for (const std::int64_t row : rows.index) {
    Line line = line_of("  " + cut(labels[static_cast<std::size_t>(row)], style.label_width));
    lines.push_back({style.ink.strong(line.text), line.width});
  }
  return block_of(std::move(lines));
}

namespace {

/// Lays out the chosen columns of one head of one sentence.
Block block_of_columns(const ExplainStep& step, const Grid& grid, std::int64_t sentence, std::int64_t head,
                       const SentenceView& view, const Selection& columns, const std::string& title, int head_lines,
                       const TableStyle& style) {
  const Selection rows = rows_shown(step, grid, view);
  const auto& heads = heads_of_columns(step, sentence);
  std::vector<std::vector<Cell>> cells;
  for (const std::int64_t row : rows.index) {
    cells.emplace_back();
    for (const std::int64_t column : columns.index)
      cells.back().push_back(cell_of(step, grid, sentence, head, row, column, style));
  }
  std::vector<int> widths(columns.index.size(), least_width(step, style));
  for (const auto& row : cells)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i].text));
  if (is_pairs(step) && !widths.empty())
    std::fill(widths.begin(), widths.end(), *std::max_element(widths.begin(), widths.end()));
  std::vector<Cell> names;
  for (std::size_t i = 0; i < columns.index.size() && !heads.empty(); ++i) {
    const std::string &name = heads[static_cast<std::size_t>(columns.index[i])], margin = margin_of(step, style);
    if (step.kind == Kind::keys) widths[i] = std::max(widths[i], display_width(name));
    names.push_back({cut(name, widths[i] - static_cast<int>(margin.size())) + margin, -1, false});
  }
  std::vector<Line> lines;
  if (head_lines > (names.empty() ? 0 : 1)) {
    const Line line = line_of("  " + title);
    lines.push_back({style.ink.strong(line.text), line.width});
  }
  if (!names.empty()) {
    const Line line = row_of(names, widths, style.ink);
    lines.push_back({style.ink.strong(line.text), line.width});
  }
  const bool cut_columns = !is_pairs(step) && !columns.all();
  for (const auto& row : cells) {
    lines.push_back(row_of(row, widths, style.ink));
    if (cut_columns) lines.back().text += " …", lines.back().width += 2;
  }
  return block_of(std::move(lines));
}

}  // namespace

Block body_block(const ExplainStep& step, const Grid& grid, std::int64_t sentence, std::int64_t head,
                 const SentenceView& view, const std::string& title, int head_lines, const TableStyle& style) {
  const Selection columns = is_pairs(step) ? view.keys : first_of(grid.columns(), style.most_columns);
  return block_of_columns(step, grid, sentence, head, view, columns, title, head_lines, style);
}

std::vector<Block> body_blocks(const ExplainStep& step, const Grid& grid, std::int64_t sentence, std::int64_t head,
                               const SentenceView& view, const std::string& title, int head_lines,
                               const TableStyle& style) {
  if (step.kind != Kind::keys) return {body_block(step, grid, sentence, head, view, title, head_lines, style)};
  const auto block = [&](const Selection& columns) {
    return block_of_columns(step, grid, sentence, head, view, columns, title, head_lines, style);
  };
  const std::int64_t count = grid.columns();
  if (Block whole = block(first_of(count, count)); whole.width <= style.room) return {std::move(whole)};
  // First as many products as fit, then all stages, beginning with the sum of the products.
  const auto& names = heads_of_columns(step, sentence);
  const auto is_stage = [](const std::string& name) { return name.find("·") == std::string::npos; };
  const std::int64_t products =
      is_stage(names[0]) ? count : std::find_if(names.begin(), names.end(), is_stage) - names.begin();
  std::int64_t most = std::min<std::int64_t>(products, style.most_columns);
  while (most > 1 && block(first_of(products, most)).width > style.room) --most;
  std::vector<Block> blocks{block(first_of(products, most))};
  for (std::int64_t column = products; column < count;) {
    Selection stages{{column}, 1};
    for (++column; column < count; ++column) {
      Selection wider{stages.index, stages.of + 1};
      wider.index.push_back(column);
      if (block(wider).width > style.room) break;
      stages = std::move(wider);
    }
    blocks.push_back(block(stages));
  }
  return blocks;
}

}  // namespace attn::explain_detail
