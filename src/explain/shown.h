// src/explain/shown.h: says which steps of an explanation are drawn.
#pragma once
#include <attn/explain.h>

namespace attn::explain_detail {

/// Throws a ValueError that lists the steps for a name in `only` that is none of them.
void check_only(const Explanation& explanation);
bool shows(const Explanation& explanation, const ExplainStep& step);
/// Returns whether one of these steps is made with that parameter.
bool uses(const Explanation& explanation, const std::vector<std::size_t>& steps, const std::string& parameter);

}  // namespace attn::explain_detail
