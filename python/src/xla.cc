// python/src/xla.cc: the calls that JAX makes on the CPU, through XLA's foreign-function interface.
#include <nanobind/nanobind.h>

#include "terms.h"

#ifdef ATTN_WITH_XLA
#include <attn/attention_backward.h>
#include <attn/autograd.h>
#include <attn/error.h>
#include <xla/ffi/api/ffi.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attn::python {
namespace {

namespace ffi = xla::ffi;

Dtype dtype_of(ffi::DataType dtype) {
  switch (dtype) {
    case ffi::DataType::F32: return Dtype::f32;
    case ffi::DataType::F64: return Dtype::f64;
    case ffi::DataType::BF16: return Dtype::bf16;
    case ffi::DataType::F16: return Dtype::f16;
    default: throw DtypeError("attention: q, k, v and bias must be float32, float64, bfloat16 or float16");
  }
}

/// XLA's buffers are row-major and stay as they are during the call.
Tensor tensor_of(const ffi::AnyBuffer& x) {
  const std::vector<std::int64_t> sizes(x.dimensions().begin(), x.dimensions().end());
  return Tensor::from_blob(x.untyped_data(), sizes, dtype_of(x.element_type()));
}

std::vector<Tensor> tensors_of(const ffi::RemainingArgs& args) {
  std::vector<Tensor> found;
  for (std::size_t n = 0; n < args.size(); ++n) found.push_back(tensor_of(*args.get<ffi::AnyBuffer>(n)));
  return found;
}

std::vector<Tensor> tensors_of(const ffi::RemainingRets& results) {
  std::vector<Tensor> found;
  for (std::size_t n = 0; n < results.size(); ++n) found.push_back(tensor_of(**results.get<ffi::AnyBuffer>(n)));
  return found;
}

AttentionOptions options_of(std::string_view mask, double scale, double softcap, const Tensor& bias) {
  AttentionOptions options;
  if (!mask.empty()) options.mask = Mask::parse(std::string(mask));
  options.scale = scale;
  options.softcap = softcap;
  if (bias.defined()) options.bias = Bias::dense(bias);
  return options;
}

/// Runs what may throw; JAX raises the text.
template <typename F>
ffi::Error told(F&& call) {
  try {
    const NoGrad unrecorded;
    call();
    return ffi::Error::Success();
  } catch (const std::exception& error) { return ffi::Error(ffi::ErrorCode::kInvalidArgument, error.what()); }
}

/// q, k, v[, bias] -> output, max, sum.
ffi::Error forward(ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view mask, double scale,
                   double softcap) {
  return told([&] {
    const std::vector<Tensor> in = tensors_of(args), out = tensors_of(rets);
    AttentionOptions options = options_of(mask, scale, softcap, in.size() > 3 ? in[3] : Tensor());
    options.out = out[0];
    AttentionSaved saved{.output = {}, .max = out[1], .sum = out[2]};
    attention_forward(in[0], in[1], in[2], options, saved);
  });
}

/// q, k, v, output, max, sum, grad_output[, bias] -> the gradients of q, k, v[, bias].
ffi::Error backward(ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view mask, double scale,
                    double softcap) {
  return told([&] {
    const std::vector<Tensor> in = tensors_of(args), out = tensors_of(rets);
    const AttentionOptions options = options_of(mask, scale, softcap, in.size() > 7 ? in[7] : Tensor());
    const AttentionSaved saved{.output = in[3], .max = in[4], .sum = in[5]};
    AttentionBackwardOptions wanted;
    wanted.grad_output = in[6];
    wanted.bias = in.size() > 7;
    const AttentionGradients found = attention_backward(in[0], in[1], in[2], options, saved, wanted);
    const Tensor grads[] = {found.q, found.k, found.v, wanted.bias ? found.bias.at(0) : Tensor()};
    for (std::size_t n = 0; n < out.size(); ++n) out[n].copy_(grads[n]);
  });
}

XLA_FFI_DEFINE_HANDLER(
    forward_handler, forward,
    ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<std::string_view>("mask").Attr<double>("scale").Attr<double>(
        "softcap"));
XLA_FFI_DEFINE_HANDLER(
    backward_handler, backward,
    ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<std::string_view>("mask").Attr<double>("scale").Attr<double>(
        "softcap"));

}  // namespace

nb::object xla_handlers() {
  nb::dict found;
  found["attn_attention_forward"] = nb::capsule(reinterpret_cast<void*>(forward_handler));
  found["attn_attention_backward"] = nb::capsule(reinterpret_cast<void*>(backward_handler));
  return found;
}

}  // namespace attn::python
#else
namespace attn::python {

nb::object xla_handlers() { return nb::none(); }

}  // namespace attn::python
#endif

namespace attn::python {

void add_xla(nb::module_& m) { m.def("_xla_handlers", xla_handlers); }

}  // namespace attn::python
