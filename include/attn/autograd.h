// include/attn/autograd.h: gradients: the backward pass, what switches the tape off, and a check by finite differences.
#pragma once
#include <attn/tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace attn {

// Operations on tensors of which one `requires_grad` are recorded; a backward pass goes through them from the last made
// to the first. Each operation's gradient is made of operations of the library, so with `create_graph` gradients have
// gradients; the few that have none say so when a pass comes to them.
//  Thread safety: the graph of a computation belongs to the threads the caller orders. Forward passes in several
// threads may share leaves (parameters). Backward passes that share nodes, or accumulate into the same leaves, need the
// caller's own order. NoGrad and EnableGrad count for their thread.

struct BackwardOptions {
  /// Keep what the operations saved, for another pass. Default: as create_graph.
  std::optional<bool> retain_graph = {};
  /// The gradients get a history of their own. A leaf whose `grad()` has one holds itself alive: prefer `grad` below.
  bool create_graph = false;
  /// Only these leaves receive gradients; empty: all. A tensor that is no leaf receives one too.
  std::vector<Tensor> inputs = {};
};

/// Adds to `grad()` of every leaf that `output` comes from: sum over outputs of (d output / d leaf) * grad.
///
/// Shapes   grad as output; it may be undefined (1) when output has one element.
/// Errors   ValueError when output does not require a gradient, when a saved tensor was changed in place since
///          (operation, shape and versions are named) or was freed by an earlier pass. No leaf has changed then.
/// Bits     gradients that meet are added in the order of the operations, the last made first: no thread count changes
///          them.
ATTN_API void backward(const Tensor& output, const Tensor& grad = {}, const BackwardOptions& options = {});
ATTN_API void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads,
                       const BackwardOptions& options = {});

struct GradOptions {
  /// As `grad` of backward, one an output; empty: 1 each.
  std::vector<Tensor> grad_outputs = {};
  std::optional<bool> retain_graph = {};
  bool create_graph = false;
  /// An input that no output comes from gives an undefined tensor; else it is a ValueError.
  bool allow_unused = false;
};

/// The gradients of `inputs`, leaves or not, without touching any `grad()`; only the operations between are run.
ATTN_API std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                  const GradOptions& options = {});
ATTN_API Tensor grad(const Tensor& output, const Tensor& input, const GradOptions& options = {});

/// Whether operations of this thread are recorded.
ATTN_API bool grad_enabled();

/// While it lives, operations of this thread are not recorded, and leaves may be changed in place. A view made
/// meanwhile has no part in the history of what it shows, as one of its detach().
class ATTN_API NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// The opposite, inside a NoGrad.
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
  double step = 1e-6;  ///< of the central differences
  /// |analytic - numeric| <= atol + rtol |numeric|, for every element.
  double atol = 1e-5, rtol = 1e-3;
  /// Also the gradients of the gradients.
  bool second = false;
};

/// Compares the gradients of `function` with central differences, (f(x + step) - f(x - step)) / (2 step), element by
/// element.
///  The function gives one tensor of any shape; its elements are weighted by fixed numbers that differ, so that no two
/// errors cancel. Inputs that do not require a gradient are only passed on. The others must be f64: differences in f32
/// say nothing. Returns an empty text, or what differs most: input, index, both values.
/// Errors   DtypeError for an input that requires a gradient and is not f64; ValueError when none requires one.
ATTN_API std::string check_gradients(const std::function<Tensor(const std::vector<Tensor>&)>& function,
                                     const std::vector<Tensor>& inputs, const GradientCheckOptions& options = {});

}  // namespace attn
