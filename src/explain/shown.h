// src/explain/shown.h: says which steps of an explanation are drawn, and of what kind they are.
#pragma once
#include <attn/explain.h>

namespace attn::explain_detail {

/// Throws a ValueError that lists the steps for a name in `only` that is none of them.
void check_only(const Explanation& explanation);
/// Return whether a step has a number for each pair of query and key, and whether it is q, k or v.
inline bool is_pairs(const ExplainStep& step) {
  return step.kind == ExplainStep::Kind::pairs || step.kind == ExplainStep::Kind::weights;
}
/// Returns whether a column holds numbers of rows or keys: all of a step of integers; "n" of a worked row.
inline bool is_whole(const ExplainStep& step, std::int64_t column) {
  if (step.kind != ExplainStep::Kind::keys) return is_integral(step.values.dtype());
  return step.columns[0][static_cast<std::size_t>(column)].starts_with('n');
}
inline bool is_vectors_of_qkv(const ExplainStep& step) {
  return step.name == "q" || step.name == "k" || step.name == "v";
}
bool shows(const Explanation& explanation, const ExplainStep& step);
/// Returns whether any of the steps with these indices has the model parameter of that name (W_q) among its inputs.
bool uses(const Explanation& explanation, const std::vector<std::size_t>& steps, const std::string& parameter);

}  // namespace attn::explain_detail
