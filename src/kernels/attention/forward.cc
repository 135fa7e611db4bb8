// src/kernels/attention/forward.cc: attention of a strip of rows, whole or span by span, compiled once for every instruction set.
#include "kernels/attention/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/forward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/attention/finish-inl.h"

#ifndef SEEN_TMP
#define SEEN_TMP
namespace attn::kernels{ enum class Seen{none,all,some}; inline Seen classify(const AttentionProblem&p,long b,long r0,long r1,long k0,long k1){ if(!p.mask.count)return Seen::all; long off=p.row_offset(b,false); if(k1-1<=r0+off)return Seen::all; if(k0>r1-1+off)return Seen::none; return Seen::some;} }
#endif

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Who sees what of a block, as a word a key; false when nobody sees anything.
HWY_INLINE bool look(const AttentionProblem& problem, const LaneMap& map, std::int64_t first, int keys, Word* visible) {
  Word any = 0;
  int lane = 0;
  for (std::int64_t n = 0; n < map.heads; ++n)
    for (std::int64_t i = 0; i < map.rows; ++i, ++lane) {
      visible[lane] = mask_word(problem, map.batch, map.head + n, map.row + i, first, keys);
      any |= visible[lane];
    }
  for (; lane < 64; ++lane) visible[lane] = 0;
  turn_bits(visible);
  return any != 0;
}

inline constexpr std::int64_t span_keys = std::int64_t{key_block} * span_blocks;

/// The blocks of keys [first, end), which lie in one span.
template <typename T>
void walk_blocks(Walk<T>& walk, std::int64_t first, std::int64_t end) {
  const LaneMap& map = walk.map;
  Word visible[64];
  walk.begin_span();
  for (; first < end; first += key_block) {
    const int keys = static_cast<int>(end - first < key_block ? end - first : key_block);
    const Seen seen = classify(walk.problem, map.batch, map.row, map.row + map.rows, first, first + keys);
    if (seen == Seen::none) continue;
    if (seen == Seen::all) {
      walk.block(first, keys, nullptr);
    } else if (look(walk.problem, map, first, keys, visible)) {
      walk.block(first, keys, visible);
    }
  }
}

/// Sink, division, results to memory.
template <typename T>
bool finish(Walk<T>& walk) {
  const AttentionProblem& problem = walk.problem;
  if (!walk.any_span) walk.clear_totals();
  const Totals<T> totals{walk.strip.m_total, walk.strip.l_total, walk.strip.o_total};
  if (problem.sinks) add_sinks(static_cast<const T*>(problem.sinks), walk.map, walk.vectors, problem.value_dim, totals);
  if (!divide(walk.vectors, problem.value_dim, totals)) return false;
  write_rows(problem, walk.map, totals);
  save_sums(problem, walk.map, walk.vectors, totals);
  return true;
}

template <typename T>
bool attend(const AttentionProblem& problem, const LaneMap& map, void* scratch) {
  Walk<T> walk(problem, map, scratch);
  walk.load_queries();
  const std::int64_t end = problem.keys_end(map.batch);
  for (std::int64_t first = problem.keys_begin(map.batch); first < end; first += span_keys) {
    walk_blocks(walk, first, first + span_keys < end ? first + span_keys : end);
    walk.merge_span();
  }
  return finish(walk);
}

/// m, l, then o of a span, as many lanes wide as the strip has vectors.
template <typename T>
void attend_span(const AttentionProblem& problem, const LaneMap& map, std::int64_t span, void* partial, void* scratch) {
  const Tag<T> d;
  Walk<T> walk(problem, map, scratch);
  constexpr int N = Walk<T>::N, R = Walk<T>::R;
  const std::int64_t first = problem.keys_begin(map.batch) + span * span_keys, end = problem.keys_end(map.batch);
  if (first < end) walk.load_queries();
  walk_blocks(walk, first, first + span_keys < end ? first + span_keys : end);
  if (walk.fresh) walk.clear(walk.strip.o);
  const int width = walk.vectors * N;
  T* to = static_cast<T*>(partial);
  std::memcpy(to, walk.strip.m, sizeof(T) * static_cast<std::size_t>(width));
  std::memcpy(to + width, walk.strip.l, sizeof(T) * static_cast<std::size_t>(width));
  for (std::int64_t c = 0; c < problem.value_dim; ++c)
    for (int x = 0; x < width; x += N) hn::StoreU(hn::Load(d, walk.strip.o + c * R + x), d, to + (c + 2) * width + x);
}

template <typename T>
std::size_t partial_bytes(const AttentionProblem& problem, const LaneMap& map) {
  constexpr int N = lanes<T>;
  const std::int64_t width = (map.count() + N - 1) / N * N;
  return sizeof(T) * static_cast<std::size_t>(width * (problem.value_dim + 2));
}

/// The spans' partial results, one after the other, merged left to right and finished.
template <typename T>
bool attend_merge(const AttentionProblem& problem, const LaneMap& map, const void* partials, std::int64_t spans, void* scratch) {
  Walk<T> walk(problem, map, scratch);
  walk.clear_totals();
  walk.any_span = true;
  const int width = walk.vectors * Walk<T>::N;
  const T* from = static_cast<const T*>(partials);
  for (std::int64_t s = 0; s < spans; ++s, from += width * (problem.value_dim + 2)) walk.merge(from, from + width, from + 2 * width, width);
  return finish(walk);
}

extern const AttentionTarget attention_table;
const AttentionTarget attention_table = {
    HWY_TARGET == HWY_AVX2 ? "avx2" : HWY_TARGET == HWY_AVX3 ? "avx512" : "neon",
    {strip_rows<float>, Strip<float>::bytes, partial_bytes<float>, attend<float>, attend_span<float>, attend_merge<float>},
    {strip_rows<double>, Strip<double>::bytes, partial_bytes<double>, attend<double>, attend_span<double>, attend_merge<double>}};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernels {

const AttentionTarget* attention_target(const char* name) noexcept {
  const AttentionTarget* const built[] = {
#if HWY_TARGETS & HWY_AVX3
      &N_AVX3::attention_table,
#endif
#if HWY_TARGETS & HWY_AVX2
      &N_AVX2::attention_table,
#endif
#if HWY_TARGETS & HWY_NEON
      &N_NEON::attention_table,
#endif
      nullptr};
  for (const AttentionTarget* target : built)
    if (target != nullptr && std::strcmp(target->name, name) == 0) return target;
  return nullptr;
}

}  // namespace attn::kernels
#endif
