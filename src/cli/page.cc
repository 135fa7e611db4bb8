// src/cli/page.cc: fills the page in. The page is a part of this file's object; CMake defines ATTN_PAGE as its path.
#include "cli/page.h"

#include <attn/error.h>
#include <attn/text.h>

#include "explain/json_values.h"

#include "runtime/format.h"

#include <string_view>

asm(".pushsection .rodata\n"
    ".global attn_page_begin, attn_page_end\n"
    ".hidden attn_page_begin, attn_page_end\n"
    "attn_page_begin: .incbin \"" ATTN_PAGE
    "\"\n"
    "attn_page_end:\n"
    ".popsection\n");
extern "C" __attribute__((visibility("hidden"))) const char attn_page_begin[], attn_page_end[];

namespace attn::cli {
namespace {

using explain_detail::json_list;
using explain_detail::json_string;

/// Returns the words of each text that has no spaces between them, as {"text": ["word", ...]}.
std::string cuts(const std::vector<std::string>& texts,
                 const std::function<std::vector<std::string>(const std::string&)>& cut_words) {
  std::string result;
  for (const std::string& text : texts)
    if (const auto words = cut_words(text); words != text::split(text, text::Tokens::words))
      result += (result.empty() ? "" : ", ") + json_string(text) + ": " + json_list(words);
  return "{" + result + "}";
}

}  // namespace

std::string page_of(const Explanation& explanation,
                    const std::function<std::vector<std::string>(const std::string&)>& cut_words) {
  std::vector<std::string> texts = explanation.texts;
  std::string start = runtime::format("{{\"text\": {}, \"to\": {}, \"options\": {}",
                                      explanation.batch ? json_list(texts) : json_string(texts.at(0)),
                                      explanation.to ? json_string(*explanation.to) : "null", explanation.options);
  if (explanation.to) texts.push_back(*explanation.to);
  if (cut_words) start += ", \"cut\": " + cuts(texts, cut_words);
  start += "}";

  const std::string_view page(attn_page_begin, static_cast<std::size_t>(attn_page_end - attn_page_begin));
  constexpr std::string_view mark = "id=\"attn-start\">";
  const std::size_t found = page.find(mark), begin = found + mark.size();
  if (found == std::string_view::npos) throw IoError("explain: the page of this command has no element attn-start");
  std::string result(page.substr(0, begin));
  for (const char c : start) {
    if (c == '<') result += "\\u003c";  // a text with </script> does not end the element
    else result += c;
  }
  return result + std::string(page.substr(page.find("</script>", begin)));
}

}  // namespace attn::cli
