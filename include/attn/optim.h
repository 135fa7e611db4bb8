// include/attn/optim.h: optimisers with torch's names and numbers, learning rates over time, gradients kept in bounds.
#pragma once
#include <attn/tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attn::optim {

/// Names and tensors, as nn::StateDict.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

/// Parameters that share options; options may be changed between steps (the learning rate above all), not
/// which parameters there are: ValueError by step().
template <typename Options>
struct Group {
  std::vector<Tensor> parameters;
  Options options = {};
};

/// What every optimiser is: parameters, and for each of them what earlier steps left.
///  A step changes parameters in place by their `grad()`; one without a gradient is passed over. Half floats are kept
/// besides as f32 ("master"), so that steps smaller than their last digit add up; the copy is made anew when the
/// parameter has other values than the step left. A step that throws, also for want of memory, has changed nothing. No
/// parameters at all are a ValueError, as in torch. Thread safety: one thread at a time, and none that reads the
/// parameters.
class ATTN_API Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  virtual void step() = 0;
  /// Drops the gradients.
  void zero_grad() const;

  /// "state.<parameter>.step", "state.<parameter>.exp_avg", ...: copies, parameters counted through all groups. Options
  /// are not in it.
  StateDict state_dict() const;
  /// Before the parameters' values are loaded or after. ValueError, one line that names every key that is missing,
  /// unexpected or of another shape; nothing was changed then.
  void load_state_dict(const StateDict& dict);

 protected:
  /// Of one parameter.
  struct State {
    std::int64_t step = 0;
    std::vector<Tensor> buffers;       // one a name, undefined while not there
    Tensor master;                     // of a half float
    std::uint64_t master_version = 0;  // of the parameter that `master` stands for
  };
  /// A parameter as a step sees it: the values to change, of f32 or f64, and their gradient, contiguous. `half`: the
  /// parameter of half floats that the step itself writes, or undefined; the gradient is then of its dtype.
  struct Step {
    std::size_t parameter;
    State next;  // what will be kept of it
    Tensor values, gradient, half = {};
  };
  Optimizer(std::vector<Tensor> parameters, std::vector<std::string> buffer_names);
  /// A step of each parameter that has a gradient, with the memory that it takes. `halves`: this kind of optimiser
  /// writes parameters of half floats.
  std::vector<Step> prepare_steps(bool halves) const;
  /// Copies values and gradient where the step has memory of its own for them; the steps share it, so that one ends
  /// before the next begins.
  void begin_step(const Step& step) const;
  /// Writes the values into the parameter, where the step has not, and keeps its state.
  void end_step(Step& step);

  std::vector<Tensor> parameters_;
  std::vector<std::string> buffer_names_;
  std::vector<State> states_;
};

/// theta -= lr weight_decay theta;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// theta -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps).
struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;   ///< the largest v so far in the root
  bool maximize = false;  ///< climb
  bool decoupled = true;  ///< false: torch's Adam, the decay is added to the gradient
};

/// Loshchilov and Hutter 2017 (1711.05101). Errors: ValueError for options outside their range, a parameter that is no
/// leaf or twice.
class ATTN_API AdamW final : public Optimizer {
 public:
  explicit AdamW(const std::vector<Tensor>& parameters, const AdamWOptions& options = {});
  explicit AdamW(std::vector<Group<AdamWOptions>> groups);
  void step() override;
  std::vector<Group<AdamWOptions>> groups;
};

/// g += weight_decay theta;  b = momentum b + (1 - dampening) g, the first b is g itself;  theta -= lr b, with nesterov
///                           lr (g + momentum b).
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

/// The learning rate of a step, counted from 0: a line from peak / (warmup + 1) up to `peak` at step `warmup`, then a
/// half cosine or a line down to `last` at step `steps`, and `last` from there on. As torch's SequentialLR of LinearLR
/// and CosineAnnealingLR (or LinearLR).
struct ATTN_API Schedule {
  enum class Decay { cosine, linear, none };
  double peak = 1e-3;
  double last = 0;
  std::int64_t warmup = 0;
  std::int64_t steps = 0;
  Decay decay = Decay::cosine;
  /// ValueError when step or warmup is negative, or warmup beyond the steps of a decay.
  double operator()(std::int64_t step) const;
};

struct ClipOptions {
  double norm_type = 2;             ///< inf: the largest magnitude
  bool error_if_nonfinite = false;  ///< ValueError instead of gradients that become NaN or 0
};
/// Multiplies all gradients by min(1, max_norm / (norm + 1e-6)); returns their norm before, taken of the norms of each.
/// 0 without any.
ATTN_API double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                                const ClipOptions& options = {});

}  // namespace attn::optim
