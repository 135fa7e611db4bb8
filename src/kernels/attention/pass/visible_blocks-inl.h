// src/kernels/attention/pass/visible_blocks-inl.h: goes through the blocks of keys of a split and leaves out those that
// no row of the query tile sees.
#if defined(ATTN_VISIBLE_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_VISIBLE_BLOCKS_INL_H
#undef ATTN_VISIBLE_BLOCKS_INL_H
#else
#define ATTN_VISIBLE_BLOCKS_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/attention/mask/block_mask-inl.h"
#include "kernels/attention/mask/mask_program.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Computes the blocks of keys [first, end), which are in one split.
template <class W>
HWY_NOINLINE void visit_blocks(W& pass, std::int64_t first, std::int64_t end) {
  const Task& tile = pass.tile;
  alignas(64) Word visible[W::block_keys];
  pass.begin_split(end);
  for (; first < end; first += W::block_keys) {
    const int keys = static_cast<int>(end - first < W::block_keys ? end - first : W::block_keys);
    const Visibility visibility =
        classify(pass.problem, tile, {tile.row, tile.row + tile.rows, first, first + keys, tile.head, tile.heads});
    if (visibility == Visibility::full ||
        (visibility == Visibility::partial && block_mask(pass.problem, tile, first, keys, visible))) {
      pass.block(first, keys, visibility == Visibility::full ? nullptr : visible);
    } else if (pass.returned_weights.wanted()) {
      pass.returned_weights.skip(first, keys, pass.vectors);
    }
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
