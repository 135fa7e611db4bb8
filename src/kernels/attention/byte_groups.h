// src/kernels/attention/byte_groups.h: where groups of 16 rows of 8 bits lie, those of a block and of what comes after
// it, which is asked for meanwhile.
#pragma once
#include "kernels/ask.h"
#include "kernels/attention/key_rows.h"
#include "kernels/attention/tiles.h"

#include <algorithm>

namespace attn::kernels {

/// K or V of few rows. Who computes with a part of a group asks for that part `ahead` groups further on, line by line
/// between its products (lines_ahead.h): nothing has to be kept of what was asked for but how many groups.
class ByteGroups {
 public:
  static constexpr int rows = static_cast<int>(KeyRows::group_rows);
  /// As many as a tile of keys uses at once. Six or eight take 1 to 3 % more time on an AMD EPYC of the fourth
  /// generation.
  static constexpr int ahead = 4;

  /// Those of the block of `keys` keys from `first` on, of those before `end`. What comes after the block before may
  /// have been asked for. Where there are no more groups the last is there again: a tile may reach beyond a block, and
  /// asks beyond it.
  [[gnu::noinline]] void load(const KeyRows& head, std::int64_t first, std::int64_t end, int keys) {
    const std::int64_t left = (end - first + rows - 1) / rows;
    const int block = (keys + rows - 1) / rows;
    count_ = static_cast<int>(left < block + ahead ? left : block + ahead);
    for (int n = 0; n < count_; ++n) {
      group_[n] = reinterpret_cast<const std::int8_t*>(row_at(head, first + n * rows));
      scales_[n] = scales_at(head, first + n * rows);
    }
    std::fill(group_ + count_, group_ + most, group_[count_ - 1]);
    std::fill(scales_ + count_, scales_ + most, scales_[count_ - 1]);
    lines_ = head.row_stride * rows / KeyRows::line;
    scale_stride_ = head.scale_stride;
    asked_ = first == next_first_ ? asked_ - last_block_ : 0;
    last_block_ = block;
    next_first_ = first + keys;
  }

  /// The group and the scales of its rows that a key of the block is in.
  const std::int8_t* group(int key) const { return group_[key / rows]; }
  const float* scales(int key) const { return scales_[key / rows] + key % rows * scale_stride_; }
  /// Group after group.
  const float* const* scales() const { return scales_; }
  std::int64_t scale_stride() const { return scale_stride_; }

  /// From a place of a key's group to that to ask for.
  Place to_ahead(int key) const { return place_of(group_[key / rows + ahead]) - place_of(group_[key / rows]); }
  /// Keys [key, end) are used next: asks for what their tiles do not ask for, which may be all of it, and what tiles
  /// before them have not.
  template <bool TILES_ASK>
  [[gnu::noinline]] void use(int key, int end) {
    const int known = std::min(key / rows + ahead, count_), last = std::min((end + rows - 1) / rows + ahead, count_);
    for (int n = std::max(asked_, key / rows); n < last; ++n) {
      for (std::int64_t i = 0; i < rows * scale_stride_; i += 16) ask_for(place_of(scales_[n] + i));
      for (std::int64_t i = 0; (!TILES_ASK || n < known) && i < lines_; ++i)
        ask_for(place_of(group_[n] + i * KeyRows::line));
    }
    asked_ = std::max(asked_, last);
  }

 private:
  static constexpr int most = bf16_key_block / rows + ahead;
  // load() sets what has no value here: most strips are never read so
  const std::int8_t* group_[most];
  const float* scales_[most];
  std::int64_t scale_stride_, lines_, next_first_ = -1;
  // groups that are known, those of the last block, and those from its first on that were asked for
  int count_, last_block_, asked_;
};

}  // namespace attn::kernels
