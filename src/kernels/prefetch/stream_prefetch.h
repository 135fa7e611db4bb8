// src/kernels/prefetch/stream_prefetch.h: prefetches K/V rows at a fixed distance while decode reads them in order,
// also from pages.
#pragma once
#include "kernels/attention/kv_rows.h"
#include "kernels/prefetch/prefetch.h"
#include "kernels/attention/block_sizes.h"

namespace attn::kernels {

/// Prefetches K or V rows of decode into L2 in the order in which they are read.
///  Full DRAM bandwidth needs early, evenly spaced prefetches. The tiles prefetch lines 24 KB ahead (12 KB in bf16),
/// one by one between their products: many at once queue behind each other, and so do the loads of what is computed
/// next. Page tables beyond that distance are read meanwhile. No row is loaded early: such a load would wait behind the
/// prefetches. f32, D = 128, as a fraction of the bandwidth of reading alone: .98 on an AMD EPYC of the fourth
/// generation, .77 on an Intel Xeon (.67 and .71 with loads in advance and 4 KB of prefetches). In bf16 some lines are
/// left to the code between the products: memory is slower than the products and would be idle during that code (a
/// tenth less time with AMX).
///  When the miss queue is full the CPU drops software prefetches, and the later load stalls. So each line is
/// prefetched four times, at decreasing distance. On an AMD EPYC of the fifth generation: f32 .87 of the time, bf16
/// .82, from pages of 16 rows .86 and .79; prefetched twice .89 and .93. With K and V in the caches it would cost a
/// quarter more.
class StreamPrefetcher {
 public:
  /// How often a line is prefetched if K and V exceed the last-level cache.
  static constexpr int prefetch_repeats = 4;

  /// Begins with rows [first, end).
  [[gnu::noinline]] void begin(const KvRows& rows, std::int64_t columns, std::int64_t first, std::int64_t end,
                               bool exceeds_llc) {
    exceeds_llc_ = exceeds_llc;
    due_ = left_ = 0;
    for (Address& at : taken_) at = address_of(row_at(rows, first));
    run_ = runs_ = 0;
    rows_ = &rows;
    row_bytes_ = bytes_of(rows.element) * columns;
    whole_ = rows.row_stride == columns;
    row_ = first;
    end_ = end;
    if (row_bytes_ == 0) return;
    deferred_ = rows.element == Element::bf16 ? 256 : 0;
    due_ = (rows.element == Element::bf16 ? 12288 : 24576) / line +
           deferred_;  // a larger distance for bf16 takes 8 % more time
    prefetch_due();
  }
  bool exceeds_llc() const { return exceeds_llc_; }
  /// Returns whether nearly as many lines are deferred as allowed.
  bool late() const { return due_ > deferred_ * 3 / 4; }
  /// Returns the next LINES lines to prefetch, up to the end of the rows to be read; at the end of a run some lines are
  /// beyond it. If none are left: `otherwise`, the line that the caller computes with, for callers that prefetch
  /// between their products (prefetch_share).
  template <int LINES, int TIMES>
  [[gnu::always_inline]] PrefetchAddresses<TIMES> take(Address otherwise) {
    PrefetchAddresses<TIMES> lines;
    if (due_ < LINES || (left_ <= 0 && run_ == runs_)) {
      for (Address& at : lines.at) at = otherwise;
      return lines;
    }
    if (left_ <= 0) {
      due_ -= left_;  // subtracts the lines beyond the last one
      at_ = next_[run_].at;
      left_ = next_[run_++].lines;
    }
    lines.at[0] = at_;
    if constexpr (TIMES > 1) {
      for (unsigned n = 1; n < TIMES; ++n) lines.at[n] = taken_[(takes_ - n * again) % kept];
      taken_[takes_++ % kept] = at_;
    }
    at_ += LINES * line;
    left_ -= LINES;
    due_ -= LINES;
    return lines;
  }
  /// Prefetches these lines.
  template <int LINES>
  [[gnu::always_inline]] void fetch() {
    const Address at = take<LINES, 1>(0).at[0];
    if (at == 0) return;
    for (int i = 0; i < LINES; ++i) prefetch_l2(at + i * line);
  }
  /// Not inlined; called where no vectors are in registers.
  [[gnu::noinline]] void fetch_eight() { fetch<8>(); }
  /// Notes that the next `count` rows are read now.
  [[gnu::noinline]] void use(std::int64_t count) {
    if (row_bytes_ == 0) return;
    prefetch_due();  // prefetches what no tile has prefetched and what cannot be deferred
    due_ += lines_of(count);
    look_up();
  }

 private:
  static constexpr std::int64_t line = 64, page = 4096;

  std::int64_t run(std::int64_t j, std::int64_t most) const { return whole_ ? rows_of_page(*rows_, j, most) : 1; }
  std::int64_t lines_of(std::int64_t rows) const { return (rows * row_bytes_ + line - 1) / line; }
  [[gnu::noinline]] void prefetch_due() {
    while (due_ > deferred_) {
      if (left_ <= 0 && run_ == runs_) look_up();
      if (left_ <= 0 && run_ == runs_) due_ = deferred_;
      fetch<1>();
    }
  }
  /// Looks up more runs in the page table and prefetches their first lines.
  [[gnu::noinline]] void look_up() {
    if (row_bytes_ == 0) return;
    int kept = 0;
    while (run_ < runs_) next_[kept++] = next_[run_++];
    run_ = 0;
    runs_ = kept;
    for (std::int64_t most = row_bytes_ < page ? page / row_bytes_ : 1; runs_ < most_runs && row_ < end_; ++runs_) {
      const std::int64_t rows = run(row_, end_ - row_ < most ? end_ - row_ : most);
      next_[runs_] = {address_of(row_at(*rows_, row_)), lines_of(rows)};
      prefetch_l2(next_[runs_].at);
      row_ += rows;
    }
  }

  /// Contiguous rows, at most one page.
  struct Run {
    Address at;
    std::int64_t lines;
  };
  static constexpr int most_runs = 6;
  // a line is prefetched again after `again` takes; `kept` addresses are stored
  static constexpr unsigned again = 8, kept = 32;

  // members without a value are set by begin(): most query tiles never use this
  const KvRows* rows_;
  std::int64_t row_bytes_ = 0;
  bool exceeds_llc_ = false;
  bool whole_;           // no gap between rows
  Address taken_[kept];  // ring buffer of the last addresses
  unsigned takes_ = 0;
  Run next_[most_runs];
  int run_, runs_;
  Address at_;
  // lines left in the current run; lines that are due; how many of those may be deferred
  std::int64_t left_, due_ = 0, deferred_ = 0;
  std::int64_t row_, end_;  // rows that are not yet looked up
};

}  // namespace attn::kernels
