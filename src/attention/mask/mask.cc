// src/attention/mask/mask.cc: implements the functions that make masks, and the operators that combine them.
#include <attn/ops.h>

#include "attention/mask/mask_expression.h"
#include "kernels/attention/problem.h"

#include <algorithm>

namespace attn {
namespace {

using Expression = Mask::Expression;
using Kind = Expression::Kind;

constexpr int most_depth = 2000;
constexpr std::int64_t most_parts = 100'000;

Mask make(Expression expression) {
  for (const Expression::Part& part : {expression.a, expression.b})
    if (part) expression.depth = std::max(expression.depth, part->depth + 1), expression.parts += part->parts;
  if (const Expression::Part &a = expression.a, &b = expression.b; a)
    expression.waiting = !b ? a->waiting : a->waiting == b->waiting ? a->waiting + 1 : std::max(a->waiting, b->waiting);
  if (expression.parts > most_parts)
    throw ValueError("Mask: the expression has more than " + std::to_string(most_parts) +
                     " parts; join many masks as one tensor");
  if (expression.depth > most_depth)
    throw ValueError("Mask: the expression is more than " + std::to_string(most_depth) +
                     " levels deep; join many masks in pairs, or as one tensor");
  return Mask(std::make_shared<const Expression>(std::move(expression)));
}

/// Returns x, which holds ids or lengths, as contiguous i64.
Tensor integers(const std::string& function, const Tensor& x) {
  if (!x.defined()) throw ValueError(function + ": the tensor is undefined");
  if (!is_integral(x.dtype()))
    throw DtypeError(function + ": the tensor is " + std::string(name_of(x.dtype())) + "; it must be i64 or i32");
  return x.detach().to(Dtype::i64).contiguous();
}

/// Returns x as bool; integers are compared with 0.
Tensor booleans(const std::string& function, const Tensor& x) {
  if (!x.defined()) throw ValueError(function + ": the tensor is undefined");
  if (is_floating(x.dtype()))
    throw DtypeError(function + ": the tensor is " + std::string(name_of(x.dtype())) +
                     "; it must be bool (a float mask is added: Bias::dense)");
  if (x.dim() > 4)
    throw ShapeError(function + ": the tensor has shape " + to_string(x.sizes()) +
                     "; at most [B, H, Tq, Tk] is possible");
  return x.detach().to(Dtype::boolean);
}

/// Checks that x is bool: integers are rejected, because a 1 that means "takes part" would be masked.
Tensor hiding(const std::string& function, const char* meaning, const Tensor& x) {
  if (x.defined() && is_integral(x.dtype()))
    throw DtypeError(function + ": the tensor is " + std::string(name_of(x.dtype())) +
                     "; it must be bool, True = " + meaning +
                     "; where 1 is a token write Mask::attend(x), with [B, Tk] as [B, 1, 1, Tk], or key_lengths");
  return booleans(function, x);
}

/// Returns the lists of blocks ascending, each block once, then no_block; `last` becomes the greatest block.
Tensor sorted_lists(const Tensor& indices, std::int64_t& last) {
  Tensor lists = empty(indices.sizes(), Dtype::i64);
  const std::int64_t width = indices.size(3), *from = indices.data<std::int64_t>();
  std::int64_t* to = lists.data<std::int64_t>();
  for (std::int64_t list = 0; width > 0 && list < indices.numel() / width; ++list, to += width) {
    std::int64_t* end = to;
    for (std::int64_t n = 0; n < width; ++n, ++from) {
      if (*from < -1)
        throw ValueError("Mask::blocks: indices hold " + std::to_string(*from) +
                         "; each must be at least 0, or -1 for none");
      if (*from >= 0) *end++ = *from;
    }
    if (!std::is_sorted(to, end)) std::sort(to, end);
    end = std::unique(to, end);
    if (end != to) last = std::max(last, end[-1]);
    std::fill(end, to + width, kernels::BlockLists::no_block);
  }
  return lists;
}

Mask of_tensor(const char* name, const Tensor& booleans, bool sees) {
  return make({.kind = Kind::dense, .first = booleans, .sees = sees, .name = name});
}

}  // namespace

void Expression::let_go() noexcept {
  Part list;  // a list of nodes to free, linked by their own `next`
  const auto take = [&list](Part& part) {
    if (part.use_count() != 1) return part.reset();
    // `part` is the last handle of its node. Copying and dropping a handle writes the reference count, which makes the
    // writes visible that other threads made before they dropped their handles.
    Part(part).reset();
    part->next = std::move(list);
    list = std::move(part);
  };
  take(a), take(b);
  while (list != nullptr) {
    const Part part = std::move(list);
    list = std::move(part->next);
    take(part->a), take(part->b);
  }
}

Mask Mask::causal(Align align) { return make({.kind = Kind::causal, .align = align}); }

Mask Mask::window(std::int64_t left, std::int64_t right, Align align) {
  if (left < -1 || right < -1)
    throw ValueError("Mask::window: left is " + std::to_string(left) + ", right is " + std::to_string(right) +
                     "; each must be at least 0, or -1 for no limit");
  return make({.kind = Kind::window, .align = align, .left = left, .right = right});
}

Mask Mask::prefix(std::int64_t n) {
  if (n < 0) throw ValueError("Mask::prefix: n is " + std::to_string(n) + "; it must be at least 0");
  return make({.kind = Kind::prefix, .n = n});
}

Mask Mask::prefix(const Tensor& n) {
  const Tensor counts = integers("Mask::prefix", n);
  for (const std::int64_t count : counts.to_int_vector())
    if (count < 0) throw ValueError("Mask::prefix: n holds " + std::to_string(count) + "; it must be at least 0");
  return make({.kind = Kind::prefix, .first = counts});
}

Mask Mask::documents(const Tensor& ids) { return documents(ids, ids); }

Mask Mask::documents(const Tensor& query_ids, const Tensor& key_ids) {
  for (const Tensor& ids : {query_ids, key_ids})
    if (ids.defined() && ids.dim() != 1 && ids.dim() != 2)
      throw ShapeError("Mask::documents: ids have shape " + attn::to_string(ids.sizes()) +
                       "; they must be [T] or [B, T]");
  return make({.kind = Kind::documents,
               .first = integers("Mask::documents", query_ids),
               .second = integers("Mask::documents", key_ids)});
}

Mask Mask::blocks(const Tensor& indices, std::int64_t block) { return blocks(indices, block, block); }

Mask Mask::blocks(const Tensor& indices, std::int64_t block_rows, std::int64_t block_keys) {
  constexpr std::int64_t most = std::int64_t{1} << 40;  // so that every key has an index of 64 bits
  if (block_rows < 1 || block_keys < 1 || block_rows > most || block_keys > most)
    throw ValueError("Mask::blocks: blocks are of " + std::to_string(block_rows) + " rows and " +
                     std::to_string(block_keys) + " keys; each must be from 1 to 2^40");
  const Tensor given = integers("Mask::blocks", indices);
  if (given.dim() != 4)
    throw ShapeError("Mask::blocks: indices have shape " + attn::to_string(given.sizes()) +
                     "; they must be [B, H, Tq / block, n]");
  std::int64_t last = -1;
  const Tensor lists = sorted_lists(given, last);
  return make({.kind = Kind::blocks, .n = last, .first = lists, .block_rows = block_rows, .block_keys = block_keys});
}

Mask Mask::attend(const Tensor& allowed) { return of_tensor("attend", booleans("Mask::attend", allowed), true); }
Mask Mask::block(const Tensor& blocked) { return of_tensor("block", hiding("Mask::block", "masked", blocked), false); }

Mask Mask::key_padding(const Tensor& padding) {
  const Tensor mask = hiding("Mask::key_padding", "padding", padding);
  if (mask.dim() != 2)
    throw ShapeError("Mask::key_padding: padding has shape " + attn::to_string(mask.sizes()) + "; it must be [B, Tk]");
  return of_tensor("key_padding", mask.unsqueeze(1).unsqueeze(1), false);
}

Mask Mask::all() { return Mask(); }
Mask Mask::none() { return make({.kind = Kind::none}); }

Mask operator&(const Mask& a, const Mask& b) {
  if (a.is_all()) return b;
  if (b.is_all()) return a;
  return make({.kind = Kind::both, .a = a.expression(), .b = b.expression()});
}

Mask operator|(const Mask& a, const Mask& b) {
  if (a.is_all() || b.is_all()) return Mask::all();
  return make({.kind = Kind::either, .a = a.expression(), .b = b.expression()});
}

Mask operator~(const Mask& a) {
  if (a.is_all()) return Mask::none();
  if (a.expression()->kind == Kind::none) return Mask::all();
  return make({.kind = Kind::negation, .a = a.expression()});
}

}  // namespace attn
