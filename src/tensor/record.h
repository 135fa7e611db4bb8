// src/tensor/record.h: how an operation tells the tape where its result came from, and how a gradient goes back.
#pragma once
#include "tensor/element.h"
#include "tensor/node.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace attn {

/// Whether an operation on x is to be recorded, no_grad aside.
inline bool wants_grad(const Tensor& x) { return x.defined() && current(x).requires_grad; }
inline bool wants_grad(std::span<const Tensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& x) { return wants_grad(x); });
}

/// How the gradient of `input` follows from that of the result, `dy`: vjp(dy, saved...). "With respect to".
/// The saved tensors are kept only when the input wants a gradient; the result itself may be among them.
template <typename F, typename... S>
struct Wrt {
  const Tensor& input;
  F vjp;
  std::array<const Tensor*, sizeof...(S)> saved;
};
template <typename F, typename... S>
Wrt<F, S...> wrt(const Tensor& input, F vjp, const S&... saved) {
  return {input, std::move(vjp), {&saved...}};
}

/// One input of a record: it, and what its gradient needs.
struct RecordedInput {
  const Tensor* x;
  std::span<const Tensor* const> saved;
};
/// x with its history, half floats as f32: where a vjp has more than one rounding.
inline Tensor widen(const Tensor& x) { return x.to(compute_dtype(x.dtype())); }

/// A history that a tensor is about to have, with all memory it takes: nothing fails any more where it begins.
struct History {
  std::shared_ptr<Node> node;     // none: nothing is recorded
  std::shared_ptr<Node> of_view;  // where the result is a view, and `node` is its base's

  /// From now on it is the history of `result`.
  void begin(const Tensor& result) const noexcept;
  /// The same for what was changed in place: its version goes up, recorded or not.
  const Tensor& changed(const Tensor& x) const noexcept;
};

/// What the two below do when some input wants a gradient, unless no_grad holds. A first input that is the result is
/// changed in place; where it is a view, it is its base that has a new history.
History history_wanted(const char* name, const Tensor& result, std::initializer_list<RecordedInput> inputs, Vjp vjp);
/// The same, and it begins at once.
void record_wanted(const char* name, const Tensor& result, std::initializer_list<RecordedInput> inputs, Vjp vjp);

/// The gradients of all inputs.
template <typename... W>
auto vjp_of(const W&... inputs) {
  return [vjps = std::tuple(inputs.vjp...)](const Backward& at) {
    Gradients gradients(sizeof...(W));
    int saved = 0;
    std::size_t i = 0;
    const auto run = [&]<typename F, typename... S>(const F& vjp, const Wrt<F, S...>*) {
      if (at.needs(static_cast<int>(i)))
        gradients[i] = [&]<std::size_t... I>(std::index_sequence<I...>) {
          return vjp(at.grad(), at.saved(saved + static_cast<int>(I))...);
        }(std::index_sequence_for<S...>{});
      saved += static_cast<int>(sizeof...(S));
      ++i;
    };
    std::apply([&](const auto&... vjp) { (run(vjp, static_cast<const W*>(nullptr)), ...); }, vjps);
    return gradients;
  };
}

/// The history of a `result` of `name`. For changes in place, where it is asked for before the change: memory that runs
/// out leaves all as it was.
template <typename... W>
History history_of(const char* name, const Tensor& result, const W&... inputs) {
  if (!(wants_grad(inputs.input) || ...)) return {};
  return history_wanted(name, result, {{&inputs.input, inputs.saved}...}, vjp_of(inputs...));
}

/// Notes that `result` was made by the operation `name`, and returns it:
///
///   return record("MulBackward0", y, wrt(a, [](auto& dy, auto& b) { return dy * b; }, b), wrt(b, [](auto& dy, auto& a)
///   { return dy * a; }, a));
///  A look at each input is all it costs when none wants a gradient. A vjp is written in operations of the library, so
/// that it has a gradient itself. It may return a gradient of any shape that the input was broadcast to and of any
/// floating dtype: the tape sums and converts. A vjp of more than one operation computes half floats widened; the tape
/// rounds once.
template <typename... W>
Tensor record(const char* name, Tensor result, const W&... inputs) {
  if ((wants_grad(inputs.input) || ...))
    record_wanted(name, result, {{&inputs.input, inputs.saved}...}, vjp_of(inputs...));
  return result;
}
/// `view` shows memory of x: from now on both have one history.
void mark_view(const Tensor& view, const Tensor& x);
/// The same for a result that is a view of its one input.
template <typename F>
Tensor record_view(const char* name, Tensor result, const Tensor& input, F vjp) {
  mark_view(result, input);
  return record(name, result, wrt(input, std::move(vjp)));
}

/// The general form, for several results or gradients that come together; ask wants_grad first, filling this in costs
/// more. `vjp` sees the saved tensors as at.saved(i), in this order; they are freed with the node, what it captures is
/// not checked. Without a vjp the results say that they require a gradient, and a backward pass says that the operation
/// has none.
struct Operation {
  const char* name;
  std::vector<Tensor> inputs, saved;
};
void record(const Operation& operation, const std::vector<Tensor>& results, Vjp vjp);

// --- a view and its base have one history: the base's, seen through the view (view_history.cc) ---------------------
/// The gradient of a change of `view` in place, as one of its base: `change` gives those of the view's old values and
/// of the other inputs; what the view does not show keeps its gradient.
Vjp change_of_base(const Tensor& view, Vjp change);

/// What makes `view` of its base, whose history is result `output` of `base_node` by then.
std::shared_ptr<Node> view_node(const TensorImpl& view, const std::shared_ptr<Node>& base_node, int output);
/// `node`, which view_node made for the base's node of that sequence, is the history of `view` from now on.
void set_view_history(TensorImpl& view, const std::shared_ptr<Node>& node, std::uint64_t sequence) noexcept;

}  // namespace attn
