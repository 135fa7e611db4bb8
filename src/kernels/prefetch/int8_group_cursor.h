// src/kernels/prefetch/int8_group_cursor.h: holds the addresses of a block's int8 groups (16 rows of K or V that are
// stored together) and of the groups after it, which are prefetched.
#pragma once
#include "kernels/prefetch/prefetch.h"
#include "kernels/attention/kv_rows.h"
#include "kernels/attention/block_sizes.h"

#include <algorithm>

namespace attn::kernels {

/// Decode has one cursor for K and one for V. Code that computes with a part of a group prefetches the same part of the
/// group `ahead` groups later, line by line between its products (stream_prefetch.h). So the cursor only stores how
/// many groups were prefetched.
class Int8GroupCursor {
 public:
  static constexpr int rows = static_cast<int>(KvRows::group_rows);
  /// The prefetch distance in groups: the number of groups that a tile of keys uses at once. A distance of six or eight
  /// takes 1 to 3 % more time on a fourth-generation AMD EPYC.
  static constexpr int ahead = 4;

  /// Looks up the groups of the block of `keys` keys from `first` on, and the `ahead` groups after it, up to key `end`.
  /// If the block follows the previous one, some of its groups are already prefetched. Entries beyond the last group
  /// repeat it, because a tile may read beyond a block and prefetches beyond that.
  [[gnu::noinline]] void load(const KvRows& head, std::int64_t first, std::int64_t end, int keys) {
    const std::int64_t left = (end - first + rows - 1) / rows;
    const int block = (keys + rows - 1) / rows;
    count_ = static_cast<int>(left < block + ahead ? left : block + ahead);
    for (int n = 0; n < count_; ++n) {
      group_[n] = reinterpret_cast<const std::int8_t*>(row_at(head, first + n * rows));
      scales_[n] = scales_at(head, first + n * rows);
    }
    std::fill(group_ + count_, group_ + most, group_[count_ - 1]);
    std::fill(scales_ + count_, scales_ + most, scales_[count_ - 1]);
    lines_ = head.row_stride * rows / KvRows::line;
    scale_stride_ = head.scale_stride;
    prefetched_ = first == next_first_ ? prefetched_ - last_block_ : 0;
    last_block_ = block;
    next_first_ = first + keys;
  }

  /// Return the group that contains a key, counted from the block's first, and the scales from that key's row on.
  const std::int8_t* group(int key) const { return group_[key / rows]; }
  const float* scales(int key) const { return scales_[key / rows] + key % rows * scale_stride_; }
  /// Returns the scales, one pointer per group.
  const float* const* scales() const { return scales_; }
  std::int64_t scale_stride() const { return scale_stride_; }

  /// Returns the offset from an address in a key's group to the address to prefetch.
  Address to_prefetched(int key) const {
    return address_of(group_[key / rows + ahead]) - address_of(group_[key / rows]);
  }
  /// Prepares for keys [key, end), which are used next: prefetches what their tiles do not prefetch themselves, and
  /// what earlier tiles missed.
  template <bool TILES_PREFETCH>
  [[gnu::noinline]] void use(int key, int end) {
    const int known = std::min(key / rows + ahead, count_), last = std::min((end + rows - 1) / rows + ahead, count_);
    for (int n = std::max(prefetched_, key / rows); n < last; ++n) {
      for (std::int64_t i = 0; i < rows * scale_stride_; i += 16) prefetch_l2(address_of(scales_[n] + i));
      for (std::int64_t i = 0; (!TILES_PREFETCH || n < known) && i < lines_; ++i)
        prefetch_l2(address_of(group_[n] + i * KvRows::line));
    }
    prefetched_ = std::max(prefetched_, last);
  }

 private:
  static constexpr int most = bf16_kv_block / rows + ahead;
  // members without a value are set by load(): most query tiles never use this
  const std::int8_t* group_[most];
  const float* scales_[most];
  std::int64_t scale_stride_, lines_, next_first_ = -1;
  // the number of groups in group_; of groups in the block that was loaded last; of groups that were prefetched,
  // counted from that block's first
  int count_, last_block_, prefetched_;
};

}  // namespace attn::kernels
