// fuzz/safetensors.cc: reads safetensors files: what was read must be written and read back the same.
#include "fuzz.h"

#include <span>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Safetensors file;
  if (!answers([&] { file = parse_safetensors(std::as_bytes(std::span(data, size))); })) return 0;
  std::size_t held = 0;
  for (const auto& [name, tensor] : file.tensors)
    held += static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype());
  check(held <= size, "its tensors hold more bytes than the file");
  answers([&] {
    const std::vector<std::byte> bytes = safetensors_bytes(file.tensors, file.metadata);
    const Safetensors again = parse_safetensors(bytes);
    check(again.metadata == file.metadata && again.tensors.size() == file.tensors.size(),
          "other names after a round trip");
    for (const auto& [name, tensor] : file.tensors)
      check(same_bits(tensor, again.at(name)), "another tensor after a round trip: " + name);
    check(safetensors_bytes(again.tensors, again.metadata) == bytes, "written twice it is not the same file");
  });
  return 0;
}
