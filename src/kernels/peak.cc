// src/kernels/peak.cc: implements the loops that measure a core's peak rates; compiled once for every instruction set.
#include "kernels/peak.h"
#include "kernels/x86/amx.h"
#include "runtime/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/attention/tiles/bf16_dot_instruction-inl.h"
#include "kernels/targets.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
#else
HWY_BEFORE_NAMESPACE();
#endif
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The number of independent sums. Today's cores have 8 to 10 FMAs in flight (latency times FMA units), so more sums
/// than that keep the units busy.
inline constexpr int peak_sums = HWY_TARGET == HWY_AVX2 ? 12 : 24;

/// Makes the compiler treat the sums as used.
template <typename V>
HWY_INLINE void keep(V& x) {
  asm volatile("" : : "m"(x) : "memory");
}

template <typename T>
HWY_NOINLINE void fma_rounds(std::int64_t rounds) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<hn::ScalableTag<T>>;
  const V half = hn::Set(d, T(0.5)), one = hn::Set(d, T(1));
  V sum[peak_sums];
  _Pragma("GCC unroll 32") for (int i = 0; i < peak_sums; ++i) sum[i] = hn::Set(d, static_cast<T>(i));
  for (std::int64_t r = 0; r < rounds; ++r) {
    _Pragma("GCC unroll 32") for (int i = 0; i < peak_sums; ++i) sum[i] = hn::MulAdd(sum[i], half, one);
  }
  V total = sum[0];
  _Pragma("GCC unroll 32") for (int i = 1; i < peak_sums; ++i) total = hn::Add(total, sum[i]);
  keep(total);
}

template <typename T>
constexpr PeakLoop fma_loop() {
  return {2.0 * peak_sums * static_cast<double>(HWY_LANES(T)), fma_rounds<T>};
}

#if HWY_TARGET == HWY_AVX3
HWY_NOINLINE void dot_rounds(std::int64_t rounds) {
  const __m512i small = _mm512_set1_epi32(0x3c003c00), one = _mm512_set1_epi32(0x3f803f80);  // pairs of 2^-7, and of 1
  __m512 sum[peak_sums];
  _Pragma("GCC unroll 32") for (int i = 0; i < peak_sums; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::int64_t r = 0; r < rounds; ++r) {
    _Pragma("GCC unroll 32") for (int i = 0; i < peak_sums; ++i) sum[i] = dot_pair(sum[i], small, one);
  }
  __m512 total = sum[0];
  _Pragma("GCC unroll 32") for (int i = 1; i < peak_sums; ++i) total = _mm512_add_ps(total, sum[i]);
  keep(total);
}
constexpr PeakLoop dot_loop() { return {4.0 * peak_sums * 16, dot_rounds}; }
#else
constexpr PeakLoop dot_loop() { return {}; }
#endif

HWY_NOINLINE void read_all(const void* data, std::size_t bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  constexpr std::size_t N = HWY_LANES(std::uint64_t), words = 8 * N;
  const auto* from = static_cast<const std::uint64_t*>(data);
  auto all = hn::Zero(d);
  for (const std::uint64_t* end = from + bytes / 8; from < end; from += words) {
    // prefetches 2 KiB ahead, because the hardware prefetcher stops at the end of a page
    _Pragma("GCC unroll 8") for (std::size_t line = 0; line < words; line += 8) hwy::Prefetch(from + 256 + line);
    hn::Vec<decltype(d)> x[8];
    _Pragma("GCC unroll 8") for (std::size_t i = 0; i < 8; ++i) x[i] = hn::Load(d, from + i * N);
    all = hn::Or(
        all, hn::Or(hn::Or(hn::Or(x[0], x[1]), hn::Or(x[2], x[3])), hn::Or(hn::Or(x[4], x[5]), hn::Or(x[6], x[7]))));
  }
  keep(all);
}

extern const PeakLoops peak_table;
const PeakLoops peak_table = {ATTN_TARGET_NAME, fma_loop<float>(), fma_loop<double>(), dot_loop(), read_all};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernels {
namespace {

template <typename T>
void plain_rounds(std::int64_t rounds) {
  T sum[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  for (std::int64_t r = 0; r < rounds; ++r)
    for (T& x : sum) x = x * T(0.5) + T(1);
  asm volatile("" : : "m"(sum) : "memory");
}

void plain_read(const void* data, std::size_t bytes) {
  std::uint64_t all = 0;
  const auto* from = static_cast<const std::uint64_t*>(data);
  for (std::size_t i = 0; i < bytes / 8; ++i) all |= from[i];
  asm volatile("" : : "m"(all) : "memory");
}

#if defined(__x86_64__)
/// Multiplies four independent pairs of tiles per round.
void tile_rounds(std::int64_t rounds) {
  AmxTiles tiles;
  tiles.begin();
  for (std::int64_t r = 0; r < rounds; ++r) {
    tile_dot<0, 4, 6>();
    tile_dot<1, 4, 7>();
    tile_dot<2, 5, 6>();
    tile_dot<3, 5, 7>();
  }
}
#endif

constexpr PeakLoops plain_table = {"scalar", {16, plain_rounds<float>}, {16, plain_rounds<double>}, {}, plain_read};

}  // namespace

const PeakLoops& peak_loops(const char* target) noexcept {
  const std::string_view vectors = runtime::vectors_of(target);
#if defined(__x86_64__)
  if (vectors != target) {
    static const PeakLoops tiled = [] {
      PeakLoops loops = peak_loops("avx512");
      loops.name = "amx";
      loops.dot_bf16 = {4.0 * 2 * tile_rows * tile_rows * tile_items, tile_rounds};
      return loops;
    }();
    return tiled;
  }
#endif
  const PeakLoops* const loops = find_table<PeakLoops>({ATTN_TABLES(peak_table)}, vectors);
  return loops != nullptr ? *loops : plain_table;
}

}  // namespace attn::kernels
#endif
