// include/attn/autograd.h: runs the backward pass, switches gradient recording off and on, and checks gradients by
// finite differences.
#pragma once
#include <attn/tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace attn {

// Operations are recorded if one of their tensors has `requires_grad`. A backward pass visits the recorded operations
// from the last to the first. The gradient of an operation is made of operations of this library, so with
// `create_graph` gradients have gradients themselves; the few that do not throw an error that says so.
//  Thread safety: the caller must order the threads that use one graph. Forward passes in several threads may share
// leaves (parameters). The caller must also order backward passes that share nodes or accumulate into the same leaves.
// NoGrad and EnableGrad affect only their own thread.

struct BackwardOptions {
  /// Keep the saved tensors of the operations for another backward pass. Default: the value of create_graph.
  std::optional<bool> retain_graph = {};
  /// Record the gradients' own history. A leaf whose `grad()` has a history keeps itself alive: prefer `grad` below.
  bool create_graph = false;
  /// Only these tensors receive gradients, leaves or not; empty: all leaves.
  std::vector<Tensor> inputs = {};
};

/// Adds to `grad()` of every leaf on which `output` depends (of `options.inputs` only, if given): the sum over outputs
/// of (d output / d leaf) * grad.
///
/// Shapes   grad has the shape of output; undefined means 1, if output has one element.
/// Errors   ValueError when output does not require a gradient, and when a saved tensor was changed in place after it
///          was saved (the text names operation, shape and versions) or was freed by an earlier pass. After any of
///          these errors no leaf has changed.
/// Bits     gradients of one tensor are added in the order of the operations, the last one first; the thread count
///          changes no bit.
ATTN_API void backward(const Tensor& output, const Tensor& grad = {}, const BackwardOptions& options = {});
ATTN_API void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads,
                       const BackwardOptions& options = {});

struct GradOptions {
  /// The incoming gradients (`grad` of backward), one per output; empty: 1 each.
  std::vector<Tensor> grad_outputs = {};
  std::optional<bool> retain_graph = {};
  bool create_graph = false;
  /// If true, an input on which no output depends gives an undefined tensor; if false, it is a ValueError.
  bool allow_unused = false;
};

/// Returns the gradients of `inputs`, leaves or not, and changes no `grad()`. Runs only the operations between inputs
/// and outputs.
ATTN_API std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                  const GradOptions& options = {});
ATTN_API Tensor grad(const Tensor& output, const Tensor& input, const GradOptions& options = {});

/// Returns whether operations of this thread are recorded.
ATTN_API bool grad_enabled();

/// While a NoGrad exists, operations of its thread are not recorded, and leaves may be changed in place. A view made
/// meanwhile gets no gradient history, like a view of `detach()`.
class ATTN_API NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// Turns recording on again inside a NoGrad.
class ATTN_API EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool before_;
};

struct GradientCheckOptions {
  // The defaults are those of torch.autograd.gradcheck.
  double step = 1e-6;  ///< the step of the central differences
  /// A gradient passes if |analytic - numeric| <= atol + rtol |numeric| for every element.
  double atol = 1e-5, rtol = 1e-3;
  /// Also check second derivatives.
  bool second = false;
};

/// Compares the gradients of `function` with central differences, (f(x + step) - f(x - step)) / (2 step), element by
/// element.
///  The function must return one tensor, of any shape. Its elements are weighted by fixed, different numbers so that
/// errors do not cancel. Inputs that do not require a gradient are only passed on; the others must be f64, because f32
/// differences are too inexact. Returns an empty text if the gradients agree, else the largest difference: input,
/// index, both values.
/// Errors   DtypeError for an input that requires a gradient and is not f64; ValueError when no input requires one.
ATTN_API std::string check_gradients(const std::function<Tensor(const std::vector<Tensor>&)>& function,
                                     const std::vector<Tensor>& inputs, const GradientCheckOptions& options = {});

}  // namespace attn
