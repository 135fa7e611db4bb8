// src/kernels/attention/pass/amx_forward_pass-inl.h: computes the forward pass of one query tile in bf16 by AMX.
#if defined(ATTN_AMX_FORWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_FORWARD_PASS_INL_H
#undef ATTN_AMX_FORWARD_PASS_INL_H
#else
#define ATTN_AMX_FORWARD_PASS_INL_H
#endif

#include "kernels/attention/pass/bf16_forward_pass-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Bf16ForwardPass that does not convert int8 in registers, which needs another layout of decode output. It merges the
/// partial results of AMX and uses no tile registers itself.
class WidenedBf16ForwardPass : public Bf16ForwardPass {
 public:
  WidenedBf16ForwardPass(const AttentionProblem& p, const QueryTile& lane_map, void* memory)
      : Bf16ForwardPass(p, lane_map, memory, false) {}
};

/// The same with its products by AMX.
class AmxForwardPass : public WidenedBf16ForwardPass {
 public:
  AmxForwardPass(const AttentionProblem& p, const QueryTile& lane_map, void* memory)
      : WidenedBf16ForwardPass(p, lane_map, memory) {
    uses_amx = true;
    spread_next(4, block_keys);
    slice_keys = bf16_rows;
    shape_tiles(shape_, pairs);
    shape = &shape_;
    if (!decode) return;
    shape_decode_tiles(decode_shape_, static_cast<int>(tile.count()));
    decode_shape = &decode_shape_;
  }

 private:
  AmxTiles shape_, decode_shape_;
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
