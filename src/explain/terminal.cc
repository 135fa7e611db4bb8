// src/explain/terminal.cc: prints an explanation as text: one line for each step, then its numbers.
#include "explain/terminal_block.h"
#include "explain/numbers.h"
#include "explain/heat_colours.h"
#include "explain/shown.h"
#include "explain/terminal_tables.h"
#include "explain/utf8.h"
#include "explain/words.h"

#include "runtime/enum_value.h"
#include "runtime/format.h"

#include <algorithm>
#include <set>

namespace attn::explain_detail {
namespace {

using Kind = ExplainStep::Kind;
constexpr int kMostRows = 24;

class Terminal {
 public:
  Terminal(const Explanation& explanation, const TextOptions& options)
      : explanation_(explanation), width_(std::max(40, options.width)) {
    style_.ink = Ink(options.colour);
    measure();
  }

  std::string draw() {
    const auto& steps = explanation_.steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      std::vector<std::size_t> group;  // q, k and v, or one step
      do
        if (shows(explanation_, steps[i])) group.push_back(i);
      while (is_vectors_of_qkv(steps[i]) && i + 1 < steps.size() && is_vectors_of_qkv(steps[i + 1]) && ++i);
      if (group.empty()) continue;
      matrices(group);
      for (const std::size_t n : group) header(n);
      if (is_vectors_of_qkv(steps[group[0]])) vectors(group);
      else body(steps[group[0]]);
    }
    return std::move(text_);
  }

 private:
  /// Computes the column widths of the header lines, the decimals and the part of the sentence that fits.
  void measure() {
    const ExplainStep& weights = explanation_.step("weights");
    int longest = explanation_.query ? 4 : 1;  // the last row of a worked-out query row has a label
    for (const auto* lists : {&weights.rows, &weights.columns})
      for (const auto& labels : *lists)
        for (const auto& label : labels) longest = std::max(longest, display_width(label));
    style_.label_width = std::min(longest, 12);
    const int room = width_ - style_.label_width - 2;
    const std::int64_t keys = weights.shape.back();
    style_.most_columns = std::max(1, (room - 2) / 9);
    style_.room = room;
    // Use two decimals only where the whole sentence then fits; a part of it is shown with four.
    const auto fits = [&](int decimals) {
      style_.pair_decimals = decimals;
      return static_cast<std::int64_t>(std::max(1, room / pair_cell_width(explanation_, style_)));
    };
    std::int64_t most_keys = fits(4);
    if (most_keys < keys && fits(2) < keys) most_keys = fits(4);
    else if (most_keys < keys) most_keys = keys;
    view_ = choose_view(explanation_, kMostRows, most_keys);
    for (const ExplainStep& step : explanation_.steps) {
      if (!shows(explanation_, step)) continue;
      title_width_ = std::max(title_width_, display_width(step.title));
      shape_width_ = std::max(shape_width_, display_width(to_string(step.shape)));
      formula_width_ = std::max(formula_width_, std::min(28, display_width(step.formula)));
    }
  }

  void line(const std::string& text) { text_ += fitted(text, width_) + "\n"; }
  std::string_view say(Phrase phrase) const { return explain_detail::say(explanation_.language, phrase); }
  template <typename... T>
  std::string say_with(Phrase phrase, const T&... values) const {
    return runtime::format(fmt::runtime(say(phrase)), values...);
  }

