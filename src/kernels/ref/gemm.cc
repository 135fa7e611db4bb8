// src/kernels/ref/gemm.cc: computes matrix products; each element is one chain over k in blocks of 256, block sums
// added in order.
#include "kernels/ref/math.h"
#include "kernels/ref/table.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

constexpr std::int64_t block_k = 256;     // fixed: part of the order of operations
constexpr std::int64_t tile_bytes = 128;  // bytes of a row of a tile; lanes are columns, so no bit depends on it

template <typename T>
constexpr std::int64_t tile_n = tile_bytes / static_cast<std::int64_t>(sizeof(T));

/// Does what `pack` does for a b of blocks. A block never crosses the end of a chain: 256 is a multiple of its length.
template <typename T>
void pack_blocks(const GemmProblem& p, std::int64_t first, std::int64_t columns, std::int64_t k0, std::int64_t depth,
                 T* packed) {
  const BlockSize size = block_size(p.b_blocks);
  float column[block_k];
  for (std::int64_t j = 0; j < columns; ++j) {
    const char* const row = static_cast<const char*>(p.b) + (first + j) * p.b_stride[1];
    decode_blocks(p.b_blocks, row + k0 / size.elements * size.bytes, depth / size.elements, column);
    for (std::int64_t k = 0; k < depth; ++k) packed[k * tile_n<T> + j] = static_cast<T>(column[k]);
  }
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = columns; j < tile_n<T>; ++j) packed[k * tile_n<T> + j] = T(0);
}

/// Packs columns [first, first + columns) of rows [k0, k0 + depth) of b, row by row. Missing columns are 0, and their
/// sums are never stored.
template <typename T>
void pack(const GemmProblem& p, std::int64_t first, std::int64_t columns, std::int64_t k0, std::int64_t depth,
          T* packed) {
  if (p.has_blocks()) return pack_blocks(p, first, columns, k0, depth, packed);
  const T* b = static_cast<const T*>(p.b) + k0 * p.b_stride[0] + first * p.b_stride[1];
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t j = 0; j < columns; ++j) packed[k * tile_n<T> + j] = b[k * p.b_stride[0] + j * p.b_stride[1]];
    for (std::int64_t j = columns; j < tile_n<T>; ++j) packed[k * tile_n<T> + j] = T(0);
  }
}

/// Computes sum[j] = chain over k of fma(a[k], packed[k][j], sum) from +0.
template <typename T>
void chain(const T* a, std::int64_t a_stride, const T* packed, std::int64_t depth, T* sum) {
  T s[tile_n<T>] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    const T value = a[k * a_stride];
#pragma GCC unroll 32  // fully, so that the sums stay in registers
    for (std::int64_t j = 0; j < tile_n<T>; ++j) s[j] = fma(value, packed[k * tile_n<T> + j], s[j]);
  }
  for (std::int64_t j = 0; j < tile_n<T>; ++j) sum[j] = s[j];
}

/// Computes the same for one row of a and one column of b, which is read in place: this is less work than packing lanes
/// of zeros.
template <typename T>
T chain_of_one(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride, std::int64_t depth) {
  T s = 0;
  for (std::int64_t k = 0; k < depth; ++k) s = fma(a[k * a_stride], b[k * b_stride], s);
  return s;
}

template <typename T>
T activate(Activation activation, T x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::relu: return x < 0 ? T(0) : x;
    case Activation::silu: return silu(x);
    case Activation::gelu_none: return gelu_none(x);
    case Activation::gelu_tanh: return gelu_tanh(x);
  }
  return x;
}

template <typename T>
void product(const GemmProblem& p, std::int64_t begin, std::int64_t end) {
  alignas(64) T packed[block_k * tile_n<T>];
  alignas(64) T sum[tile_n<T>];
  T* const y = static_cast<T*>(p.y);
  const T* const bias = static_cast<const T*>(p.bias);
  for (std::int64_t first = 0; first < p.n; first += tile_n<T>) {
    const std::int64_t columns = p.n - first < tile_n<T> ? p.n - first : tile_n<T>;
    // pass 1: block sums, added in order to a total that starts at +0
    for (std::int64_t k0 = 0; k0 == 0 || k0 < p.k; k0 += block_k) {
      const std::int64_t depth = p.k - k0 < block_k ? p.k - k0 : block_k;
      const bool one = columns == 1 && end - begin == 1 && !p.has_blocks();
      if (!one) pack(p, first, columns, k0, depth, packed);
      for (std::int64_t m = begin; m < end; ++m) {
        const T* const a = static_cast<const T*>(p.a) + m * p.a_stride[0] + k0 * p.a_stride[1];
        if (one)
          sum[0] =
              chain_of_one(a, p.a_stride[1], static_cast<const T*>(p.b) + k0 * p.b_stride[0] + first * p.b_stride[1],
                           p.b_stride[0], depth);
        else chain(a, p.a_stride[1], packed, depth, sum);
        T* out = y + m * p.y_stride[0] + first * p.y_stride[1];
        for (std::int64_t j = 0; j < columns; ++j)
          out[j * p.y_stride[1]] = (k0 == 0 ? T(0) : out[j * p.y_stride[1]]) + sum[j];
      }
    }
    // pass 2: bias, NaN as the canonical one, the activation
    for (std::int64_t m = begin; m < end; ++m) {
      T* out = y + m * p.y_stride[0] + first * p.y_stride[1];
      for (std::int64_t j = 0; j < columns; ++j) {
        T& value = out[j * p.y_stride[1]];
        value = activate(p.activation, canonical(bias != nullptr ? value + bias[first + j] : value));
      }
    }
  }
}

}  // namespace

void gemm(const GemmProblem& problem, std::int64_t begin, std::int64_t end) noexcept {
  if (problem.element == Element::f64) return product<double>(problem, begin, end);
  product<float>(problem, begin, end);
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
