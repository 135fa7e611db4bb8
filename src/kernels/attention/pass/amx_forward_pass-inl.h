// src/kernels/attention/pass/amx_forward_pass-inl.h: defines the forward passes of one query tile in bf16 with products
// by AMX.
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

/// A Bf16DecodePass that does not convert int8 in registers, because that needs another layout of the output.
class WidenedBf16DecodePass : public Bf16DecodePass {
 public:
  WidenedBf16DecodePass(const AttentionProblem& p, const Task& query_tile, void* memory)
      : Bf16DecodePass(p, query_tile, memory, false) {}
};

/// The decode pass with products by AMX.
class AmxDecodePass : public WidenedBf16DecodePass {
 public:
  HWY_NOINLINE AmxDecodePass(const AttentionProblem& p, const Task& query_tile, void* memory)
      : WidenedBf16DecodePass(p, query_tile, memory) {
    shape_tiles(tiles_, pairs);
    shape_decode_tiles(value_tiles_, rows());
    amx = &tiles_;
    amx_values = &value_tiles_;
  }

 private:
  AmxTiles tiles_, value_tiles_;
};

/// Merges the partial results that AmxForwardPass computed for splits; uses no tile registers itself.
class AmxMergePass : public Bf16ForwardPass {
 public:
  using Decode = WidenedBf16DecodePass;
  using Bf16ForwardPass::Bf16ForwardPass;

  /// Returns the path of a query tile. If scores or weights are needed with query rows in the lanes, decode rows take
  /// the path of prefill.
  static Path path_of(const AttentionProblem& p, const Task& query_tile) {
    return keeps_keys_in_lanes(p, query_tile) ? Bf16ForwardPass::path_of(p, query_tile) : Path::prefill;
  }
};

/// Bf16ForwardPass with its products by AMX.
class AmxForwardPass : public AmxMergePass {
 public:
  using Decode = AmxDecodePass;

  HWY_NOINLINE AmxForwardPass(const AttentionProblem& p, const Task& query_tile, void* memory)
      : AmxMergePass(p, query_tile, memory) {
    spread_next(4, block_keys);
    shape_tiles(tiles_, pairs);
    amx = &tiles_;
  }

 private:
  AmxTiles tiles_;
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
