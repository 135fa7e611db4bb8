// src/kernels/attention/amx_walk-inl.h: a strip of bf16 rows whose products go through tile registers.
#if defined(ATTN_AMX_WALK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_WALK_INL_H
#undef ATTN_AMX_WALK_INL_H
#else
#define ATTN_AMX_WALK_INL_H
#endif

#include "kernels/attention/bf16_walk-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Bf16Walk without 8 bits in registers, for which the columns of few rows stand elsewhere. It merges what tile
/// registers left, and needs none.
class WidenedBf16Walk : public Bf16Walk {
 public:
  WidenedBf16Walk(const AttentionProblem& p, const LaneMap& lane_map, void* scratch)
      : Bf16Walk(p, lane_map, scratch, false) {}
};

/// The same by tile registers.
class TiledBf16Walk : public WidenedBf16Walk {
 public:
  TiledBf16Walk(const AttentionProblem& p, const LaneMap& lane_map, void* scratch)
      : WidenedBf16Walk(p, lane_map, scratch) {
    tiles = true;
    spread_next(4, block_keys);
    slice_keys = bf16_rows;
    shape_tiles(shape_, pairs);
    shape = &shape_;
    if (!few) return;
    shape_few_tiles(few_shape_, static_cast<int>(map.count()));
    few_shape = &few_shape_;
  }

 private:
  Tiles shape_, few_shape_;
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
