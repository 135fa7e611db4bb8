// src/kernels/prefetch/decode_kv_prefetch.h: prefetches K/V rows at a fixed distance while decode reads them in order,
// also from pages.
#pragma once
#include "kernels/attention/kv_rows.h"
#include "kernels/prefetch/prefetch_line.h"

#include <algorithm>

namespace attn::kernels {

/// Prefetches K or V rows of decode into L2 in the order in which they are read.
///  Full DRAM bandwidth needs early, evenly spaced prefetches. The tiles prefetch lines 24 KB ahead (12 KB in bf16, 8
/// KB of int8), one by one between their products, because many prefetches at once delay each other and the next loads.
/// The page table of a paged cache is read beyond that distance. No row is loaded before it is used: such a load would
/// wait behind the prefetches. Bandwidth as a fraction of that of reading alone (f32, D = 128): .98 on an AMD EPYC of
/// the fourth generation, .77 on an Intel Xeon (.67 and .71 with loads in advance and 4 KB of prefetches). In bf16
/// memory is slower than the products. So up to 256 lines are left to the code between the products, during which
/// memory would be idle (a tenth less time with AMX).
///  When the miss queue is full the CPU drops software prefetches, and the later load stalls. So each line is
/// prefetched four times, at decreasing distance, if K and V exceed the last-level cache. Time relative to one prefetch
/// on an AMD EPYC of the fifth generation: f32 .87, bf16 .82; from pages of 16 rows .86 and .79; with two prefetches
/// .89 and .93. With K and V in the caches it would take a quarter more time.
class StreamPrefetcher {
 public:
  /// How often a line is prefetched if K and V exceed the last-level cache.
  static constexpr int prefetch_repeats = 4;

  /// Starts to prefetch rows [first, end). `uses`: how often use() is called for each row: twice for rows that are keys
  /// and values.
  [[gnu::noinline]] void begin(const KvRows& rows, std::int64_t columns, std::int64_t first, std::int64_t end,
                               bool exceeds_llc, int uses = 1) {
    exceeds_llc_ = exceeds_llc;
    uses_ = uses;
    due_ = left_ = 0;
    for (Address& at : taken_) at = address_of(row_at(rows, first));
    run_ = runs_ = 0;
    rows_ = &rows;
    row_bytes_ = bytes_of(rows.element) * columns;
    whole_ = rows.row_stride == columns;
    unit_ = rows.interleave_width == 0 ? 1 : KvRows::group_rows;
    row_ = first & -unit_;
    end_ = (end + unit_ - 1) & -unit_;
    if (row_bytes_ == 0) return;
    deferred_ = rows.element == Element::bf16 ? 256 : 0;
    due_ = distance(rows.element) / line + deferred_;
    if (uses > 1) {
      const bool bf16 = rows.element == Element::bf16;
      due_ += lines_of(bf16 ? 2 * tile_rows : tile_rows);
      exceeds_llc_ = exceeds_llc && !bf16;
    }
    prefetch_due();
  }
  bool exceeds_llc() const { return exceeds_llc_; }
  /// Returns whether more than three quarters of the lines that may be deferred are deferred.
  bool late() const { return due_ > deferred_ * 3 / 4; }
  /// Returns what to prefetch: the next `lines` lines, and for TIMES > 1 those that earlier calls returned, again. At
  /// the end of a run (contiguous rows) some lines are beyond it. If fewer lines are due, or none are left, all
  /// addresses are `otherwise`, the line that the caller computes with: callers that prefetch between their products
  /// (prefetch_share) always prefetch something.
  template <int TIMES>
  [[gnu::always_inline]] PrefetchAddresses<TIMES> take(std::int64_t lines, Address otherwise) {
    PrefetchAddresses<TIMES> next;
    if (due_ < lines || (left_ <= 0 && run_ == runs_)) {
      for (Address& at : next.at) at = otherwise;
      return next;
    }
    if (left_ <= 0) {
      due_ -= left_;  // gives back the lines that were taken beyond the last run
      at_ = next_[run_].at;
      left_ = next_[run_++].lines;
    }
    next.at[0] = at_;
    if constexpr (TIMES > 1) {
      for (unsigned n = 1; n < TIMES; ++n) next.at[n] = taken_[(takes_ - n * again) % kept];
      taken_[takes_++ % kept] = at_;
    }
    at_ += static_cast<Address>(lines * line);
    left_ -= lines;
    due_ -= lines;
    return next;
  }
  /// Prefetches the next LINES lines, if that many are due.
  template <int LINES>
  [[gnu::always_inline]] void fetch() {
    const Address at = take<1>(LINES, 0).at[0];
    if (at == 0) return;
    for (int i = 0; i < LINES; ++i) prefetch_l2(at + i * line);
  }
  /// Prefetches eight lines. Not inlined, because it is called where no vectors are in registers.
  [[gnu::noinline]] void fetch_eight() { fetch<8>(); }
  /// Must be called before the next `count` rows are read: as many further rows become due.
  [[gnu::noinline]] void use(std::int64_t count) {
    if (row_bytes_ == 0) return;
    prefetch_due();  // what no tile has prefetched and what cannot be deferred
    due_ += (lines_of(count) + uses_ - 1) / uses_;
    look_up();
  }

