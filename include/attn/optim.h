// include/attn/optim.h: implements optimisers with torch's names and numbers, learning-rate schedules, and gradient
// clipping.
#pragma once
#include <attn/tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attn::optim {

/// Names and tensors, as in nn::StateDict.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

/// Parameters that share options. Options (such as the learning rate) may change between steps; the list of parameters
/// may not: step() then throws ValueError.
template <typename Options>
struct Group {
  std::vector<Tensor> parameters;
  Options options = {};
};

/// The base of all optimisers: holds the parameters, and for each parameter the state that its earlier steps left.
///  step() changes parameters in place by their `grad()`; a parameter without a gradient is skipped. For bf16 and f16
/// parameters the optimiser keeps an f32 copy ("master"), so that steps below their precision add up; the copy is made
/// again if the parameter was changed since the last step. A step that throws (out of memory included) has changed
/// nothing. An empty list of parameters is a ValueError, as in torch. Thread safety: one thread at a time, and no other
/// thread may read the parameters meanwhile.
class ATTN_API Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  virtual void step() = 0;
  /// Sets the gradients of all parameters to undefined.
  void zero_grad() const;

  /// Returns copies of the state, named "state.N.step", "state.N.exp_avg", ..., where N counts the parameters of
  /// all groups from 0. Options are not included.
  StateDict state_dict() const;
  /// Loads a state of state_dict(), before or after the parameters' values. A parameter's state is complete or absent.
  /// ValueError, one line, names what is missing, unexpected or of another shape; then nothing was changed.
  void load_state_dict(const StateDict& dict);

 protected:
  /// The state of one parameter.
  struct State {
    std::int64_t step = 0;
    std::vector<Tensor> buffers;       // one per name; undefined before the first step
    Tensor master;                     // the f32 copy of a half-float parameter
    std::uint64_t master_version = 0;  // the version of the parameter for which `master` was made
  };
  /// One parameter in one step: the values to change, f32 or f64, and their gradient, contiguous. `half` is the
  /// half-float parameter if the optimiser's step writes it directly; the gradient then has its dtype. Otherwise it is
  /// undefined.
  struct Step {
    std::size_t parameter;
    State next;  // the state after the step
    Tensor values, gradient, half = {};
  };
  /// The first `always` buffers belong to every state; the others depend on the options.
  Optimizer(std::vector<Tensor> parameters, std::vector<std::string> buffer_names, std::size_t always = 0);
  /// Prepares a step of each parameter that has a gradient and allocates its memory. `halves`: this optimiser writes
  /// half-float parameters itself.
  std::vector<Step> prepare_steps(bool halves) const;
  /// Copies the parameter's values and gradient to where the step reads them, unless it uses them in place. All steps
  /// share temporary memory, so one step must end before the next begins.
  void begin_step(const Step& step) const;
  /// Writes the values into the parameter, if the step has not done so, and stores its state.
  void end_step(Step& step);

  std::vector<Tensor> parameters_;
  std::vector<std::string> buffer_names_;
  std::size_t always_;
  std::vector<State> states_;
};

/// theta -= lr weight_decay theta;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// theta -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps).
struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;   ///< use the largest v so far in the square root
  bool maximize = false;  ///< ascend instead of descend
  bool decoupled = true;  ///< false: torch's Adam, weight decay is added to the gradient
};

/// The AdamW optimiser. Source: Loshchilov and Hutter 2017 (1711.05101). Errors: ValueError for options out of range,
/// and for a parameter that is not a leaf or is given twice.
class ATTN_API AdamW final : public Optimizer {
 public:
  explicit AdamW(const std::vector<Tensor>& parameters, const AdamWOptions& options = {});
  explicit AdamW(std::vector<Group<AdamWOptions>> groups);
  void step() override;
  std::vector<Group<AdamWOptions>> groups;
};

/// g += weight_decay theta;  b = momentum b + (1 - dampening) g (the first b is g itself);  theta -= lr b.
/// With nesterov the last is theta -= lr (g + momentum b).
struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

class ATTN_API SGD final : public Optimizer {
 public:
  explicit SGD(const std::vector<Tensor>& parameters, const SGDOptions& options = {});
  explicit SGD(std::vector<Group<SGDOptions>> groups);
  void step() override;
  std::vector<Group<SGDOptions>> groups;
};

/// Computes the learning rate of a step, counted from 0. It rises linearly from peak / (warmup + 1) to `peak` at step
/// `warmup`, falls by a half cosine or linearly to `last` at step `steps`, and then stays at `last`. It is torch's
/// SequentialLR of LinearLR and CosineAnnealingLR (or LinearLR). If warmup equals steps, `last` follows after `peak`.
struct ATTN_API Schedule {
  enum class Decay { cosine, linear, none };
  double peak = 1e-3;
  double last = 0;
  std::int64_t warmup = 0;
  std::int64_t steps = 0;
  Decay decay = Decay::cosine;
  /// ValueError when step or warmup is negative, warmup exceeds the steps of a decay, or a rate is negative or
  /// infinite.
  double operator()(std::int64_t step) const;
};

struct ClipOptions {
  double norm_type = 2;  ///< inf: the largest magnitude
  /// ValueError for a norm that is not finite, instead of gradients that become NaN or 0
  bool error_if_nonfinite = false;
};
/// Multiplies all gradients by min(1, max_norm / (norm + 1e-6)). Returns the norm before that (the norm of the
/// gradients' norms). Returns 0 if there is no gradient.
ATTN_API double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                                const ClipOptions& options = {});

}  // namespace attn::optim
