// src/tensor/normalize.cc: computes the gradients of norms in one pass over the rows, those of weight and bias
// included.
#include "tensor/normalize.h"

#include <attn/runtime.h>

#include "runtime/shares.h"

namespace attn {
namespace {

// These constants fix the order of sums (docs/numerics.md section 5.2): rows per block, and partial sums per block.
constexpr std::int64_t block = 4096, lanes = 16;

/// Adds the partial sums [blocks * lanes, n] in their fixed order and returns the totals [n]. If `summed` is false,
/// there is only one row, which is returned. NaN becomes the canonical NaN.
Tensor closed(const Tensor& partial, bool summed) {
  const std::int64_t n = partial.size(1), blocks = partial.size(0) / lanes;
  const Tensor sums = zeros({std::max<std::int64_t>(1, blocks), n}, partial.dtype());
  for (std::int64_t b = 0; b < blocks; ++b)
    kernels::row_kernels().sum_columns(row_element_of(partial.dtype()), advance(partial, b * lanes * n), n, lanes,
                                       advance(sums, b * n), n);
  with_compute_type(partial.dtype(), [&]<typename T>(Type<T>) {
    T* const first = sums.data<T>();
    for (std::int64_t c = 0; summed && blocks > 1 && c < n; ++c) {
      JoinedSums<T> joined;
      for (std::int64_t b = 0; b < blocks; ++b) joined.add(first[b * n + c]);
      first[c] = canonical_nan(joined.total());
    }
    for (std::int64_t c = 0; !summed && c < n; ++c) first[c] = canonical_nan(partial.data<T>()[c]);
  });
  return sums.select(0, 0);
}

}  // namespace

Gradients norm_gradients(const Backward& at, const Dims& normalized, double eps, bool rms) {
  const Tensor x = at.saved(0).detach().contiguous(), dy = at.grad().detach().contiguous();
  const Dtype wide = compute_dtype(x.dtype());
  const Tensor weight = affine("norm", "weight", at.saved(1), normalized, wide), dx = empty(x.sizes(), x.dtype());
  const std::int64_t n = normalized.product(), rows = n == 0 ? 0 : x.numel() / n, blocks = (rows + block - 1) / block;
  const bool summed = x.dim() > normalized.size();
  Tensor partial[2];  // for weight and bias; a single row starts at -0, so that adding to it changes no bit
  for (int i = 0; i < 2; ++i)
    if (i + 1 < static_cast<int>(at.inputs()) && at.needs(i + 1))
      partial[i] = full({summed ? blocks * lanes : 1, n}, summed ? 0.0 : -0.0, wide);
  // With few threads, one task computes the rows of several adjacent lanes, which are adjacent in memory: row r belongs
  // to lane r mod 16.
  const std::int64_t together = std::max<std::int64_t>(1, lanes / 2 / num_threads()), parts = lanes / together;
  runtime::parallel_for_neighbours(blocks * parts, [&](std::int64_t part) {
    auto* const scratch =
        is_half_dtype(x.dtype())
            ? static_cast<float*>(runtime::thread_scratch(2 * static_cast<std::size_t>(n) * sizeof(float)))
            : nullptr;
    const std::int64_t begin = part / parts * block, end = std::min(rows, begin + block),
                       lane = part % parts * together;
    for (std::int64_t at_lanes = begin; at_lanes < end; at_lanes += lanes)
      for (std::int64_t l = lane; l < lane + together && at_lanes + l < end; ++l) {
        const std::int64_t first = (at_lanes + l) * n, sums = summed ? (part / parts * lanes + l) * n : 0;
        kernels::NormGradientRow row = {.element = row_element_of(wide),
                                        .rms = rms,
                                        .n = n,
                                        .eps = eps,
                                        .x = advance(x, first),
                                        .dy = advance(dy, first),
                                        .weight = data_or_null(weight),
                                        .dx = advance(dx, first),
                                        .weight_sums = partial[0].defined() ? advance(partial[0], sums) : nullptr,
                                        .bias_sums = partial[1].defined() ? advance(partial[1], sums) : nullptr};
        if (scratch != nullptr) {
          read_halves(x.dtype(), row.x, scratch, n);
          read_halves(x.dtype(), row.dy, scratch + n, n);
          row.x = scratch;
          row.dy = row.dx = scratch + n;
        }
        kernels::row_kernels().norm_gradient_row(row);
        if (scratch != nullptr) write_halves(x.dtype(), scratch + n, advance(dx, first), n);
      }
  });
  Gradients result{dx};
  for (int i = 0; i + 1 < static_cast<int>(at.inputs()); ++i)
    result.push_back(partial[i].defined() ? closed(partial[i], summed).reshape(normalized) : Tensor());
  return result;
}

}  // namespace attn
