// src/io/npy.cc: reads and writes one tensor in a NumPy file.
#include <attn/npy.h>

#include <attn/error.h>
#include "runtime/format.h"

#include "io/npy_header.h"
#include "io/write.h"

#include <algorithm>
#include <vector>

namespace attn {
namespace {

/// Reverses the bytes of every element.
void swap_bytes(const Tensor& tensor) {
  const auto size = static_cast<std::ptrdiff_t>(size_of(tensor.dtype()));
  auto* at = static_cast<char*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.numel(); ++i, at += size) std::reverse(at, at + size);
}

Tensor load_array(const io::Source& source) {
  const io::NpyHeader header = io::read_npy_header(source);
  Dims sizes = header.sizes;
  if (header.fortran_order) std::reverse(sizes.begin(), sizes.end());
  Tensor tensor = io::read_tensor(source, sizes, header.dtype, header.data_begin);
  if (header.big_endian) swap_bytes(tensor);
  if (!header.fortran_order) return tensor;
  Dims order;
  for (int d = sizes.size() - 1; d >= 0; --d) order.push_back(d);
  return tensor.permute(order);
}

template <typename Take>
auto with_pieces(const char* function, const Tensor& tensor, Take take) {
  if (!tensor.defined()) throw ValueError(runtime::format("{}: the tensor is undefined", function));
  if (tensor.dtype() == Dtype::bf16)
    throw DtypeError(runtime::format(
        "{}: NumPy has no bf16; save as f32 (tensor.to(Dtype::f32)) or with save_safetensors", function));
  const Tensor values = tensor.detach().contiguous();
  const std::string head = io::make_npy_header(values.sizes(), values.dtype());
  const auto* data = static_cast<const std::byte*>(values.data());
  const std::size_t bytes = static_cast<std::size_t>(values.numel()) * size_of(values.dtype());
  return take(std::vector<std::span<const std::byte>>{std::as_bytes(std::span(head)), {data, bytes}});
}

}  // namespace

Tensor load_npy(const std::string& path) { return load_array(io::FileSource("load_npy", path)); }
Tensor parse_npy(std::span<const std::byte> bytes) { return load_array(io::MemorySource("parse_npy", bytes)); }

void save_npy(const std::string& path, const Tensor& tensor) {
  with_pieces("save_npy", tensor, [&](const auto& pieces) { io::write_whole("save_npy", path, pieces); });
}

std::vector<std::byte> npy_bytes(const Tensor& tensor) {
  return with_pieces("npy_bytes", tensor, [](const auto& pieces) {
    std::vector<std::byte> bytes;
    for (const auto& piece : pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
    return bytes;
  });
}

}  // namespace attn