 private:
  static constexpr std::int64_t line = 64, page = 4096;
  // Rows that are keys and values are long (1 to 2 KB): a tile of scores begins all of its rows at once, so they are
  // prefetched that much earlier, and a run has several rows. D = 576 on an AMD EPYC of the fifth generation, GB/s for
  // 0, 32 and 64 rows: f32 21, 30, 27; f16 22, 33, 27. bf16, in blocks of 256 keys: 18, 20, 22, and 27 with 64 rows and
  // one prefetch a line.
  static constexpr std::int64_t tile_rows = 32, long_run = 16;

  /// Returns how many bytes ahead the tiles prefetch. A larger distance takes 8 % more time in bf16, and 12 KB of int8
  /// take 7 % more than 8 KB in f32.
  static std::int64_t distance(Element element) {
    return is_int8(element) ? 8192 : element == Element::bf16 ? 12288 : 24576;
  }
  std::int64_t run(std::int64_t j, std::int64_t most) const { return whole_ ? rows_of_page(*rows_, j, most) : 1; }
  std::int64_t lines_of(std::int64_t rows) const { return (rows * row_bytes_ + line - 1) / line; }
  [[gnu::noinline]] void prefetch_due() {
    while (due_ > deferred_) {
      if (left_ <= 0 && run_ == runs_) look_up();
      if (left_ <= 0 && run_ == runs_) due_ = deferred_;
      fetch<1>();
    }
  }
  /// Looks up more runs in the page table and prefetches their first lines and their scales.
  [[gnu::noinline]] void look_up() {
    if (row_bytes_ == 0) return;
    int kept = 0;
    while (run_ < runs_) next_[kept++] = next_[run_++];
    run_ = 0;
    runs_ = kept;
    const std::int64_t least = uses_ > 1 ? long_run : unit_;
    for (std::int64_t most = std::max(page / row_bytes_ & -unit_, least); runs_ < most_runs && row_ < end_; ++runs_) {
      const std::int64_t rows = run(row_, std::min(end_ - row_, most));
      next_[runs_] = {address_of(row_at(*rows_, row_)), lines_of(rows)};
      prefetch_l2(next_[runs_].at);
      for (std::int64_t i = 0; i < rows * rows_->scale_stride; i += 16)
        prefetch_l2(address_of(scales_at(*rows_, row_) + i));
      row_ += rows;
    }
  }

  /// Contiguous rows, at most one page, or `long_run` rows.
  struct Run {
    Address at;
    std::int64_t lines;
  };
  static constexpr int most_runs = 6;
  // a line is prefetched again after `again` calls of take(); `kept` addresses are stored
  static constexpr unsigned again = 8, kept = 32;

  // members without a value are set by begin(): most query tiles never use this
  const KvRows* rows_;
  std::int64_t row_bytes_ = 0;
  bool exceeds_llc_ = false;
  int uses_ = 1;
  bool whole_;           // no gap between rows
  std::int64_t unit_;    // rows that are stored together
  Address taken_[kept];  // ring buffer of the last addresses
  unsigned takes_ = 0;
  Run next_[most_runs];
  int run_, runs_;
  Address at_;
  // left_: lines of the current run that are left; due_: lines to be prefetched now; deferred_: how many of them may
  // wait
  std::int64_t left_, due_ = 0, deferred_ = 0;
  std::int64_t row_, end_;  // rows that are not yet looked up
};

}  // namespace attn::kernels
