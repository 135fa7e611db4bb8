// python/src/checksum.cc: computes a checksum of memory as fast as memory can be read, to detect changes.
#include <bit>
#include <cstring>

#include "errors.h"
#include "gil.h"
#include "terms.h"

namespace attn::python {
namespace {

/// Computes a 64-bit checksum in eight chains, which hide the latency of the multiplication. Each step is a bijection
/// of the chain's value, so a change of one word always changes the result. The rotation moves the words' sign bits to
/// where the multiplication spreads them.
std::uint64_t checksum(const unsigned char* bytes, std::size_t size) {
  constexpr int lanes = 8;
  constexpr std::size_t step = lanes * sizeof(std::uint64_t);
  constexpr std::uint64_t odd = 0x9E3779B185EBCA87;
  const auto mixed = [](std::uint64_t h, std::uint64_t word) { return std::rotl(h ^ word, 29) * odd; };
  std::uint64_t h[lanes] = {1, 2, 3, 4, 5, 6, 7, 8}, rest[lanes] = {};
  std::size_t at = 0;
  for (; at + step <= size; at += step) {
#pragma GCC unroll 8
    for (int lane = 0; lane < lanes; ++lane) {
      std::uint64_t word;
      std::memcpy(&word, bytes + at + lane * sizeof word, sizeof word);
      h[lane] = mixed(h[lane], word);
    }
  }
  if (at < size) std::memcpy(rest, bytes + at, size - at);
  std::uint64_t all = size;
  for (int lane = 0; lane < lanes; ++lane) all = mixed(all, mixed(h[lane], rest[lane]));
  return all;
}

std::uint64_t checksum_of(nb::handle x) {
  Py_buffer view;
  if (PyObject_GetBuffer(x.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  std::uint64_t sum = 0;
  {
    const Unlocked unlocked;
    sum = checksum(static_cast<const unsigned char*>(view.buf), static_cast<std::size_t>(view.len));
  }
  PyBuffer_Release(&view);
  return sum;
}

}  // namespace

void add_checksum(nb::module_& m) { m.def("checksum", checksum_of, nb::arg("bytes")); }

}  // namespace attn::python
