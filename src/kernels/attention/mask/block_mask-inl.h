// src/kernels/attention/mask/block_mask-inl.h: computes the mask of a block of keys: for each key, one bit per query
// row.
#if defined(ATTN_BLOCK_MASK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BLOCK_MASK_INL_H
#undef ATTN_BLOCK_MASK_INL_H
#else
#define ATTN_BLOCK_MASK_INL_H
#endif

#include "kernels/attention/mask/mask_bits.h"
#include "kernels/attention/query_tile.h"
#include "kernels/attention/mask/transpose_bits-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Returns a word whose bit j says whether bytes[j] is not 0 (`value`) or is 0 (not `value`).
HWY_INLINE Word bits_of_64(const std::uint8_t* bytes, bool value) {
  const hn::ScalableTag<std::uint8_t> d;
  constexpr int N = static_cast<int>(HWY_LANES(std::uint8_t));
  Word word = 0;
  for (int j = 0; j < 64; j += N) {
    alignas(8) std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, bytes + j), hn::Zero(d)), bits);
    Word part;
    std::memcpy(&part, bits, 8);
    word |= part << j;
  }
  return value ? word : ~word;
}

/// Does what bits_of_bytes does, by vectors for whole words.
struct VectorBits {
  HWY_NOINLINE Word operator()(const std::uint8_t* bytes, std::int64_t stride, bool value, int count) const {
    return stride == 1 && count == 64 ? bits_of_64(bytes, value) : bits_of_bytes(bytes, stride, value, count);
  }
};

/// Returns whether a part of the mask is computed key by key: a band, or lists that adjacent rows share.
HWY_INLINE bool is_by_keys(const MaskNode& node) {
  constexpr std::int64_t least_rows = 8;  // with fewer rows of a list, rows that are transposed take less time
  return node.op == MaskOp::causal || node.op == MaskOp::window ||
         (node.op == MaskOp::blocks && node.lists.block_rows >= least_rows);
}

/// Returns whether the mask is one such part, or several that are joined with &.
HWY_INLINE bool is_by_keys(const MaskProgram& mask) {
  for (int n = 0; n < mask.count; ++n)
    if (mask.nodes[n].op != MaskOp::op_and && !is_by_keys(mask.nodes[n])) return false;
  return mask.count > 0;
}

/// Computes, for each key, the rows that see it by one causal mask or window.
HWY_INLINE void band_mask(const AttentionProblem& problem, const MaskNode& node, const Task& tile, std::int64_t first,
                          int keys, Word* visible) {
  const std::int64_t left = node.op == MaskOp::causal ? -1 : node.left,
                     right = node.op == MaskOp::causal ? 0 : node.right;
  // the lane whose row has the position of the key
  std::int64_t at = problem.key_position(tile, first);
  at -= problem.row_offset(tile, node.bottom_right) + tile.row;
  for (int r = 0; r < keys; ++r, ++at)
    visible[r] =
        bits_between(right < 0 ? 0 : at - right, left < 0 || at + left >= tile.rows ? tile.rows : at + left + 1);
}

/// Computes the same by lists of blocks.
HWY_INLINE void lists_mask(const BlockLists& lists, const Task& tile, std::int64_t first, int keys, Word* visible) {
  for (int r = 0; r < keys; ++r) visible[r] = 0;
  for (std::int64_t row = 0, next; row < tile.rows; row = next) {
    const std::int64_t i = tile.row + row;
    next = std::min(tile.rows, row + lists.block_rows - i % lists.block_rows);
    const Word rows = bits_between(row, next);
    for_each_listed(lists, lists.of(tile.batch, tile.head, i), first, first + keys,
                    [&](std::int64_t begin, std::int64_t end) {
                      const std::int64_t from = std::max(begin, first), to = std::min(end, first + keys);
                      for (std::int64_t j = from; j < to; ++j) visible[j - first] |= rows;
                    });
  }
}

/// Computes the same by parts that are joined with &.
HWY_INLINE void mask_by_keys(const AttentionProblem& problem, const Task& tile, std::int64_t first, int keys,
                             Word* visible) {
  const auto part = [&](const MaskNode& node, Word* to) {
    if (node.op == MaskOp::blocks) lists_mask(node.lists, tile, first, keys, to);
    else band_mask(problem, node, tile, first, keys, to);
  };
  part(problem.mask.nodes[0], visible);
  for (int n = 1; n < problem.mask.count; ++n) {
    if (problem.mask.nodes[n].op == MaskOp::op_and) continue;
    Word more[64];
    part(problem.mask.nodes[n], more);
    for (int r = 0; r < keys; ++r) visible[r] &= more[r];
  }
}

/// Computes the same for 64 rows and 64 keys of one dense mask whose keys are contiguous.
HWY_INLINE void dense_mask(const AttentionProblem& problem, const Task& tile, std::int64_t first, Word* visible) {
  const MaskNode& node = problem.mask.nodes[0];
  const std::int64_t* stride = node.dense.stride;
  const auto* bytes = static_cast<const std::uint8_t*>(node.dense.data) + tile.batch * stride[0] +
                      tile.head * stride[1] + tile.row * stride[2] + first;
  for (std::int64_t i = 0; i < 64; ++i) visible[i] = bits_of_64(bytes + i * stride[2], node.value);
  transpose_bits(visible);
}

/// Computes the mask of a block: one word per key, one bit per query row. Returns false when the whole block is masked.
HWY_NOINLINE inline bool block_mask(const AttentionProblem& problem, const Task& tile, std::int64_t first, int keys,
                                    Word* visible) {
  const bool dense = tile.heads == 1 && tile.rows == 64 && problem.mask.count == 1 &&
                     problem.mask.nodes[0].op == MaskOp::dense && problem.mask.nodes[0].dense.stride[3] == 1;
  const bool by_keys = tile.heads == 1 && is_by_keys(problem.mask);
  Word any = 0;
  for (int part = 0; part < keys; part += 64, visible += 64) {
    const int count = keys - part < 64 ? keys - part : 64;
    if (by_keys) {
      mask_by_keys(problem, tile, first + part, count, visible);
    } else if (dense && count == 64) {
      dense_mask(problem, tile, first + part, visible);
    } else {
      int lane = 0;
      for (std::int64_t n = 0; n < tile.heads; ++n)
        for (std::int64_t i = 0; i < tile.rows; ++i)
          visible[lane++] = mask_word(problem, tile, tile.head + n, tile.row + i, first + part, count, VectorBits());
      for (; lane < 64; ++lane) visible[lane] = 0;
      transpose_bits(visible);
    }
    const Word no_rows = bits_between(tile.count(), 64);
    // lanes without a row count as seeing, so that fully visible vectors are recognised
    for (int r = 0; r < count; ++r) {
      any |= visible[r];
      if (visible[r] != 0) visible[r] |= no_rows;
    }
  }
  return any != 0;
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
