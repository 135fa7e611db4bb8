// src/explain/svg.cc: draws an explanation as one self-contained SVG: the steps in their order, matrices of the same
// rows beside each other.
#include "explain/numbers.h"
#include "explain/shown.h"
#include "explain/svg_canvas.h"
#include "explain/utf8.h"
#include "explain/view.h"
#include "explain/words.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace attn::explain_detail {
namespace {

using Kind = ExplainStep::Kind;
using Anchor = SvgCanvas::Anchor;

constexpr int kLine = SvgCanvas::line, kCharacter = SvgCanvas::character, kMargin = SvgCanvas::margin;
constexpr int kWidth = 1180;       // matrices that are wider together stand below each other
constexpr int kPanelGap = 28;      // between matrices
constexpr int kLongestLabel = 48;  // columns of a token
constexpr int kShortLabel = 9;     // columns of a label that a matrix of pairs makes room for
constexpr std::int64_t kMostDrawnRows = 48, kMostKeys = 32, kMostColumns = 16;

/// One matrix: a head of a step, for one sentence.
struct Panel {
  const ExplainStep* step;
  const Grid* grid;
  std::int64_t sentence, head;
  Selection rows, columns;
  std::string title;
  std::vector<std::string> labels;  // of the columns
  std::vector<int> widths;          // of the columns
  int decimals = 4;
  bool rising = false, signs = false;  // labels that do not fit rise; signs tell several reasons apart
  bool room_for_labels = false;
  int matrix_width() const {
    int width = 0;
    for (const int each : widths) width += each;
    return width;
  }
  int longest_label() const {
    int longest = 0;
    for (const std::string& label : labels) longest = std::max(longest, SvgCanvas::width_of(label));
    return longest;
  }
  int width() const { return matrix_width() + (rising ? longest_label() * 5 / 7 : 0); }
  int head_height() const {
    return (title.empty() ? 0 : kLine) + (labels.empty() ? 0 : rising ? longest_label() * 5 / 7 + kLine / 2 : kLine);
  }
};

class Drawing {
 public:
  explicit Drawing(const Explanation& explanation)
      : explanation_(explanation), view_(choose_view(explanation, kMostDrawnRows, kMostKeys)) {}

  std::string draw() {
    const auto& steps = explanation_.steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      std::vector<std::size_t> group;  // q, k and v, or one step
      do
        if (shows(explanation_, steps[i])) group.push_back(i);
      while (is_vectors_of_qkv(steps[i]) && i + 1 < steps.size() && is_vectors_of_qkv(steps[i + 1]) && ++i);
      if (group.empty()) continue;
      parameters(group);
      for (const std::size_t n : group) header(steps[n], n + 1);
      body(group);
      y_ += kLine / 2;
    }
    return canvas_.finish(runtime::format("attn explain: {}", runtime::join(explanation_.texts, " | ")));
  }

 private:
  std::string_view say(Phrase phrase) const { return explain_detail::say(explanation_.language, phrase); }
  template <typename... T>
  std::string say_with(Phrase phrase, const T&... values) const {
    return runtime::format(fmt::runtime(say(phrase)), values...);
  }
  void remark(std::string_view words) {
    for (const std::string& part : wrapped(words, kWidth / kCharacter)) {
      canvas_.text(kMargin, y_, "faint", part);
      y_ += kLine;
    }
  }

  void header(const ExplainStep& step, std::size_t number) {
    if (y_ > kMargin) canvas_.rule(y_);
    y_ += 6;
    canvas_.heading(kMargin, y_, runtime::format("{}  {}", number, step.title), to_string(step.shape), step.formula);
    y_ += kLine;
    if (!step.note.empty() || !step.source.empty())
      remark(step.note + (step.note.empty() || step.source.empty() ? "" : " · ") + step.source);
  }

