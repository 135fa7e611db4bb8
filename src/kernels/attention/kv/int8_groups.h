// src/kernels/attention/kv/int8_groups.h: holds the addresses of a block's int8 groups: 16 rows of K or V that are
// stored together, and their scales.
#pragma once
#include "kernels/attention/kv_rows.h"
#include "kernels/attention/block_and_tile_sizes.h"

namespace attn::kernels {

struct Int8Groups {
  static constexpr int rows = static_cast<int>(KvRows::group_rows), most = bf16_kv_block / rows;
  const std::int8_t* group[most];
  const float* scales[most];
  std::int64_t scale_stride;

  /// Looks up the groups of the keys [first, first + keys).
  [[gnu::noinline]] void load(const KvRows& head, std::int64_t first, int keys) {
    for (int n = 0; n * rows < keys; ++n) {
      group[n] = reinterpret_cast<const std::int8_t*>(row_at(head, first + n * rows));
      scales[n] = scales_at(head, first + n * rows);
    }
    scale_stride = head.scale_stride;
  }
  /// Returns the scales from a key's row on; the key is counted from the block's first.
  const float* scales_of(int key) const { return scales[key / rows] + key % rows * scale_stride; }
};

}  // namespace attn::kernels
