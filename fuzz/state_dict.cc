// fuzz/state_dict.cc: loads tensors of a file into a module: all or none are loaded, and the module must hold what was
// loaded.
#include "fuzz.h"

#include <algorithm>
#include <span>

using namespace attn;
using namespace attn::fuzz;

namespace {
struct Block : nn::Module {
  const nn::Linear up = register_module("up", nn::Linear(2, 3));
  const nn::LayerNorm norm = register_module("norm", nn::LayerNorm(2));
  const Tensor count = register_buffer("count", zeros({}, Dtype::i64));
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Safetensors file;
  if (!answers([&] { file = parse_safetensors(std::as_bytes(std::span(data, size))); })) return 0;
  for (const bool strict : {true, false}) {
    const Block block;
    std::vector<Tensor> before;
    for (const auto& [name, tensor] : block.state_dict()) before.push_back(tensor.clone());
    const bool taken = answers([&] { block.load_state_dict(file.tensors, strict); });
    std::size_t i = 0, given = 0;
    for (const auto& [name, tensor] : block.state_dict()) {
      const Tensor* in_file = file.find(name);
      given += in_file != nullptr ? 1 : 0;
      const Tensor expected = taken && in_file != nullptr ? in_file->to(tensor.dtype()) : before[i];
      check(same_bits(tensor, expected), "a module holds something else: " + name);
      ++i;
    }
    check(!taken || !strict || given == i, "a strict load without all names");
  }
  return 0;
}