  void body(const std::vector<std::size_t>& group) {
    const ExplainStep& step = explanation_.steps[group[0]];
    if (step.kind == Kind::words || step.kind == Kind::ids) return tokens(step);
    if (step.kind == Kind::checks) return checks(step);
    std::vector<Grid> grids;
    grids.reserve(group.size());
    for (const std::size_t n : group) grids.emplace_back(explanation_.steps[n]);
    for (std::int64_t b = 0; b < step.batch; ++b) {
      const SentenceView& view = view_.sentences[static_cast<std::size_t>(b)];
      if (explanation_.batch)
        remark(say_with(Phrase::sentence, b + 1, explanation_.texts[static_cast<std::size_t>(b)]));
      std::vector<Panel> panels;
      for (std::size_t n = 0; n < group.size(); ++n) {
        const ExplainStep& each = explanation_.steps[group[n]];
        const std::string name = group.size() > 1 ? each.title : "";
        for (std::int64_t h = 0; h < each.heads; ++h)
          panels.push_back(panel(each, grids[n], b, h, view,
                                 each.heads == 1 ? name
                                 : name.empty()  ? say_with(Phrase::head, h)
                                                 : name + " " + say_with(Phrase::head, h)));
      }
      place(panels);
      left_out(panels[0], view);
    }
    if (!step.hidden.empty()) legend(step);
  }

  void tokens(const ExplainStep& step) {
    const ExplainStep& of_ids = explanation_.step(step.name == "tokens_to" || step.name == "ids_to" ? "ids_to" : "ids");
    const std::vector<std::int64_t> ids = of_ids.values.to_int_vector();
    for (std::size_t b = 0; b < step.rows.size(); ++b) {
      int x = kMargin;
      const std::size_t count = step.rows[b].size(), shown = std::min<std::size_t>(count, kMostDrawnRows);
      for (std::size_t i = 0; i < shown; ++i) {
        const std::string word = cut(step.rows[b][i], kLongestLabel), id = std::to_string(ids[b * count + i]);
        const int width = std::max(SvgCanvas::width_of(word), SvgCanvas::width_of(id)) + 14;
        if (x > kMargin && x + width > kMargin + kWidth) x = kMargin, y_ += kLine + 6;
        canvas_.chip(x, y_, width);
        canvas_.text(x + width / 2, y_, step.kind == Kind::words ? "head" : "", step.kind == Kind::words ? word : id,
                     Anchor::middle);
        x += width + 6;
      }
      if (shown < count) canvas_.text(x, y_, "faint", runtime::format("… +{}", count - shown));
      y_ += kLine + 6;
    }
  }

  void checks(const ExplainStep& step) {
    const std::vector<std::int64_t> same = step.values.to_int_vector();
    for (std::size_t b = 0; b < same.size(); ++b) {
      canvas_.text(kMargin, y_, "",
                   runtime::format("{}  {} {}", step.rows[0][b], same[b] ? "✓" : "✗",
                                   say(phrase_of_check(step.name, same[b] != 0))));
      y_ += kLine;
    }
  }

  Panel panel(const ExplainStep& step, const Grid& grid, std::int64_t b, std::int64_t h, const SentenceView& view,
              std::string title) const {
    Panel result{&step, &grid, b, h, step.key_rows ? view.keys : view.rows, {}, std::move(title), {}, {}};
    if (step.kind == Kind::table && result.rows.of != grid.rows()) result.rows = first_of(grid.rows(), grid.rows());
    if (step.kind == Kind::keys)
      for (std::int64_t extra = view.keys.of; extra < grid.rows(); ++extra) result.rows.index.push_back(extra);
    result.columns = is_pairs(step) ? view.keys : first_of(grid.columns(), kMostColumns);
    if (!step.columns.empty()) {
      const auto& names = step.columns[std::min(static_cast<std::size_t>(b), step.columns.size() - 1)];
      for (const std::int64_t column : result.columns.index)
        result.labels.push_back(cut(names[static_cast<std::size_t>(column)], kLongestLabel));
    }
    const std::set<Hidden> reasons(step.hidden.begin(), step.hidden.end());
    result.signs = reasons.size() > (reasons.count(Hidden::visible) ? 2 : 1);
    result.room_for_labels = is_pairs(step);
    measure(result);
    if (is_pairs(step) && label_width(result) + result.matrix_width() > kWidth) {
      result.decimals = 2;
      result.room_for_labels = false;
      measure(result);
    }
    result.rising = is_pairs(step) && std::any_of(result.labels.begin(), result.labels.end(), [&](const auto& label) {
                      return SvgCanvas::width_of(label) > result.widths[0] - 8;
                    });
    return result;
  }

