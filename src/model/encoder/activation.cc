// src/model/encoder/activation.cc: reads and computes the activations of encoders and encoder-decoders.
#include "model/encoder/activation.h"

#include <attn/ops.h>

namespace attn {
namespace {

using NamedActivation = EncoderConfig::Activation;

// Of several names of an activation the first is written.
constexpr std::pair<const char*, NamedActivation> activation_names[] = {
    {"gelu", NamedActivation::gelu},           {"gelu_python", NamedActivation::gelu},
    {"gelu_new", NamedActivation::gelu_tanh},  {"gelu_pytorch_tanh", NamedActivation::gelu_tanh},
    {"gelu_fast", NamedActivation::gelu_tanh}, {"relu", NamedActivation::relu},
    {"silu", NamedActivation::silu},           {"swish", NamedActivation::silu},
    {"tanh", NamedActivation::tanh},
};

}  // namespace

NamedActivation read_activation(const JsonFields& fields, const char* field, const char* otherwise) {
  const std::string text = fields.text(field, otherwise);
  for (const auto& [name, activation] : activation_names)
    if (text == name) return activation;
  fields.refuse(field, "it must be gelu, gelu_new, gelu_pytorch_tanh, relu, silu or tanh");
}

const char* name_of(NamedActivation wanted) {
  for (const auto& [name, activation] : activation_names)
    if (activation == wanted) return name;
  return "";
}

Tensor activated(const Tensor& x, NamedActivation activation) {
  switch (activation) {
    case NamedActivation::relu: return relu(x);
    case NamedActivation::silu: return silu(x);
    case NamedActivation::tanh: return tanh(x);
    case NamedActivation::gelu_tanh: return gelu(x, GeluApproximate::tanh);
    default: return gelu(x);
  }
}

}  // namespace attn
