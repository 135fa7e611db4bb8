// src/model/part_tree.h: the pairwise tree that adds the gradients of a batch's parts, and which windows each part has.
#pragma once
#include <cstdint>
#include <vector>

namespace attn {

/// Parts or windows from `begin` to before `end`.
struct Span {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Span&, const Span&) = default;
};

/// Returns share `index` of `count` things that are dealt in `shares` adjacent shares, as even as possible.
inline Span share_of(std::int64_t count, std::int64_t index, std::int64_t shares) {
  return {count * index / shares, count * (index + 1) / shares};
}

/// Returns where the left side of a node ends: it holds the largest power of two below the number of parts
/// (docs/numerics.md section 5.2).
inline std::int64_t middle_of(const Span& node) {
  std::int64_t left = 1;
  while (2 * left < node.size()) left *= 2;
  return node.begin + left;
}

/// Returns the largest nodes below `node` that lie inside `range`, from left to right.
inline std::vector<Span> nodes_inside(const Span& node, const Span& range) {
  if (node.end <= range.begin || range.end <= node.begin) return {};
  if (range.begin <= node.begin && node.end <= range.end) return {node};
  const std::int64_t middle = middle_of(node);
  std::vector<Span> nodes = nodes_inside({node.begin, middle}, range);
  for (const Span& right : nodes_inside({middle, node.end}, range)) nodes.push_back(right);
  return nodes;
}

}  // namespace attn
