// src/attention/mask/lower_mask.cc: lowers a mask's tree to a postfix program, and finds the node that splits the call
// into documents.
#include "runtime/format.h"

#include "attention/lower.h"
#include "attention/mask/mask_expression.h"

#include <algorithm>

namespace attn {
namespace {

using Expression = Mask::Expression;
using Kind = Expression::Kind;
using kernels::MaskNode;
using kernels::MaskOp;

bool is_join(const Expression& e) { return e.kind == Kind::both || e.kind == Kind::either; }

bool is_band(const MaskNode& node) { return node.op == MaskOp::causal || node.op == MaskOp::window; }

/// Joins `b` to `a` if both are causal masks or windows with the same alignment, and returns whether they were: kernels
/// find the active tiles of a single window without testing each row.
bool join_bands(MaskNode& a, const MaskNode& b) {
  if (!is_band(a) || !is_band(b) || a.bottom_right != b.bottom_right) return false;
  // a number below 0 means no limit
  const auto nearer = [](std::int64_t x, std::int64_t y) { return x < 0 ? y : y < 0 ? x : std::min(x, y); };
  const auto right = [](const MaskNode& node) { return node.op == MaskOp::causal ? 0 : node.right; };
  const auto left = [](const MaskNode& node) { return node.op == MaskOp::causal ? -1 : node.left; };
  a = {.op = MaskOp::window,
       .left = nearer(left(a), left(b)),
       .right = nearer(right(a), right(b)),
       .bottom_right = a.bottom_right};
  return true;
}

class Lowering {
 public:
  /// `cut`: the leaf whose index in `nodes` the caller needs, or null.
  Lowering(const ScoreShape& shape, const Lengths& lengths, const Expression* cut)
      : shape_(shape), lengths_(lengths), cut_(cut) {}

  std::vector<MaskNode> nodes;
  int top = -1;  // index of `cut`

  /// Emits postfix order; of two operands the one that needs more stack is emitted first. Uses a list instead of
  /// recursion, because a tree may be deep.
  void emit(const Expression& whole) {
    struct Open {
      const Expression* e;
      int parts = 0;           // operands emitted so far
      std::size_t begin[2]{};  // index in `nodes` at which each begins
    };
    std::vector<Open> open{{&whole}};
    while (!open.empty()) {
      Open& at = open.back();
      const Expression& e = *at.e;
      if (at.parts < (is_join(e) ? 2 : e.kind == Kind::negation ? 1 : 0)) {
        const bool swap = e.b != nullptr && e.a->waiting < e.b->waiting, second = at.parts == 1;
        at.begin[at.parts++] = nodes.size();
        open.push_back({swap != second ? e.b.get() : e.a.get()});
        continue;
      }
      if (e.kind == Kind::negation) {
        nodes.push_back({.op = MaskOp::op_not});
      } else if (!is_join(e)) {
        if (&e == cut_) top = static_cast<int>(nodes.size());
        nodes.push_back(leaf(e));
      } else if (const auto [first, second] = at.begin; e.kind == Kind::both && second == first + 1 &&
                                                        nodes.size() == second + 1 &&
                                                        join_bands(nodes[first], nodes[second])) {
        nodes.pop_back();
      } else {
        nodes.push_back({.op = e.kind == Kind::both ? MaskOp::op_and : MaskOp::op_or});
      }
      open.pop_back();
    }
  }

 private:
  MaskNode leaf(const Expression& e) const {
    switch (e.kind) {
      case Kind::causal:
        return {.op = MaskOp::causal, .bottom_right = is_bottom_right(e.align, "causal", shape_, lengths_)};
      case Kind::window:
        return {.op = MaskOp::window,
                .left = std::min(e.left, kernels::farthest_key),
                .right = std::min(e.right, kernels::farthest_key),
                .bottom_right = is_bottom_right(e.align, "window", shape_, lengths_, e.left, e.right)};
      case Kind::prefix: return prefix(e);
      case Kind::documents: return documents(e);
      case Kind::blocks: return blocks(e);
      case Kind::dense:
        return {.op = MaskOp::dense,
                .value = e.sees,
                .dense = broadcast_to_scores(shape_, runtime::format("the mask {}", e.name), e.first)};
      default: return {.op = MaskOp::constant, .value = false};
    }
  }