  void header(std::size_t i) {
    const ExplainStep& step = explanation_.steps[i];
    const Ink& ink = style_.ink;
    const std::string number = runtime::format("{:2}", i + 1);
    const int left = 4 + title_width_ + 2 + shape_width_ + 2;
    const int indent = std::min(4 + title_width_ + 2, width_ / 3);
    std::string result = ink.number(number) + "  " + ink.strong(pad_right(step.title, title_width_)) + "  " +
                         pad_right(to_string(step.shape), shape_width_);
    int used = left - 2;
    if (left + display_width(step.formula) > width_) {
      line(trimmed(result));
      result = std::string(static_cast<std::size_t>(indent), ' ');
      used = indent;
    } else {
      result += "  ";
      used += 2;
    }
    // the lines of a formula after its first one begin at `indent`
    const std::vector<std::string> formula = wrapped(step.formula, width_ - used);
    for (std::size_t l = 0; l + 1 < formula.size(); ++l) {
      line(result + ink.formula(formula[l]));
      result = std::string(static_cast<std::size_t>(indent), ' ');
    }
    const std::string last = pad_right(formula.empty() ? "" : formula.back(), std::min(formula_width_, width_ - used));
    result += ink.formula(last);
    used += display_width(last);
    for (const std::string* part : {&step.note, &step.source}) {
      if (part->empty()) continue;
      if (used + 2 + display_width(*part) <= width_) {
        result += "  " + ink.faint(*part);
        used += 2 + display_width(*part);
        continue;
      }
      for (const std::string& piece : wrapped(*part, width_ - indent)) {
        line(trimmed(result));
        result = std::string(static_cast<std::size_t>(indent), ' ') + ink.faint(piece);
        used = indent + display_width(piece);
      }
    }
    line(trimmed(result));
  }

