// src/optim/clip.cc: computes the norm of all gradients together and scales the gradients if it exceeds a bound.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/optim.h>

#include "runtime/floating_point.h"
#include "tensor/rows.h"

#include "runtime/format.h"

#include <cmath>

namespace attn::optim {

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, const ClipOptions& options) {
  const runtime::DefaultFloatingPoint floating_point;
  const NoGrad guard;
  if (!(max_norm >= 0))
    throw ValueError(runtime::format("clip_grad_norm_: max_norm is {}; it must be 0 or more", max_norm));
  if (std::isnan(options.norm_type)) throw ValueError("clip_grad_norm_: norm_type is nan; it must be a number");
  std::vector<Tensor> norms;
  for (const Tensor& parameter : parameters)
    if (const Tensor g = parameter.grad(); g.defined()) norms.push_back(wide_norm(g, options.norm_type));
  if (norms.empty()) return 0;
  const Tensor total = norm(stack(norms), options.norm_type);
  if (options.error_if_nonfinite && !std::isfinite(total.item()))
    throw ValueError(
        runtime::format("clip_grad_norm_: the norm of all gradients is {}; it must be finite to be kept within {}",
                        total.item(), max_norm));
  const Tensor factor = minimum(max_norm / (total + 1e-6), ones({}, total.dtype()));
  if (factor.item() == 1) return total.item();  // multiplying by 1 would change nothing
  for (const Tensor& parameter : parameters)
    if (parameter.grad().defined()) parameter.grad().mul_(factor);
  return total.item();
}

}  // namespace attn::optim