  /// Sets the widths of the columns: those of pairs are equal, one of a worked-out query is at least as wide as its
  /// title.
  static void measure(Panel& panel) {
    panel.widths.assign(panel.columns.index.size(), 0);
    for (std::size_t c = 0; c < panel.widths.size(); ++c) {
      int characters = 0;
      for (const std::int64_t row : panel.rows.index)
        if (panel.grid->hidden(panel.sentence, panel.head, row, panel.columns.index[c]) == Hidden::visible)
          characters = std::max(characters, display_width(number(panel, row, panel.columns.index[c])));
      if (panel.step->kind == Kind::keys || (panel.room_for_labels && display_width(panel.labels[c]) <= kShortLabel))
        characters = std::max(characters, display_width(panel.labels[c]));
      panel.widths[c] = std::max(characters, 4) * kCharacter + 12;
    }
    if (is_pairs(*panel.step))
      std::fill(panel.widths.begin(), panel.widths.end(), *std::max_element(panel.widths.begin(), panel.widths.end()));
  }

  static std::string number(const Panel& panel, std::int64_t row, std::int64_t column) {
    return format_number(panel.grid->at(panel.sentence, panel.head, row, column),
                         is_whole(*panel.step, column) ? 0 : panel.decimals);
  }

  static std::string row_label(const Panel& panel, std::int64_t row) {
    const auto& rows = panel.step->rows;
    return rows.empty() ? ""
                        : cut(rows[std::min(static_cast<std::size_t>(panel.sentence), rows.size() - 1)]
                                  [static_cast<std::size_t>(row)],
                              kLongestLabel);
  }
  static int label_width(const Panel& panel) {
    int longest = 0;
    for (const std::int64_t row : panel.rows.index)
      longest = std::max(longest, SvgCanvas::width_of(row_label(panel, row)));
    return longest == 0 ? 0 : longest + 14;
  }

  /// Draws panels beside each other while they fit and have the same rows, the others below.
  void place(const std::vector<Panel>& panels) {
    for (std::size_t first = 0; first < panels.size();) {
      const Panel& left = panels[first];
      const int labels = label_width(left);
      std::size_t end = first;
      int used = labels, top = 0, tallest = 0;
      const auto fits = [&](const Panel& next) {
        const bool same_rows =
            next.step->key_rows == left.step->key_rows ||
            (!explanation_.to && next.rows.index == left.rows.index && next.step->rows == left.step->rows);
        return end == first || (same_rows && used + next.width() <= kWidth);
      };
      for (; end < panels.size() && fits(panels[end]); ++end) {
        used += panels[end].width() + kPanelGap;
        top = std::max(top, panels[end].head_height());
        tallest = std::max(tallest, static_cast<int>(panels[end].rows.index.size()));
      }
      int line = y_ + top;
      for (const std::int64_t row : left.rows.index) {
        canvas_.text(kMargin, line, "head", row_label(left, row));
        line += kLine;
      }
      int x = kMargin + labels;
      for (; first < end; ++first) {
        matrix(panels[first], x, y_ + top);
        x += panels[first].width() + kPanelGap;
      }
      y_ += top + tallest * kLine + 8;
    }
  }

  /// Draws one matrix whose first row of numbers begins at (left, top).
  void matrix(const Panel& panel, int left, int top) {
    canvas_.text(left, top - panel.head_height(), "head", panel.title);
    int x = left;
    for (std::size_t c = 0; c < panel.labels.size(); ++c) {
      if (panel.rising) canvas_.rising(x + panel.widths[c] / 2, top - 6, "head", panel.labels[c]);
      else canvas_.text(x + panel.widths[c] - 6, top - kLine, "head", panel.labels[c], Anchor::end);
      x += panel.widths[c];
    }
    int y = top;
    for (const std::int64_t row : panel.rows.index) {
      x = left;
      for (std::size_t c = 0; c < panel.widths.size(); ++c) {
        cell(panel, row, panel.columns.index[c], x, y, panel.widths[c]);
        x += panel.widths[c];
      }
      y += kLine;
    }
    canvas_.frame(left, top, x - left, y - top);
  }

