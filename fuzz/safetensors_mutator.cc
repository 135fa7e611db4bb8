// fuzz/safetensors_mutator.cc: changes a safetensors file, and usually corrects the length before its header.
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  std::uint64_t header = 0;
  if (size >= 8) std::memcpy(&header, data, 8);  // little-endian, as all machines that run the fuzzers
  if (size < 8 || header > size - 8 || seed % 16 == 0) return LLVMFuzzerMutate(data, size, most);
  const std::size_t tail = size - 8 - header;
  if (seed % 4 == 0 && tail > 0) return 8 + header + LLVMFuzzerMutate(data + 8 + header, tail, most - 8 - header);
  const std::vector<std::uint8_t> behind(data + 8 + header, data + size);
  const std::uint64_t now = LLVMFuzzerMutate(data + 8, header, most - 8 - tail);
  std::memcpy(data, &now, 8);
  if (tail > 0) std::memcpy(data + 8 + now, behind.data(), tail);
  return 8 + now + tail;
}
