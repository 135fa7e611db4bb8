// src/attention/mask/mask_expression.h: defines the expression tree of a Mask.
#pragma once
#include <attn/mask.h>

namespace attn {

struct Mask::Expression {
  enum class Kind { causal, window, prefix, documents, blocks, dense, none, both, either, negation };
  using Part = std::shared_ptr<const Expression>;

  Kind kind = Kind::none;
  Align align = Align::unset;          // causal, window
  std::int64_t left = -1, right = -1;  // window
  std::int64_t n = 0;                  // prefix without a tensor; blocks: the last block of keys, or -1
  // prefix: n; documents: ids of rows, ids of keys; blocks: sorted lists, in `first`; dense: bool, in `first`
  Tensor first = {}, second = {};
  std::int64_t block_rows = 1, block_keys = 1;  // blocks: rows and keys of a block
  bool sees = true;                             // dense: the element that means "sees"
  const char* name = "";                        // dense: attend, block or key_padding
  mutable Part a = {}, b = {};                  // operands of & and | (a and b) and of ~ (a)
  mutable Part next = {};                       // next node in the list of nodes to free
  int depth = 1;                                // height of the tree; bounded
  // How many stack entries the evaluation needs if of two operands the one that needs more is evaluated first.
  int waiting = 1;
  // The number of nodes in the tree, shared nodes counted each time; bounded, because the tree is traversed and
  // printed.
  std::int64_t parts = 1;

  ~Expression() { let_go(); }

 private:
  void let_go() noexcept;  // frees the tree without recursion and without allocating, for any depth
};

}  // namespace attn