  MaskNode prefix(const Expression& e) const {
    if (!e.first.defined()) return {.op = MaskOp::prefix, .n = e.n};
    if (e.first.dim() != 1 || e.first.size(0) != shape_.items())
      throw ShapeError(runtime::format("{}: the mask prefix has n of shape {}; it must be [{}], one for each {}",
                                       shape_.function, to_string(e.first.sizes()), shape_.items(), shape_.item()));
    return {.op = MaskOp::prefix, .per_batch = e.first.data<std::int64_t>()};
  }

  MaskNode documents(const Expression& e) const {
    check_ids(e.first, shape_.q_rows, "rows");
    check_ids(e.second, shape_.k_rows, "keys");
    const auto stride = [](const Tensor& ids) { return ids.dim() == 2 && ids.size(0) != 1 ? ids.stride(0) : 0; };
    return {.op = MaskOp::documents,
            .query_ids = e.first.data<std::int64_t>(),
            .key_ids = e.second.data<std::int64_t>(),
            .query_ids_stride = stride(e.first),
            .key_ids_stride = stride(e.second)};
  }

  MaskNode blocks(const Expression& e) const {
    const Tensor& lists = e.first;
    const auto blocks_of = [](std::int64_t rows, std::int64_t block) { return rows / block + (rows % block != 0); };
    const std::int64_t rows = blocks_of(shape_.q_rows, e.block_rows), keys = blocks_of(shape_.k_rows, e.block_keys),
                       batch = lists.size(0), heads = lists.size(1);
    if ((batch != 1 && batch != shape_.batch) || (heads == 0 ? shape_.heads != 0 : shape_.heads % heads != 0) ||
        lists.size(2) != rows)
      throw ShapeError(runtime::format(
          "{}: the mask blocks has indices of shape {}; {} rows in blocks of {} need [1 or {}, H, {}, "
          "n], where H divides the {} query heads",
          shape_.function, to_string(lists.sizes()), shape_.q_rows, e.block_rows, shape_.batch, rows, shape_.heads));
    if (e.n >= keys)
      throw ValueError(runtime::format("{}: the mask blocks holds the index {}; {} keys are {} blocks of {}",
                                       shape_.function, e.n, shape_.k_rows, keys, e.block_keys));
    return {.op = MaskOp::blocks,
            .lists = {.blocks = lists.data<std::int64_t>(),
                      .batch_stride = batch == 1 ? 0 : lists.stride(0),
                      .head_stride = rows * lists.size(3),
                      .heads_together = heads == 0 ? 1 : shape_.heads / heads,
                      .width = lists.size(3),
                      .block_rows = e.block_rows,
                      .block_keys = e.block_keys}};
  }

  void check_ids(const Tensor& ids, std::int64_t length, const char* what) const {
    const bool fits = ids.size(-1) == length && (ids.dim() == 1 || ids.size(0) == 1 || ids.size(0) == shape_.batch);
    if (!fits)
      throw ShapeError(runtime::format("{}: the mask documents has ids of {} of shape {}; it must be [{}] or [{}, {}]",
                                       shape_.function, what, to_string(ids.sizes()), length, shape_.batch, length));
  }

  const ScoreShape& shape_;
  const Lengths& lengths_;
  const Expression* cut_;
};

/// Returns the first `documents` leaf that splits the whole expression, which is the case if only & is above it in the
/// tree. Null: none.
const Expression* top_documents(const Expression& whole) {
  std::vector<const Expression*> next{&whole};
  while (!next.empty()) {
    const Expression& e = *next.back();
    next.pop_back();
    if (e.kind == Kind::documents) return &e;
    if (e.kind == Kind::both) next.insert(next.end(), {e.b.get(), e.a.get()});
  }
  return nullptr;
}

}  // namespace

LoweredMask lower_mask(const Mask& mask, const ScoreShape& shape, const Lengths& lowered) {
  if (mask.is_all()) return {};
  Lowering lowering(shape, lowered, shape.packed ? nullptr : top_documents(*mask.expression()));
  lowering.emit(*mask.expression());
  LoweredMask result{.nodes = std::move(lowering.nodes), .documents = lowering.top, .inside = {}};
  if (result.documents >= 0) {
    result.inside = result.nodes;
    result.inside[static_cast<std::size_t>(result.documents)] = {.op = MaskOp::constant, .value = true};
  }
  return result;
}

void describe_mask(const LoweredMask& mask, kernels::AttentionProblem& problem) {
  problem.mask = {.nodes = mask.nodes.data(), .count = static_cast<int>(mask.nodes.size())};
}

}  // namespace attn
