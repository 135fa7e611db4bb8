// src/kernels/attention/lines_ahead.h: rows of K or V asked for ahead of their use by few query rows, while others are
// computed with.
#pragma once
#include "kernels/attention/key_rows.h"
#include "kernels/attention/next_head.h"
#include "kernels/attention/tiles.h"

namespace attn::kernels {

/// Memory gives what it can only to who asks early and steadily. So the tiles ask for lines 24 KB further on (12 KB of
/// bf16) as they go, one by one between their products: many at once wait for each other, and what is computed next
/// waits for them. Pages after those are looked up meanwhile. Nothing is read before: such reads would wait behind what
/// was asked for. f32, D = 128, of reading alone: .98 (read before, with the next 4 KB asked for: .67) on an AMD EPYC
/// of the fourth generation, .77 (.71) on an Intel Xeon. Of bf16 some lines are put off until what comes between the
/// products asks for them: memory is slower than the products, and idle meanwhile (with tile registers a tenth less
/// time).
///  While memory has more to bring than it can, the processor lets asks fall, and who computes then waits for those
/// lines. So each is asked for four times on its way, nearer each time. On an AMD EPYC of the fifth generation: f32 .87
/// of the time, bf16 .82, from pages of 16 .86 and .79; asked for twice .89 and .93. In the caches it would cost a
/// quarter more.
class LinesAhead {
 public:
  /// How often a line is asked for where K and V are too large to stay in the caches.
  static constexpr int times_of_far = 4;

  /// Rows [first, end) will be used.
  [[gnu::noinline]] void begin(const KeyRows& rows, std::int64_t columns, std::int64_t first, std::int64_t end,
                               bool far) {
    far_ = far;
    due_ = left_ = 0;
    for (Place& at : taken_) at = place_of(row_at(rows, first));
    run_ = runs_ = 0;
    rows_ = &rows;
    row_bytes_ = bytes_of(rows.element) * columns;
    whole_ = rows.row_stride == columns;
    row_ = first;
    end_ = end;
    if (row_bytes_ == 0) return;
    put_off_ = rows.element == Element::bf16 ? 256 : 0;
    due_ = (rows.element == Element::bf16 ? 12288 : 24576) / line + put_off_;  // more of bf16: a twelfth more time
    ask();
  }
  bool far() const { return far_; }
  /// Whether hardly more lines can be put off.
  bool late() const { return due_ > put_off_ * 3 / 4; }
  /// So many lines to ask for, as far as rows that are used allow; at the end of a run some are beyond it. Where there
  /// are none: `otherwise`, for who asks between its products (ask_share) what it computes with.
  template <int LINES, int TIMES>
  [[gnu::always_inline]] Asks<TIMES> take(Place otherwise) {
    Asks<TIMES> asks;
    if (due_ < LINES || (left_ <= 0 && run_ == runs_)) {
      for (Place& at : asks.at) at = otherwise;
      return asks;
    }
    if (left_ <= 0) {
      due_ -= left_;  // what was beyond the last one
      at_ = next_[run_].at;
      left_ = next_[run_++].lines;
    }
    asks.at[0] = at_;
    if constexpr (TIMES > 1) {
      for (unsigned n = 1; n < TIMES; ++n) asks.at[n] = taken_[(takes_ - n * again) % kept];
      taken_[takes_++ % kept] = at_;
    }
    at_ += LINES * line;
    left_ -= LINES;
    due_ -= LINES;
    return asks;
  }
  /// Asks for them.
  template <int LINES>
  [[gnu::always_inline]] void fetch() {
    const Place at = take<LINES, 1>(0).at[0];
    if (at == 0) return;
    for (int i = 0; i < LINES; ++i) ask_for(at + i * line);
  }
  /// Out of line, where no vectors are in registers.
  [[gnu::noinline]] void fetch_eight() { fetch<8>(); }
  /// `count` rows are used next.
  [[gnu::noinline]] void use(std::int64_t count) {
    if (row_bytes_ == 0) return;
    ask();  // what no tile asked for, and cannot be put off
    due_ += lines_of(count);
    look_up();
  }

 private:
  static constexpr std::int64_t line = 64, page = 4096;

  std::int64_t run(std::int64_t j, std::int64_t most) const { return whole_ ? rows_of_page(*rows_, j, most) : 1; }
  std::int64_t lines_of(std::int64_t rows) const { return (rows * row_bytes_ + line - 1) / line; }
  [[gnu::noinline]] void ask() {
    while (due_ > put_off_) {
      if (left_ <= 0 && run_ == runs_) look_up();
      if (left_ <= 0 && run_ == runs_) due_ = put_off_;
      fetch<1>();
    }
  }
  /// More runs: the first lines of their pages.
  [[gnu::noinline]] void look_up() {
    if (row_bytes_ == 0) return;
    int kept = 0;
    while (run_ < runs_) next_[kept++] = next_[run_++];
    run_ = 0;
    runs_ = kept;
    for (std::int64_t most = row_bytes_ < page ? page / row_bytes_ : 1; runs_ < most_runs && row_ < end_; ++runs_) {
      const std::int64_t rows = run(row_, end_ - row_ < most ? end_ - row_ : most);
      next_[runs_] = {place_of(row_at(*rows_, row_)), lines_of(rows)};
      ask_for(next_[runs_].at);
      row_ += rows;
    }
  }

  /// Rows behind one another, of a page at most.
  struct Run {
    Place at;
    std::int64_t lines;
  };
  static constexpr int most_runs = 6;
  static constexpr unsigned again = 8, kept = 32;  // what was taken so many takes ago is asked for again

  // begin() sets what has no value here: most strips are never read so
  const KeyRows* rows_;
  std::int64_t row_bytes_ = 0;
  bool far_ = false;
  bool whole_;         // no gap between rows
  Place taken_[kept];  // the last, in turn
  unsigned takes_ = 0;
  Run next_[most_runs];
  int run_, runs_;
  Place at_;
  // lines of the run that is asked for; that may be asked for; of those, that may wait
  std::int64_t left_, due_ = 0, put_off_ = 0;
  std::int64_t row_, end_;  // not looked up
};

}  // namespace attn::kernels
