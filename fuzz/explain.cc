// fuzz/explain.cc: runs explain on texts and options: every form must be clean text, and no line of the tables may be
// wider than `width` (than 40 if that is less).
#include "explain_options.h"

#include <algorithm>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  const ExplainOptions options = explain_options(in);
  const TextOptions form{.width = static_cast<int>(in.between(-1, 120))};
  const bool batch = in.coin();
  const std::string text = in.rest();
  if (text.size() > 200) return -1;
  answers([&] {
    const std::size_t half = text.size() / 2;
    const Explanation explanation =
        batch ? explain_batch({text.substr(0, half), text.substr(half)}, options) : explain(text, options);
    const std::string drawn = to_text(explanation, form);
    check_clean(drawn, /*lines=*/true);
    check_clean(to_json(explanation), /*lines=*/true);
    check_clean(to_svg(explanation), /*lines=*/true);
    for (std::size_t at = 0, end; at < drawn.size(); at = end + 1) {
      end = std::min(drawn.find('\n', at), drawn.size());
      const std::string line = drawn.substr(at, end - at);
      check(text::display_width(line) <= std::max(form.width, 40),
            "wider than " + std::to_string(form.width) + ": " + line);
    }
  });
  return 0;
}
