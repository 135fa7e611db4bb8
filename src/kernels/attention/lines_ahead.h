// src/kernels/attention/lines_ahead.h: rows of K or V asked for ahead of their use by few query rows, while others are computed with.
#pragma once
#include "kernels/attention/key_rows.h"
#include "kernels/attention/next_head.h"
#include "kernels/attention/tiles.h"
#include "runtime/cpu.h"

namespace attn::kernels {

/// In the order of the tiles, 32 rows at a time, memory gives half of what it can. So either
///   - rows are read in the order in which they lie, line after line, right before they are used, and lines some KB further on asked for at the
///     same time, so that the processor's own prefetch keeps up (f32, D = 128, of reading alone on an AMD EPYC: .82; with prefetches among
///     the tiles' multiplications .73);
///   - or, where there are tile registers, the tiles ask for lines as they go, and nothing is read before: such reads would wait behind
///     what was asked for (an Intel Xeon: .71 read before, .77 so). There pages are looked up some KB before too. Of bf16 some lines are put off
///     until what comes between the products asks for them: memory is slower than tile registers, and idle meanwhile (a tenth less time).
class LinesAhead {
 public:
  /// Rows [first, end) will be used.
  [[gnu::noinline]] void begin(const KeyRows& rows, std::int64_t columns, std::int64_t first, std::int64_t end) {
    due_ = left_ = 0;
    run_ = runs_ = 0;
    rows_ = &rows;
    row_bytes_ = bytes_of(rows.element) * columns;
    whole_ = rows.row_stride == columns;
    by_tiles_ = runtime::cpu().amx_bf16;
    row_ = first;
    end_ = end;
    if (row_bytes_ == 0) return;
    put_off_ = by_tiles_ && rows.element == Element::bf16 ? 256 : 0;
    due_ = (rows.element == Element::i8 ? key_block * row_bytes_ : by_tiles_ ? 24576 : 4096) / line + put_off_;  // more of bytes: a sixth more time
    ask();
  }
  /// Whether hardly more lines can be put off.
  bool late() const { return due_ > put_off_ * 3 / 4; }
  /// Asks for so many lines, as far as rows that are used allow; at the end of a run for some beyond it.
  template <int LINES>
  [[gnu::always_inline]] void fetch() {
    if (due_ < LINES) return;
    if (left_ <= 0) {
      if (run_ == runs_) return;
      due_ -= left_;  // what was beyond the last one
      at_ = next_[run_].at;
      left_ = next_[run_++].lines;
    }
    const Place at = at_;
    for (int i = 0; i < LINES; ++i) ask_for(at + i * line);
    at_ = at + LINES * line;
    left_ -= LINES;
    due_ -= LINES;
  }
  /// Out of line, where no vectors are in registers.
  [[gnu::noinline]] void fetch_eight() { fetch<8>(); }
  /// Rows [first, first + count) are used next.
  [[gnu::noinline]] void use(std::int64_t first, std::int64_t count) {
    if (row_bytes_ == 0) return;
    if (by_tiles_) {
      ask();  // what no tile asked for, and cannot be put off
      due_ += lines_of(count);
      look_up();
      return;
    }
    for (std::int64_t j = first, rows; j < first + count; j += rows) {
      rows = run(j, first + count - j);
      const char* const from = row_at(*rows_, j);
      for (std::int64_t lines = lines_of(rows), read = 0, both; lines > 0; lines -= both) {
        if (left_ <= 0) due_ = put_off_ + 1, ask();
        both = lines < left_ ? lines : left_ > 0 ? left_ : lines;
        Place at = at_;
        for (const std::int64_t end = read + both; read < end; ++read, at += line) {
          __builtin_prefetch(reinterpret_cast<const void*>(at));
          static_cast<void>(*static_cast<const volatile char*>(from + read * line));
          if (rows_->element == Element::i8) slow_down();
        }
        at_ = at;
        left_ -= both;
      }
    }
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
  /// More runs: the first lines of their pages, and their scales.
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
      if (rows_->scales != nullptr) {
        const float* const scales = scales_at(*rows_, row_);
        for (std::int64_t n = 0; n < rows * rows_->scale_stride; n += 16) __builtin_prefetch(scales + n);
      }
      row_ += rows;
    }
  }
  /// A few cycles: prefetches that come faster than memory answers are dropped (without it a tenth of the speed is lost). Rows of more
  /// lines take as long to be looked up.
  static void slow_down() {
#if defined(__GNUC__)
    asm volatile(".rept 16\n nop\n .endr");
#endif
  }

  /// Rows behind one another, of a page at most.
  struct Run {
    Place at;
    std::int64_t lines;
  };
  static constexpr int most_runs = 6;

  // begin() sets what has no value here: most strips are never read so
  const KeyRows* rows_;
  std::int64_t row_bytes_ = 0;
  bool whole_, by_tiles_;  // no gap between rows
  Run next_[most_runs];
  int run_, runs_;
  Place at_;
  std::int64_t left_, due_ = 0, put_off_ = 0;  // lines of the run that is asked for; that may be asked for; of those, that may wait
  std::int64_t row_, end_;       // not looked up
};

}  // namespace attn::kernels
