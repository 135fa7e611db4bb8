// src/explain/svg_canvas.cc: writes shapes as SVG, with a style sheet for light and dark pages.
#include "explain/svg_canvas.h"

#include "explain/utf8.h"

#include "runtime/format.h"

#include <algorithm>

namespace attn::explain_detail {
namespace {

// Colours follow the page: dark text on light, light text on dark. Every CSS rule is limited to attn's drawings,
// because a notebook shows them inside its own page. Both lists of fonts have some with Chinese characters.
constexpr std::string_view kStyle =
    "<style>\n"
    ".attn-explain text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono','Noto Sans Mono CJK SC','PingFang SC',"
    "'Microsoft YaHei','Noto Sans CJK SC','WenQuanYi Micro Hei',monospace;fill:#1c2430;white-space:pre}\n"
    ".attn-explain .title,.attn-explain .faint{font-family:'Helvetica Neue',Helvetica,Arial,'Liberation Sans',"
    "'PingFang SC','Microsoft YaHei','Noto Sans CJK SC','Noto Sans SC','WenQuanYi Micro Hei',sans-serif}\n"
    ".attn-explain .title{font-weight:700;font-size:15px}.attn-explain .head{font-weight:700}\n"
    ".attn-explain .faint{fill:#5a6675}.attn-explain .formula{fill:#0b6a77}\n"
    ".attn-explain .shape{font-weight:400;font-size:13px}\n"
    ".attn-explain .page{fill:#ffffff}.attn-explain .rule{stroke:#c9d1da;fill:none}.attn-explain .chip{fill:#edf1f5}\n"
    ".attn-explain .on-dark{fill:#ffffff}.attn-explain .on-light{fill:#000000}\n"
    "@media (prefers-color-scheme: dark){.attn-explain text{fill:#e6ebf2}.attn-explain .faint{fill:#9aa7b6}\n"
    ".attn-explain .formula{fill:#6fd3df}.attn-explain .page{fill:#12161c}.attn-explain .rule{stroke:#39424e}\n"
    ".attn-explain .chip{fill:#232b36}.attn-explain .on-dark{fill:#ffffff}.attn-explain .on-light{fill:#000000}}\n"
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

std::string class_of(std::string_view style) { return style.empty() ? "" : runtime::format(" class=\"{}\"", style); }

}  // namespace

int SvgCanvas::width_of(std::string_view words) { return display_width(words) * character; }

void SvgCanvas::reach(int x, int y) {
  right_ = std::max(right_, x);
  bottom_ = std::max(bottom_, y);
}

void SvgCanvas::text(int x, int y, std::string_view style, std::string_view words, Anchor anchor) {
  if (words.empty()) return;
  constexpr std::string_view anchors[] = {"", " text-anchor=\"end\"", " text-anchor=\"middle\""};
  shapes_ += runtime::format("<text x=\"{}\" y=\"{}\"{}{}>{}</text>\n", x, y + 15, class_of(style),
                             anchors[static_cast<std::size_t>(anchor)], escaped(words));
  reach(anchor == Anchor::start ? x + width_of(words) : x, y + line);
}

void SvgCanvas::rising(int x, int y, std::string_view style, std::string_view words) {
  shapes_ += runtime::format("<text x=\"{0}\" y=\"{1}\"{2} transform=\"rotate(-45 {0} {1})\">{3}</text>\n", x, y,
                             class_of(style), escaped(words));
  reach(x + width_of(words) * 5 / 7 + line / 2, y);
}

void SvgCanvas::heading(int x, int y, std::string_view title, std::string_view behind, std::string_view formula) {
  shapes_ += runtime::format(
      "<text x=\"{}\" y=\"{}\" class=\"title\">{}<tspan class=\"shape\">   {}   </tspan><tspan "
      "class=\"shape formula\">{}</tspan></text>\n",
      x, y + 15, escaped(title), escaped(behind), escaped(formula));
  reach(x + width_of(title) * 9 / 8 + width_of(behind) + width_of(formula) + 6 * character, y + line);
}

void SvgCanvas::fill(int x, int y, int width, int height, Rgb colour) {
  shapes_ += runtime::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#{:02x}{:02x}{:02x}\"/>\n", x,
                             y, width, height, colour.red, colour.green, colour.blue);
  reach(x + width, y + height);
}

void SvgCanvas::chip(int x, int y, int width) {
  shapes_ += runtime::format("<rect class=\"chip\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/>\n", x, y,
                             width, line);
  reach(x + width, y + line);
}

void SvgCanvas::frame(int x, int y, int width, int height) {
  shapes_ += runtime::format("<path class=\"rule\" d=\"M{} {}h{}v{}h{}z\"/>\n", x, y, width, height, -width);
  reach(x + width, y + height);
}

void SvgCanvas::rule(int y) { rules_.push_back(y); }

std::string SvgCanvas::finish(std::string_view label) const {
  std::string rules;
  for (const int y : rules_)
    rules += runtime::format("<path class=\"rule\" d=\"M{} {}h{}\"/>\n", margin, y, right_ - margin);
  return runtime::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"attn-explain\" role=\"img\" aria-label=\"{0}\" "
      "width=\"{1}\" height=\"{2}\" viewBox=\"0 0 {1} {2}\">\n"
      "<title>{0}</title>\n{3}<rect class=\"page\" width=\"{1}\" height=\"{2}\"/>\n{4}{5}</svg>\n",
      escaped(label), right_ + margin, bottom_ + margin, kStyle, rules, shapes_);
}

}  // namespace attn::explain_detail
