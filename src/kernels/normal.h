// src/kernels/normal.h: transforms uniform numbers to normal ones, 16 at a time, and to another range, with torch's
// arithmetic.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// The functions of one build of src/kernels/ref/normal.cc. They work in place on contiguous memory.
struct RandomTransforms {
  /// Transforms n uniform numbers in [0, 1), n a multiple of 16, to normal ones: in each block of 16 the first 8 give
  /// the radius, the last 8 the angle. f32 by fixed polynomials (the same bits on any machine), f64 by libm.
  void (*normal_f32)(float* x, std::int64_t n, float mean, float std) noexcept;
  void (*normal_f64)(double* x, std::int64_t n, double mean, double std) noexcept;
  /// Computes x = fma(x, range, low).
  void (*affine_f32)(float* x, std::int64_t n, float range, float low) noexcept;
  void (*affine_f64)(double* x, std::int64_t n, double range, double low) noexcept;
};

/// Returns the build for this processor: with FMA instructions if it has them.
const RandomTransforms& random_transforms() noexcept;
/// Return the build without and the build with FMA instructions, for the test that their bits agree. The second is null
/// if it does not exist or cannot run.
const RandomTransforms* random_transforms_generic() noexcept;
const RandomTransforms* random_transforms_fma() noexcept;

}  // namespace attn::kernels
