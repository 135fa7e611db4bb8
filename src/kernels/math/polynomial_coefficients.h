// src/kernels/math/polynomial_coefficients.h: lists polynomials and constants of the elementary functions, one table
// per float type.
#pragma once
#include <cstdint>

// Every polynomial is a minimax fit. Its coefficients are rounded one after the other, lowest order first, refitting
// the others each time (f32), or rounded together (f64). They are listed lowest order first; docs/numerics.md says what
// each stands for.
namespace attn::kernels::ATTN_REF_NAMESPACE {

template <typename T>
struct Constants;

template <>
struct Constants<float> {
  using Bits = std::uint32_t;
  using Signed = std::int32_t;
  static constexpr int mantissa_bits = 23;
  static constexpr int bias = 127;
  static constexpr float rounder = 0x1.8p23f;                        // x + rounder - rounder is x rounded to an integer
  static constexpr float least_exponent = -126.0f;                   // of a normal number
  static constexpr float exp_lowest = -104.0f, exp_highest = 89.0f;  // e^x is 0 below, inf above
  static constexpr float log2e = 0x1.715476p+0f;
  static constexpr float ln2 = 0x1.62e430p-1f;
  static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  static constexpr float erf_one = 4.0f;        // from here on erf rounds to 1
  static constexpr float gelu_lowest = -16.0f;  // from here down gelu is -0
  static constexpr float sqrt_half = 0x1.6a09e6p-1f;
  static constexpr float sqrt_two_over_pi = 0x1.988454p-1f;
  // 2^f on [-1/2, 1/2], 1 exactly at 0
  static constexpr float exp2[] = {1.0f,           0x1.62e424p-1f, 0x1.ebf9b6p-3f,
                                   0x1.c6babap-5f, 0x1.3cec48p-7f, 0x1.5aac8ap-10f};
  // e^r on [-ln2/2, ln2/2]
  static constexpr float exp[] = {1.0f,           1.0f,           0x1.fffffcp-2f, 0x1.555492p-3f,
                                  0x1.5558b0p-5f, 0x1.123988p-7f, 0x1.6a4c8cp-10f};
  // (tanh(x) / x - 1) / x^2 in x^2, |x| <= 5/8
  static constexpr float tanh[] = {-0x1.555532p-2f, 0x1.1106f6p-3f, -0x1.b835a4p-5f, 0x1.51f8cap-6f, -0x1.750cb4p-8f};
  // erf(x) / x - 1 in x^2, |x| <= 1
  static constexpr float erf[] = {0x1.06eba8p-3f, -0x1.81273ep-2f,  0x1.ce2ce0p-4f, -0x1.b7f666p-6f,
                                  0x1.53eafep-8f, -0x1.a31598p-11f, 0x1.46c208p-14f};
  // e^(z^2) erfc(z) in (z - 3) / (z + 3), z in [1, 10.1]
  static constexpr float erfc[] = {0x1.6e9828p-3f,  -0x1.4e102cp-2f, 0x1.f6ff0ap-3f,  -0x1.336fc6p-3f, 0x1.258e68p-4f,
                                   -0x1.8fbd9cp-6f, 0x1.166392p-8f,  0x1.818cbap-11f, -0x1.19cacap-11f};
};

template <>
struct Constants<double> {
  using Bits = std::uint64_t;
  using Signed = std::int64_t;
  static constexpr int mantissa_bits = 52;
  static constexpr int bias = 1023;
  static constexpr double rounder = 0x1.8p52;
  static constexpr double least_exponent = -1022.0;
  static constexpr double exp_lowest = -746.0, exp_highest = 710.0;
  static constexpr double log2e = 0x1.71547652b82fep+0, log2e_low = 0x1.777d0ffda0d24p-56;
  static constexpr double ln2 = 0x1.62e42fefa39efp-1;
  static constexpr double ln2_high = 0x1.62e42ffp-1, ln2_low = -0x1.718432a1b0e26p-35;
  static constexpr double erf_one = 6.0;
  static constexpr double gelu_lowest = -40.0;
  static constexpr double sqrt_half = 0x1.6a09e667f3bcdp-1;
  static constexpr double sqrt_two_over_pi = 0x1.9884533d43651p-1;
  static constexpr double exp2[] = {1.0,
                                    0x1.62e42fefa39efp-1,
                                    0x1.ebfbdff82c58fp-3,
                                    0x1.c6b08d704a0d6p-5,
                                    0x1.3b2ab6fba4ea8p-7,
                                    0x1.5d87fe78a1310p-10,
                                    0x1.430912f859976p-13,
                                    0x1.ffcbfc7ac27cfp-17,
                                    0x1.62c0229a59462p-20,
                                    0x1.b524d0ec44082p-24,
                                    0x1.e4cd9dace6e94p-28,
                                    0x1.ea14204508601p-32,
                                    0x1.c6d95cfcf988ap-36};
  static constexpr double exp[] = {1.0,
                                   1.0,
                                   0x1.0000000000009p-1,
                                   0x1.5555555555558p-3,
                                   0x1.5555555550387p-5,
                                   0x1.111111110f7e7p-7,
                                   0x1.6c16c18617fa4p-10,
                                   0x1.a01a01b019bfep-13,
                                   0x1.a01993751a68cp-16,
                                   0x1.71ddf68d91b88p-19,
                                   0x1.28b44b9651a1fp-22,
                                   0x1.af63731e21625p-26};
  static constexpr double tanh[] = {-0x1.5555555555552p-2,  0x1.1111111110c03p-3,   -0x1.ba1ba1b9ce65ep-5,
                                    0x1.664f487037641p-6,   -0x1.226e32c132c36p-7,  0x1.d6d3584ed5c0fp-9,
                                    -0x1.7d9c1d640cc54p-10, 0x1.350ae1f3af022p-11,  -0x1.f10cb8a44db06p-13,
                                    0x1.8006298a19734p-14,  -0x1.fa7567231632ep-16, 0x1.9581508723fdap-18};
  static constexpr double erf[] = {0x1.06eba8214db69p-3,   -0x1.812746b0379e6p-2,  0x1.ce2f21a042b20p-4,
                                   -0x1.b82ce312849a0p-6,  0x1.565bcd0db035dp-8,   -0x1.c02db3d8ee772p-11,
                                   0x1.f9a321a1435fdp-14,  -0x1.f4d1df3c07744p-17, 0x1.b9def1bfeda34p-20,
                                   -0x1.5f1d37d91ae3bp-23, 0x1.f7a41d8645ec2p-27,  -0x1.386ae2bcada71p-30,
                                   0x1.057a03d1dc616p-34};
  // z in [1, 28]
  static constexpr double erfc[] = {
      0x1.6e9827d229d2dp-3,   -0x1.4e102b9cf8513p-2, 0x1.f6ff204105973p-3,  -0x1.336ffbef08b45p-3,
      0x1.258b13b017b31p-4,   -0x1.8fa58eb5da28cp-6, 0x1.17c838ee6edd1p-8,  0x1.73101e7bda75cp-11,
      -0x1.39084c4ca0a57p-11, 0x1.7ba10019e1525p-15, 0x1.0cac31b1653e7p-14, -0x1.af864897cdf7ep-17,
      -0x1.0bb3ac9bdb41bp-17, 0x1.1c7de1e01c36dp-19, 0x1.5050e5eff6c8dp-20, -0x1.3a4ea13fbd124p-22,
      -0x1.fca3a5605677dp-23, 0x1.d1216a595948dp-26, 0x1.c0c093cdeae08p-25, -0x1.a6f294b0eb347p-31,
      -0x1.c922d931779d2p-27, 0x1.e1e86518e43bcp-29};
  // (log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2, |s| <= 0.1716
  static constexpr double log[] = {0x1.5555555555555p-1, 0x1.9999999999dfep-2, 0x1.249249242b4b5p-2,
                                   0x1.c71c7258f1148p-3, 0x1.745cde39b68fap-3, 0x1.3b20aad7c3755p-3,
                                   0x1.0f5cd9896a0dap-3, 0x1.0f6279483f7b4p-3};
  // (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2, |r| <= pi/4
  static constexpr double sin[] = {-0x1.5555555555549p-3, 0x1.111111110f874p-7,   -0x1.a01a019c10c19p-13,
                                   0x1.71de3576f3f23p-19, -0x1.ae5e659c90195p-26, 0x1.5d92d1a5d486bp-33};
  static constexpr double cos[] = {0x1.555555555554cp-5,   -0x1.6c16c16c15177p-10, 0x1.a01a019cb109ep-16,
                                   -0x1.27e4f80968b3ap-22, 0x1.1ee9eb88fbf7fp-29,  -0x1.8fae68cec03cap-37};
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
