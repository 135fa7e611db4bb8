// src/kernels/normal.h: from uniform numbers to normal ones, 16 at a time, and to another range; torch's arithmetic.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// The table of one build of src/kernels/ref/normal.cc. In place, contiguous memory.
struct RandomTransforms {
  /// n uniform numbers in [0, 1), n a multiple of 16, become normal ones: in each block of 16 the first 8 give the
  /// radius, the last 8 the angle. f32 by fixed polynomials (the same bits on any machine), f64 by libm.
  void (*normal_f32)(float* x, std::int64_t n, float mean, float std) noexcept;
  void (*normal_f64)(double* x, std::int64_t n, double mean, double std) noexcept;
  /// x = fma(x, range, low).
  void (*affine_f32)(float* x, std::int64_t n, float range, float low) noexcept;
  void (*affine_f64)(double* x, std::int64_t n, double range, double low) noexcept;
};

/// The build this processor runs: with FMA instructions where it has them.
const RandomTransforms& random_transforms() noexcept;
/// Both builds, for the test that their bits agree; the second is null where there is none or it cannot run.
const RandomTransforms* random_transforms_generic() noexcept;
const RandomTransforms* random_transforms_fma() noexcept;

}  // namespace attn::kernels