  static std::string trimmed(std::string text) {
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

  void body(const ExplainStep& step) {
    switch (step.kind) {
      case Kind::words:
      case Kind::ids: tokens(step); break;
      case Kind::checks: checks(step); break;
      default: tables(step);
    }
    if (is_pairs(step)) pairs_notes(step);
    line("");
  }

  /// Prints the tokens or their ids; both steps use the same columns.
  void tokens(const ExplainStep& step) {
    const ExplainStep& ids = explanation_.step(step.name == "tokens_to" || step.name == "ids_to" ? "ids_to" : "ids");
    const std::vector<std::int64_t> numbers = ids.values.to_int_vector();
    const std::size_t width = step.rows[0].size();
    const auto label = [&](std::size_t b, std::size_t i) { return cut(step.rows[b][i], style_.label_width); };
    const auto id = [&](std::size_t b, std::size_t i) { return std::to_string(numbers[b * width + i]); };
    std::vector<int> cells(width, 2);
    for (std::size_t b = 0; b < step.rows.size(); ++b)
      for (std::size_t i = 0; i < width; ++i)
        cells[i] = std::max({cells[i], display_width(label(b, i)), display_width(id(b, i))});
    std::size_t shown = 0;
    for (int used = 1; shown < width && used + 1 + cells[shown] <= width_ - (shown + 1 == width ? 0 : 10); ++shown)
      used += 1 + cells[shown];
    for (std::size_t b = 0; b < step.rows.size(); ++b) {
      std::string text = " ";
      for (std::size_t i = 0; i < shown; ++i)
        text.append(" ").append(pad_right(step.kind == Kind::ids ? id(b, i) : label(b, i), cells[i]));
      if (shown < width) text += runtime::format(" … +{}", width - shown);
      line(trimmed(text));
    }
  }

  void checks(const ExplainStep& step) {
    const std::vector<std::int64_t> same = step.values.to_int_vector();
    int widest = 0;
    for (const auto& label : step.rows[0]) widest = std::max(widest, std::min(40, display_width(label)));
    for (std::size_t b = 0; b < same.size(); ++b)
      line(runtime::format("  {}  {} {}", style_.ink.strong(pad_right(cut(step.rows[0][b], 40), widest)),
                           same[b] ? "✓" : "✗", say(phrase_of_check(step.name, same[b] != 0))));
  }

  std::string sentence_title(std::int64_t b) const {
    return say_with(Phrase::sentence, b + 1, cut(printable(explanation_.texts[static_cast<std::size_t>(b)]), 40));
  }

  void tables(const ExplainStep& step) {
    const Grid grid(step);
    for (std::int64_t b = 0; b < step.batch; ++b) {
      if (explanation_.batch) line(runtime::format(" {}", style_.ink.faint(sentence_title(b))));
      const SentenceView& view = view_.sentences[static_cast<std::size_t>(b)];
      const Selection rows = rows_shown(step, grid, view);
      const int head_lines = (step.columns.empty() ? 0 : 1) + (step.heads > 1 ? 1 : 0);
      std::vector<Block> bodies;
      for (std::int64_t h = 0; h < step.heads; ++h)
        for (Block& block :
             body_blocks(step, grid, b, h, view, step.heads > 1 ? say_with(Phrase::head, h) : "", head_lines, style_))
          bodies.push_back(std::move(block));
      for (const std::string& text : place(labels_block(step, b, rows, head_lines, style_), bodies, width_, 2))
        line(text);
      left_out(step, view);
    }
  }

  static bool same_text(const Block& a, const Block& b) {
    return std::equal(a.lines.begin(), a.lines.end(), b.lines.begin(), b.lines.end(),
                      [](const Line& x, const Line& y) { return x.text == y.text; });
  }

  /// Prints q, k and v of the same tokens beside each other while they fit, else each alone with its heads.
  void vectors(const std::vector<std::size_t>& group) {
    for (std::int64_t b = 0; b < explanation_.steps[group[0]].batch; ++b) {
      if (explanation_.batch) line(runtime::format(" {}", style_.ink.faint(sentence_title(b))));
      const SentenceView& view = view_.sentences[static_cast<std::size_t>(b)];
      std::vector<Block> bodies;
      Block labels;
      std::vector<std::int64_t> rows;  // those of `bodies`
      bool key_rows = false;
      const auto flush = [&] {
        if (!bodies.empty())
          for (const std::string& text : place(labels, bodies, width_, 2)) line(text);
        bodies.clear();
      };
      for (const std::size_t i : group) {
        const ExplainStep& step = explanation_.steps[i];
        const Grid grid(step);
        std::vector<Block> heads;
        for (std::int64_t h = 0; h < step.heads; ++h)
          heads.push_back(body_block(step, grid, b, h, view,
                                     step.heads > 1 ? step.name + " " + say_with(Phrase::head, h) : step.name, 1,
                                     style_));
        const Selection own_rows = rows_shown(step, grid, view);
        Block own_labels = labels_block(step, b, own_rows, 1, style_);
        // Two texts may have the same words; their rows are not the same rows.
        const bool other_text = explanation_.to && step.key_rows != key_rows;
        const bool other_rows = other_text || own_rows.index != rows || !same_text(own_labels, labels);
        int used = labels.width;
        for (const std::vector<Block>* blocks : {&bodies, &heads})
          for (const Block& block : *blocks) used += block.width + 2;
        if (other_rows || used - 2 > width_) flush();
        if (bodies.empty()) {
          labels = std::move(own_labels);
          rows = own_rows.index;
        }
        key_rows = step.key_rows;
        bodies.insert(bodies.end(), heads.begin(), heads.end());
      }
      flush();
      left_out(explanation_.steps[group[0]], view);
    }
    line("");
  }

  /// Prints the matrices that these steps are the first to use, if they are small enough to read.
  void matrices(const std::vector<std::size_t>& group) {
    std::vector<Block> bodies;
    std::size_t tallest = 0;
    std::string names;
    for (const ExplainStep& step : explanation_.parameters) {
      const Grid grid(step);
      if (grid.rows() > 8 || grid.columns() > 8 || !uses(explanation_, group, step.name) ||
          !printed_.insert(step.name).second)
        continue;
      names += (names.empty() ? "" : ", ") + step.title;
      SentenceView all;
      all.rows = first_of(grid.rows(), grid.rows());
      for (std::int64_t h = 0; h < step.heads; ++h)
        bodies.push_back(body_block(step, grid, 0, h, all,
                                    step.heads > 1 ? step.title + " " + say_with(Phrase::head, h) : step.title, 1,
                                    style_));
      tallest = std::max(tallest, bodies.empty() ? 0 : bodies.back().lines.size());
    }
    if (bodies.empty()) return;
    for (const std::string& text : wrapped(names + "  " + std::string(say(Phrase::note_parameters)), width_ - 4))
      line("    " + style_.ink.faint(text));
    for (Block& body : bodies)
      while (body.lines.size() < tallest)
        body.lines.push_back({std::string(static_cast<std::size_t>(body.width), ' '), body.width});
    std::vector<Line> margin(
        tallest, Line{std::string(static_cast<std::size_t>(style_.label_width) + 2, ' '), style_.label_width + 2});
    for (const std::string& text : place(block_of(std::move(margin)), bodies, width_, 2)) line(text);
    line("");
  }

  void faint_line(const std::string& text) {
    for (const std::string& part : wrapped(text, width_ - 2)) line(runtime::format("  {}", style_.ink.faint(part)));
  }

  void left_out(const ExplainStep& step, const SentenceView& view) {
    const Selection& rows = step.key_rows ? view.keys : view.rows;
    if (!rows.all()) faint_line(say_with(Phrase::rows_left_out, rows.index.size(), rows.of));
    if (is_pairs(step) && !view.keys.all())
      faint_line(say_with(view_.around_diagonal ? Phrase::keys_left_out_diagonal : Phrase::keys_left_out_strongest,
                          view.keys.index.size(), view.keys.of, 100 * view.left_out));
    if (!is_pairs(step) && step.kind != Kind::keys && step.shape.back() > style_.most_columns)
      faint_line(say_with(Phrase::columns_left_out, step.shape.back() - style_.most_columns));
  }

  /// Prints the legend of the signs of masked pairs and of the shades of the heat map.
  void pairs_notes(const ExplainStep& step) {
    const std::set<Hidden> reasons(step.hidden.begin(), step.hidden.end());
    std::string signs;
    for (const auto& [reason, phrase] : reasons_of_signs)
      if (reasons.count(reason)) signs += runtime::format("  {} {}", sign_of(reason), say(phrase));
    if (!signs.empty() && (step.name == "mask" || reasons.size() > 2))
      faint_line(std::string(say(Phrase::legend)) + signs);
    const std::int64_t keys = step.shape.back();
    if (step.kind != Kind::weights || keys < 2) return;  // one key has nothing to compare with
    const std::string share = say_with(Phrase::scale_share, 1.0 / static_cast<double>(keys));
    const int decimals = shade_begin(1, keys) < 0.01 ? 4 : 2;
    if (!style_.ink.coloured()) {
      const auto from = [&](int shade) { return format_number(shade_begin(shade, keys), decimals); };
      faint_line(say_with(Phrase::scale, from(1), from(2), from(3), from(4)) + "  " + share);
      return;
    }
    std::string swatches;
    int width = 2;
    const auto swatch = [&](double heat, const std::string& text) {
      swatches += style_.ink.on_heat(heat, text);
      width += display_width(text);
    };
    for (int shade = 0; shade <= 4; ++shade) {
      const double w = shade == 0 ? 0.0 : shade_begin(shade, keys);
      swatch(heat(w, keys), runtime::format(" {} ", format_weight(w, decimals)));
    }
    swatch(1, " 1 ");
    const bool together = width + 2 + display_width(share) <= width_;
    line("  " + swatches + (together ? "  " + style_.ink.faint(share) : ""));
    if (!together) faint_line(share);
  }

  const Explanation& explanation_;
  const int width_;
  TableStyle style_;
  View view_;
  int title_width_ = 0, shape_width_ = 0, formula_width_ = 0;
  std::set<std::string> printed_;  // names of the matrices that stand above
  std::string text_;
};

}  // namespace
}  // namespace attn::explain_detail

namespace attn {

std::string to_text(const Explanation& explanation, const TextOptions& options) {
  runtime::check_enum(options.colour, TextOptions::Colour::rgb, "to_text: colour");
  return explain_detail::Terminal(explanation, options).draw();
}

}  // namespace attn
