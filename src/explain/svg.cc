// src/explain/svg.cc: draws an explanation as one self-contained SVG, with the same steps in the same order.
#include "explain/numbers.h"
#include "explain/heat_colours.h"
#include "explain/shown.h"
#include "explain/utf8.h"
#include "explain/view.h"
#include "explain/words.h"

#include "runtime/format.h"

#include <algorithm>
#include <set>

namespace attn::explain_detail {
namespace {

using Kind = ExplainStep::Kind;

// Sizes in pixels; text is 13 px monospace, whose characters are at most 8 px wide.
constexpr int kLine = 22, kCharacter = 8, kMargin = 24, kCell = 76;
constexpr std::int64_t kMostRows = 48, kMostKeys = 32, kMostColumns = 16;

// Colours follow the page: dark text on light, light text on dark. The background stays that of the page. Every CSS
// rule is limited to this drawing, because a notebook shows it inside its own page.
constexpr std::string_view kStyle =
    "<style>\n"
    ".attn-explain text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans "
    "Mono',monospace;fill:#1c2430;white-space:pre}\n"
    ".attn-explain .title{font-weight:700;font-size:15px}.attn-explain .head{font-weight:700}\n"
    ".attn-explain .faint{fill:#5a6675}.attn-explain .formula{fill:#0b6a77}\n"
    ".attn-explain .page{fill:#ffffff}.attn-explain .rule{stroke:#c9d1da}\n"
    ".attn-explain .on-dark{fill:#ffffff}.attn-explain .on-light{fill:#000000}\n"
    "@media (prefers-color-scheme: dark){.attn-explain text{fill:#e6ebf2}.attn-explain .faint{fill:#9aa7b6}\n"
    ".attn-explain .formula{fill:#6fd3df}.attn-explain .page{fill:#12161c}.attn-explain .rule{stroke:#39424e}\n"
    ".attn-explain .on-dark{fill:#ffffff}.attn-explain .on-light{fill:#000000}}\n"
    "</style>\n";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

class Drawing {
 public:
  explicit Drawing(const Explanation& explanation)
      : explanation_(explanation), view_(choose_view(explanation, kMostRows, kMostKeys)) {}

  std::string draw() {
    for (std::size_t i = 0; i < explanation_.steps.size(); ++i) {
      const ExplainStep& step = explanation_.steps[i];
      if (!shows(explanation_, step)) continue;
      if (step.name == "q") parameters();
      header(step, i + 1);
      body(step);
      y_ += kLine / 2;
    }
    const std::string label = escaped(runtime::format("attn explain: {}", runtime::join(explanation_.texts, " | ")));
    return runtime::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"attn-explain\" role=\"img\" aria-label=\"{0}\" "
        "width=\"{1}\" height=\"{2}\" viewBox=\"0 0 {1} {2}\">\n"
        "<title>{0}</title>\n{3}<rect class=\"page\" width=\"{1}\" height=\"{2}\"/>\n{4}</svg>\n",
        label, right_ + kMargin, y_ + kMargin, kStyle, shapes_);
  }

 private:
  enum class Anchor { start, end, middle };

  void text(int x, std::string_view style, std::string_view words, Anchor anchor = Anchor::start) {
    if (words.empty()) return;
    const int width = display_width(words) * kCharacter;
    if (anchor == Anchor::start) right_ = std::max(right_, x + width);
    constexpr std::string_view anchors[] = {"", " text-anchor=\"end\"", " text-anchor=\"middle\""};
    shapes_ += runtime::format("<text x=\"{}\" y=\"{}\"{}{}>{}</text>\n", x, y_ + 15,
                               style.empty() ? "" : runtime::format(" class=\"{}\"", style),
                               anchors[static_cast<std::size_t>(anchor)], escaped(words));
  }
  std::string_view say(Phrase phrase) const { return explain_detail::say(explanation_.language, phrase); }
  template <typename... T>
  std::string say_with(Phrase phrase, const T&... values) const {
    return runtime::format(fmt::runtime(say(phrase)), values...);
  }
  void remark(std::string_view words) {
    text(kMargin, "faint", words);
    y_ += kLine;
  }

  void header(const ExplainStep& step, std::size_t number) {
    if (number > 1)
      shapes_ += runtime::format("<line class=\"rule\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", kMargin, y_,
                                 kMargin + 640, y_);
    y_ += 6;
    const std::string title = runtime::format("{}  {}", number, step.title);
    text(kMargin, "title", title);
    int x = kMargin + (display_width(title) + 4) * (kCharacter + 1);
    const std::string shape = to_string(step.shape);
    text(x, "", shape);
    x += (display_width(shape) + 2) * kCharacter;
    text(x, "formula", step.formula);
    y_ += kLine;
    if (!step.note.empty() || !step.source.empty())
      remark(step.note + (step.note.empty() || step.source.empty() ? "" : " · ") + step.source);
  }

  void body(const ExplainStep& step) {
    if (step.kind == Kind::words || step.kind == Kind::ids) return tokens(step);
    if (step.kind == Kind::checks) return checks(step);
    for (std::int64_t b = 0; b < step.batch; ++b) {
      const SentenceView& view = view_.sentences[static_cast<std::size_t>(b)];
      if (explanation_.batch)
        remark(say_with(Phrase::sentence, b + 1, explanation_.texts[static_cast<std::size_t>(b)]));
      for (std::int64_t h = 0; h < step.heads; ++h) {
        if (step.heads > 1) remark(say_with(Phrase::head, h));
        table(step, b, h, view);
      }
    }
    if (!step.hidden.empty()) legend(step);
  }

