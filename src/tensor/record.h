// src/tensor/record.h: lets an operation record on the tape how its result was made and how a gradient flows back.
#pragma once
#include "tensor/element.h"
#include "tensor/node.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace attn {

/// Returns whether x requires a gradient; whether recording is on does not matter here.
inline bool wants_grad(const Tensor& x) { return x.defined() && current(x).requires_grad; }
inline bool wants_grad(std::span<const Tensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& x) { return wants_grad(x); });
}

/// One input of an operation, and how its gradient is computed from the gradient `dy` of the result: vjp(dy, saved...).
/// "wrt" stands for "with respect to". The saved tensors are kept only if the input wants a gradient. The result itself
/// may be one of them.
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

/// One input of an operation, and the tensors that its gradient needs.
struct RecordedInput {
  const Tensor* x;
  std::span<const Tensor* const> saved;
};
/// Returns x with its history, half floats converted to f32. A vjp of several operations uses it to round only once.
inline Tensor widen(const Tensor& x) { return x.to(compute_dtype(x.dtype())); }

/// A history that a tensor is about to get. All its memory is already allocated, so that `begin` cannot fail.
struct History {
  std::shared_ptr<Node> node;     // null: nothing is recorded
  std::shared_ptr<Node> of_view;  // set if the result is a view; `node` then is the node of its base

  /// Makes this the history of `result`.
  void begin(const Tensor& result) const noexcept;
  /// Makes this the history of x after a change in place, and raises the version of x whether or not a history is
  /// recorded.
  const Tensor& changed(const Tensor& x) const noexcept;
};

/// Implements `history_of` for the case that some input wants a gradient. While NoGrad is in force, or if the result is
/// not floating, it records nothing. If the first input is the result, the result is changed in place; if that is a
/// view, its base gets the new history.
History history_wanted(const char* name, const Tensor& result, std::initializer_list<RecordedInput> inputs, Vjp vjp);
/// Implements `record`: calls history_wanted and begins the history at once.
void record_wanted(const char* name, const Tensor& result, std::initializer_list<RecordedInput> inputs, Vjp vjp);

/// Joins the vjps of the inputs to one function that computes the gradients of all inputs.
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

/// Returns the history for a `result` of operation `name`. An in-place operation calls it before it changes anything,
/// so that nothing has changed if memory runs out.
template <typename... W>
History history_of(const char* name, const Tensor& result, const W&... inputs) {
  if (!(wants_grad(inputs.input) || ...)) return {};
  return history_wanted(name, result, {{&inputs.input, inputs.saved}...}, vjp_of(inputs...));
}

/// Records that operation `name` made `result`, and returns `result`:
///
///   return record("MulBackward0", y, wrt(a, [](auto& dy, auto& b) { return dy * b; }, b),
///                                    wrt(b, [](auto& dy, auto& a) { return dy * a; }, a));
///
/// If no input wants a gradient, the call costs only a test of each input. A vjp is written in operations of the
/// library, so that it has a gradient itself. It may return a gradient of any shape to which the input was broadcast,
/// and of any floating dtype: the tape sums and converts it. A vjp of more than one operation computes half floats in
/// f32; the tape rounds once.
template <typename... W>
Tensor record(const char* name, Tensor result, const W&... inputs) {
  if ((wants_grad(inputs.input) || ...))
    record_wanted(name, result, {{&inputs.input, inputs.saved}...}, vjp_of(inputs...));
  return result;
}
/// Marks `view` as a view of x's memory: both then share one history. While recording is off, the view gets none.
void mark_view(const Tensor& view, const Tensor& x);
/// Records a result that is a view of its only input.
template <typename F>
Tensor record_view(const char* name, Tensor result, const Tensor& input, F vjp) {
  mark_view(result, input);
  return record(name, result, wrt(input, std::move(vjp)));
}

/// The general form of `record`, for several results, or for gradients that are computed together. It costs more, so
/// check wants_grad first. `vjp` reads the saved tensors as at.saved(i), in this order. They are freed after a pass
/// without retain_graph, or with the node; tensors that `vjp` captures are not checked for changes. If `vjp` is empty,
/// the results require a gradient, and a backward pass throws an error that the operation has none.
struct Operation {
  const char* name;
  std::vector<Tensor> inputs, saved;
};
void record(const Operation& operation, const std::vector<Tensor>& results, Vjp vjp);

// --- a view and its base have one history: the base's, seen through the view (view_history.cc) ---------------------
/// Returns the vjp for the base of `view` after a change of `view` in place. `change` gives the gradients of the view's
/// old values and of the other inputs. Elements of the base that the view does not show keep their gradient.
Vjp change_of_base(const Tensor& view, Vjp change);

/// Returns a node that makes `view` from its base, whose history is result `output` of `base_node`.
std::shared_ptr<Node> view_node(const TensorImpl& view, const std::shared_ptr<Node>& base_node, int output);
/// Makes `node` the history of `view`. `node` came from view_node, for the base's node with this sequence number.
void set_view_history(TensorImpl& view, const std::shared_ptr<Node>& node, std::uint64_t sequence) noexcept;

}  // namespace attn