  void cell(const Panel& panel, std::int64_t row, std::int64_t column, int x, int y, int width) {
    const Hidden reason = panel.grid->hidden(panel.sentence, panel.head, row, column);
    if (reason != Hidden::visible) {
      if (panel.signs) canvas_.text(x + width / 2, y, "faint", sign_of(reason), Anchor::middle);
      return;
    }
    const std::string text = number(panel, row, column);
    if (panel.step->kind != Kind::weights) return canvas_.text(x + width - 6, y, "", text, Anchor::end);
    const double weight = panel.grid->at(panel.sentence, panel.head, row, column);
    if (weight == 0 && tells_zeros(*panel.step)) return canvas_.text(x + width - 6, y, "faint", "0", Anchor::end);
    const Rgb colour = colour_of(heat(weight, panel.grid->columns()));
    canvas_.fill(x, y, width, kLine, colour);
    canvas_.text(x + width - 6, y, wants_black_text(colour) ? "on-light" : "on-dark", text, Anchor::end);
  }

  void left_out(const Panel& panel, const SentenceView& view) {
    const auto shown = static_cast<std::int64_t>(panel.rows.index.size());
    if (shown < panel.rows.of) remark(say_with(Phrase::rows_left_out, shown, panel.rows.of));
    const Selection& columns = panel.columns;
    if (columns.all()) return;
    if (!is_pairs(*panel.step))
      return remark(say_with(Phrase::columns_left_out, columns.of - static_cast<std::int64_t>(columns.index.size())));
    remark(say_with(view_.around_diagonal ? Phrase::keys_left_out_diagonal : Phrase::keys_left_out_strongest,
                    columns.index.size(), columns.of, 100 * view.left_out));
  }

  /// Says what a blank is, or what each sign is.
  void legend(const ExplainStep& step) {
    std::set<Hidden> reasons(step.hidden.begin(), step.hidden.end());
    reasons.erase(Hidden::visible);
    std::string words;
    for (const auto& [reason, phrase] : reasons_of_signs)
      if (reasons.count(reason))
        words += runtime::format("  {}{}{}", reasons.size() > 1 ? sign_of(reason) : "", reasons.size() > 1 ? " " : "",
                                 say(phrase));
    if (!words.empty()) remark(std::string(say(reasons.size() > 1 ? Phrase::legend : Phrase::legend_blank)) + words);
  }

  /// Draws the matrices that these steps are the first to use, if they are small enough to read.
  void parameters(const std::vector<std::size_t>& group) {
    std::vector<Grid> grids;
    std::vector<Panel> panels;
    grids.reserve(explanation_.parameters.size());
    std::string names;
    for (const ExplainStep& step : explanation_.parameters) {
      if (step.shape[step.shape.size() - 2] > kMostColumns || step.shape.back() > kMostColumns) continue;
      if (!uses(explanation_, group, step.name) || !drawn_.insert(step.name).second) continue;
      names += (names.empty() ? "" : ", ") + step.title;
      const Grid& grid = grids.emplace_back(step);
      SentenceView all;
      all.rows = first_of(grid.rows(), grid.rows());
      for (std::int64_t h = 0; h < step.heads; ++h)
        panels.push_back(
            panel(step, grid, 0, h, all, step.heads > 1 ? step.title + " " + say_with(Phrase::head, h) : step.title));
    }
    if (panels.empty()) return;
    remark(names + "  " + std::string(say(Phrase::note_parameters)));
    place(panels);
  }

  const Explanation& explanation_;
  const View view_;
  SvgCanvas canvas_;
  std::set<std::string> drawn_;  // names of the matrices that stand above
  int y_ = kMargin;
};

}  // namespace
}  // namespace attn::explain_detail

namespace attn {

std::string to_svg(const Explanation& explanation) { return explain_detail::Drawing(explanation).draw(); }

}  // namespace attn