  void tokens(const ExplainStep& step) {
    const std::vector<std::int64_t> ids =
        step.values.defined() ? step.values.to_int_vector() : std::vector<std::int64_t>();
    for (std::size_t b = 0; b < step.rows.size(); ++b) {
      int x = kMargin;
      const std::size_t shown = std::min<std::size_t>(step.rows[b].size(), kMostKeys);
      for (std::size_t i = 0; i < shown; ++i) {
        const std::string words =
            ids.empty() ? cut(step.rows[b][i], 12) : std::to_string(ids[b * step.rows[b].size() + i]);
        text(x, ids.empty() ? "head" : "", words);
        x += kCell;
      }
      if (shown < step.rows[b].size()) text(x, "faint", runtime::format("… +{}", step.rows[b].size() - shown));
      y_ += kLine;
    }
  }

  void checks(const ExplainStep& step) {
    const std::vector<std::int64_t> same = step.values.to_int_vector();
    for (std::size_t b = 0; b < same.size(); ++b) {
      text(kMargin, "",
           runtime::format("{}  {} {}", step.rows[0][b], same[b] ? "✓" : "✗",
                           say(phrase_of_check(step.name, same[b] != 0))));
      y_ += kLine;
    }
  }

  void table(const ExplainStep& step, std::int64_t b, std::int64_t h, const SentenceView& view) {
    const Grid grid(step);
    const bool pairs = step.kind == Kind::pairs || step.kind == Kind::weights;
    Selection rows = step.key_rows ? view.keys : view.rows;
    if (step.kind == Kind::keys)
      for (std::int64_t extra = view.keys.of; extra < grid.rows(); ++extra) rows.index.push_back(extra);
    const Selection columns = pairs ? view.keys : first_of(grid.columns(), kMostColumns);
    const int left = kMargin + 13 * kCharacter;
    const auto item = static_cast<std::size_t>(b);
    if (!step.columns.empty()) {
      const auto& heads = step.columns[std::min(item, step.columns.size() - 1)];
      for (std::size_t c = 0; c < columns.index.size(); ++c)
        text(left + static_cast<int>(c + 1) * kCell - 8, "head",
             cut(heads[static_cast<std::size_t>(columns.index[c])], 9), Anchor::end);
      y_ += kLine;
    }
    for (const std::int64_t row : rows.index) {
      if (!step.rows.empty()) text(kMargin, "head", cut(step.rows[item][static_cast<std::size_t>(row)], 12));
      for (std::size_t c = 0; c < columns.index.size(); ++c)
        cell(step, grid, b, h, row, columns.index[c], left + static_cast<int>(c) * kCell);
      y_ += kLine;
    }
    right_ = std::max(right_, left + static_cast<int>(columns.index.size()) * kCell);
    left_out(rows, columns, pairs, view);
  }

  void cell(const ExplainStep& step, const Grid& grid, std::int64_t b, std::int64_t h, std::int64_t row,
            std::int64_t column, int x) {
    const Hidden reason = grid.hidden(b, h, row, column);
    if (reason != Hidden::visible) return text(x + kCell / 2, "faint", sign_of(reason), Anchor::middle);
    const double value = grid.at(b, h, row, column);
    if (step.kind != Kind::weights) return text(x + kCell - 8, "", format_number(value, 4), Anchor::end);
    const Rgb colour = colour_of(heat(value, grid.columns()));
    shapes_ += runtime::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#{:02x}{:02x}{:02x}\"/>\n", x,
                               y_, kCell, kLine, colour.red, colour.green, colour.blue);
    text(x + kCell - 8, wants_black_text(colour) ? "on-light" : "on-dark", format_number(value, 4), Anchor::end);
  }

  void left_out(const Selection& rows, const Selection& columns, bool pairs, const SentenceView& view) {
    if (static_cast<std::int64_t>(rows.index.size()) < rows.of)
      remark(say_with(Phrase::rows_left_out, rows.index.size(), rows.of));
    if (columns.all()) return;
    if (!pairs)
      return remark(say_with(Phrase::columns_left_out, columns.of - static_cast<std::int64_t>(columns.index.size())));
    remark(say_with(view_.around_diagonal ? Phrase::keys_left_out_diagonal : Phrase::keys_left_out_strongest,
                    columns.index.size(), columns.of, 100 * view.left_out));
  }

  void legend(const ExplainStep& step) {
    const std::set<Hidden> reasons(step.hidden.begin(), step.hidden.end());
    std::string signs;
    for (const auto& [reason, phrase] : reasons_of_signs)
      if (reasons.count(reason)) signs += runtime::format("  {} {}", sign_of(reason), say(phrase));
    if (!signs.empty()) remark(std::string(say(Phrase::legend)) + signs);
  }

  /// Draws the matrices behind q, k and v if they are small enough to read.
  void parameters() {
    for (const ExplainStep& step : explanation_.parameters) {
      const Grid grid(step);
      if (grid.rows() > kMostColumns || grid.columns() > kMostColumns) continue;
      SentenceView all;
      all.rows = first_of(grid.rows(), grid.rows());
      for (std::int64_t h = 0; h < step.heads; ++h) {
        remark(step.heads > 1 ? runtime::format("{} {}", step.title, say_with(Phrase::head, h)) : step.title);
        table(step, 0, h, all);
      }
    }
  }

  const Explanation& explanation_;
  const View view_;
  std::string shapes_;
  int y_ = kMargin, right_ = kMargin + 640;
};

}  // namespace
}  // namespace attn::explain_detail

namespace attn {

std::string to_svg(const Explanation& explanation) { return explain_detail::Drawing(explanation).draw(); }

}  // namespace attn
