// src/kernels/attention/prefill.cc: attention of a strip of rows, compiled once for every instruction set.
#include "kernels/attention/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/prefill.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/attention/finish-inl.h"
#include "kernels/attention/mask_eval.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Who sees what of a block, as a word a key; false when nobody sees anything.
HWY_INLINE bool look(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t rows, std::int64_t first, int keys,
                     Word* visible) {
  Word any = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    visible[i] = mask_word(problem, b, h, row + i, first, keys);
    any |= visible[i];
  }
  for (std::int64_t i = rows; i < 64; ++i) visible[i] = 0;
  turn_bits(visible);
  return any != 0;
}

template <typename T>
bool prefill(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row_begin, std::int64_t row_end, void* scratch) {
  const std::int64_t rows = row_end - row_begin;
  Walk<T> walk(problem, b, h, row_begin, rows, scratch);
  walk.load_queries();
  walk.begin_span();
  const std::int64_t origin = problem.keys_begin(b), end = problem.keys_end(b);
  constexpr std::int64_t span = std::int64_t{key_block} * span_blocks;
  Word visible[64];
  for (std::int64_t first = origin; first < end; first += key_block) {
    if (first != origin && (first - origin) % span == 0) {
      walk.merge_span();
      walk.begin_span();
    }
    const int keys = static_cast<int>(end - first < key_block ? end - first : key_block);
    const Seen seen = classify(problem, b, h, row_begin, row_end, first, first + keys);
    if (seen == Seen::none) continue;
    if (seen == Seen::all) {
      walk.block(first, keys, nullptr);
    } else if (look(problem, b, h, row_begin, rows, first, keys, visible)) {
      walk.block(first, keys, visible);
    }
  }
  walk.merge_span();
  return write(walk);
}

const AttentionTarget& table() {
  static const AttentionTarget target = {HWY_TARGET == HWY_AVX2 ? "avx2" : HWY_TARGET == HWY_AVX3 ? "avx512" : "neon", prefill<float>, prefill<double>};
  return target;
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
