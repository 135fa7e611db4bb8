// src/kernels/attention/byte_groups.h: where groups of 16 rows of 8 bits lie, those of a block and of what comes after it, which is asked for meanwhile.
#pragma once
#include "kernels/ask.h"
#include "kernels/attention/key_rows.h"
#include "kernels/attention/tiles.h"

#include <algorithm>

namespace attn::kernels {

/// K or V of few rows. Their tiles ask for as many lines as they use, `ahead` groups further on, one by one between their products (lines_ahead.h).
class ByteGroups {
 public:
  static constexpr int rows = static_cast<int>(KeyRows::group_rows);
  /// Twice as far is no faster, half as far takes a quarter more time.
  static constexpr int ahead = 4;

  /// Those of the block of `keys` keys from `first` on, of those before `end`; the first that is used is that of key `first + begin`. What comes after the
  /// block before may have been asked for. Where there are no more groups the last is there again, as often as a tile may reach beyond a block.
  [[gnu::noinline]] void load(const KeyRows& head, std::int64_t first, std::int64_t end, int keys, int begin) {
    const std::int64_t left = (end - first + rows - 1) / rows;
    const int block = (keys + rows - 1) / rows;
    count_ = static_cast<int>(left < block + ahead ? left : block + ahead);
    for (int n = 0; n < count_; ++n) {
      group_[n] = reinterpret_cast<const std::int8_t*>(row_at(head, first + n * rows));
      scales_[n] = scales_at(head, first + n * rows);
    }
    for (int n = count_; n < block + most_beyond; ++n) {
      group_[n] = group_[count_ - 1];
      scales_[n] = scales_[count_ - 1];
    }
    lines_ = head.row_stride * rows / KeyRows::line;
    scale_stride_ = head.scale_stride;
    at_ = first == next_first_ ? at_ - last_block_ : -1;
    if (at_ < begin / rows) {
      at_ = begin / rows;
      left_ = 0;
    }
    last_block_ = block;
    next_first_ = first + keys;
  }

  /// The group and the scales of its rows that a key of the block is in.
  const std::int8_t* group(int key) const { return group_[key / rows]; }
  const float* scales(int key) const { return scales_[key / rows] + key % rows * scale_stride_; }
  /// Group after group.
  const float* const* scales() const { return scales_; }
  std::int64_t scale_stride() const { return scale_stride_; }

  /// Keys [key, end) are used next: asks for what no tile has asked for.
  [[gnu::noinline]] void use(int key, int end) {
    const int until = std::min(key / rows + ahead, count_);
    limit_ = std::min((end + rows - 1) / rows + ahead, count_);
    while (at_ < until || (at_ == until && left_ > 0)) {
      if (left_ <= 0) begin_group();
      for (; left_ > 0; --left_, next_ += KeyRows::line) ask_for(next_);
    }
  }
  /// So many lines to ask for; where there are none: `otherwise`.
  template <int LINES>
  [[gnu::always_inline]] Place take(Place otherwise) {
    if (left_ <= 0) {
      if (at_ >= limit_) return otherwise;
      begin_group();
    }
    const Place at = next_;
    next_ += LINES * KeyRows::line;
    left_ -= LINES;
    return at;
  }

 private:
  [[gnu::always_inline]] void begin_group() {
    next_ = place_of(group_[at_]);
    left_ = lines_;
    for (std::int64_t n = 0; n < rows * scale_stride_; n += 16) ask_for(place_of(scales_[at_] + n));
    ++at_;
  }

  static constexpr int most_beyond = 3, most = bf16_key_block / rows + ahead;
  static_assert(most_beyond <= ahead);
  // load() sets what has no value here: most strips are never read so
  const std::int8_t* group_[most];
  const float* scales_[most];
  std::int64_t scale_stride_, lines_, left_, next_first_ = -1;
  Place next_;
  int count_, last_block_, at_, limit_;  // groups that are known and those of the last block; the next to be asked for, and the first that is not yet
};

}  // namespace attn::kernels
