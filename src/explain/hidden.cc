// src/explain/hidden.cc: finds the part of a mask that hides each pair; the parts are joined by &.
#include "explain/hidden.h"

#include "attention/mask/mask_expression.h"

#include <algorithm>

namespace attn::explain_detail {
namespace {

struct Part {
  Hidden reason;
  Tensor sees;  // bool [B, H, Tq, Tk]
};

Hidden reason_of(const Mask::Expression& expression) {
  switch (expression.kind) {
    case Mask::Expression::Kind::causal: return Hidden::causal;
    case Mask::Expression::Kind::window: return Hidden::window;
    default: return Hidden::mask;
  }
}

/// Calls visit(part) for the whole expression and, where visit returns true, for its parts. It uses a list instead of
/// recursion, because a tree may be deep.
template <typename F>
void walk(const Mask::Expression::Part& whole, F&& visit) {
  std::vector<Mask::Expression::Part> next{whole};
  while (!next.empty()) {
    const Mask::Expression::Part part = std::move(next.back());
    next.pop_back();
    if (part && visit(part)) next.insert(next.end(), {part->b, part->a});
  }
}

}  // namespace

std::vector<Hidden> hidden_pairs(const Mask& mask, const Dims& pairs, const Lengths& lengths) {
  std::vector<Part> parts;
  walk(mask.expression(), [&](const Mask::Expression::Part& part) {
    if (part->kind == Mask::Expression::Kind::both) return true;
    parts.push_back({reason_of(*part), Mask(part).dense(pairs[0], pairs[1], pairs[2], pairs[3], lengths)});
    return false;
  });
  const auto limit = [&](const Tensor& given, std::int64_t b, std::int64_t all) {
    return given.defined() ? given.data<std::int64_t>()[b] : all;
  };
  std::vector<Hidden> result(static_cast<std::size_t>(pairs.product()), Hidden::visible);
  std::size_t at = 0;
  for (std::int64_t b = 0; b < pairs[0]; ++b)
    for (std::int64_t rows_of_head = 0; rows_of_head < pairs[1] * pairs[2]; ++rows_of_head)
      for (std::int64_t key = 0; key < pairs[3]; ++key, ++at) {
        if (rows_of_head % pairs[2] >= limit(lengths.query_lengths, b, pairs[2]) ||
            key >= limit(lengths.key_lengths, b, pairs[3])) {
          result[at] = Hidden::padding;
          continue;
        }
        const auto hides =
            std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return !part.sees.data<bool>()[at]; });
        if (hides != parts.end()) result[at] = hides->reason;
      }
  if (std::all_of(result.begin(), result.end(), [](Hidden reason) { return reason == Hidden::visible; }))
    result.clear();
  return result;
}

bool holds_tensors(const Mask& mask) {
  bool found = false;
  walk(mask.expression(),
       [&](const Mask::Expression::Part& part) { return !(found |= part->first.defined() || part->second.defined()); });
  return found;
}

}  // namespace attn::explain_detail
