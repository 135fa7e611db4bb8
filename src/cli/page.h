// src/cli/page.h: the page of attn for a browser, which the command carries, filled in with texts and options.
#pragma once
#include <attn/explain.h>

#include <functional>
#include <string>
#include <vector>

namespace attn::cli {

/// Returns the page (web/attn.html) that begins with the texts and options of an explanation. `cut_words` (may be
/// empty) splits texts without spaces into words; the page then shows these, whatever dictionary the browser has.
std::string page_of(const Explanation& explanation,
                    const std::function<std::vector<std::string>(const std::string&)>& cut_words);

}  // namespace attn::cli
