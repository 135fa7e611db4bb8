// src/attention/mask/mask_expression.h: the tree behind a Mask.
#pragma once
#include <attn/mask.h>

namespace attn {

struct Mask::Expression {
  enum class Kind { causal, window, prefix, documents, dense, none, both, either, negation };
  using Part = std::shared_ptr<const Expression>;

  Kind kind = Kind::none;
  Align align = Align::unset;          // causal, window
  std::int64_t left = -1, right = -1;  // window
  std::int64_t n = 0;                  // prefix without a tensor
  Tensor first = {}, second = {};      // prefix: n; documents: ids of rows, of keys; dense: bool
  bool sees = true;                    // dense: the element that means "sees"
  const char* name = "";               // dense: attend, block, key_padding
  mutable Part a = {}, b = {};         // both, either: a, b; negation: a
  mutable Part next = {};              // of those that are let go
  int depth = 1;                       // levels of the tree: bounded
  // values that wait while it is evaluated, the part that needs more of them first
  int waiting = 1;
  // of the tree, shared ones each time: bounded, because it is passed over and written out
  std::int64_t parts = 1;

  ~Expression() { let_go(); }

 private:
  void let_go() noexcept;  // without recursion, whatever the depth, and without memory
};

}  // namespace attn
