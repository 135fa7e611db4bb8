// src/kernels/attention/prefill.cc: attention of a strip of rows, compiled once for every instruction set.
#include "kernels/attention/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/prefill.cc"
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

template <typename T>
bool attend(const AttentionProblem& problem, const LaneMap& map, void* scratch) {
  Walk<T> walk(problem, map, scratch);
  walk.load_queries();
  walk.begin_span();
  const std::int64_t origin = problem.keys_begin(map.batch), end = problem.keys_end(map.batch);
  constexpr std::int64_t span = std::int64_t{key_block} * span_blocks;
  Word visible[64];
  for (std::int64_t first = origin; first < end; first += key_block) {
    if (first != origin && (first - origin) % span == 0) {
      walk.merge_span();
      walk.begin_span();
    }
    const int keys = static_cast<int>(end - first < key_block ? end - first : key_block);
    const Seen seen = classify(problem, map.batch, map.row, map.row + map.rows, first, first + keys);
    if (seen == Seen::none) continue;
    if (seen == Seen::all) {
      walk.block(first, keys, nullptr);
    } else if (look(problem, map, first, keys, visible)) {
      walk.block(first, keys, visible);
    }
  }
  walk.merge_span();
  Totals<T> totals{walk.strip.m_total, walk.strip.l_total, walk.strip.o_total};
  if (!walk.any_span) {  // nobody saw anything
    for (int x = 0; x < walk.vectors; ++x) {
      hn::Store(minus_infinity<T>(), Tag<T>(), totals.m + x * lanes<T>);
      hn::Store(hn::Zero(Tag<T>()), Tag<T>(), totals.l + x * lanes<T>);
    }
    totals.o = walk.strip.o;
    walk.clear(totals.o);
  }
  if (problem.sinks)
    for (std::int64_t n = 0; n < 1; ++n) add_sink(static_cast<const T*>(problem.sinks)[map.head], walk.vectors, problem.value_dim, totals);
  if (!divide(walk.vectors, problem.value_dim, totals)) return false;
  write_rows(problem, map, totals);
  save_sums(problem, map, walk.vectors, totals);
  return true;
}

extern const AttentionTarget attention_table;
const AttentionTarget attention_table = {HWY_TARGET == HWY_AVX2 ? "avx2" : HWY_TARGET == HWY_AVX3 ? "avx512" : "neon", attend<float>, attend<double>};

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
