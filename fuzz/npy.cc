// fuzz/npy.cc: reads files of NumPy's format: what was read must be written and read back the same.
#include "fuzz.h"

#include <span>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Tensor tensor;
  if (!answers([&] { tensor = parse_npy(std::as_bytes(std::span(data, size))); })) return 0;
  check(static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype()) <= size,
        "it holds more bytes than the file");
  answers([&] {
    const std::vector<std::byte> bytes = npy_bytes(tensor);
    const Tensor again = parse_npy(bytes);
    check(same_bits(tensor.contiguous(), again), "another tensor after a round trip");
    check(npy_bytes(again) == bytes, "written twice it is not the same file");
    (void)tensor.to_string();
  });
  return 0;
}
