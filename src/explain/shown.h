// src/explain/shown.h: says which steps of an explanation are drawn.
#pragma once
#include <attn/explain.h>

namespace attn::explain_detail {

/// Throws a ValueError that lists the steps for a name in `only` that is none of them.
void check_only(const Explanation& explanation);
bool shows(const Explanation& explanation, const ExplainStep& step);

}  // namespace attn::explain_detail
