// src/attention/score/score_callback.cc: calls the caller's callable from inside kernels, and shields the kernels from
// its exceptions and from its use of scratch memory.
#include "attention/score/lower_score.h"
#include "kernels/rows/target.h"
#include "runtime/thread_scratch.h"

#include <atomic>
#include <exception>

namespace attn {

struct CallbackGate::State {
  std::function<void(const ScoreTile&)> function;
  bool bottom_right = false;
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // written by the thread that set `failed`

  void call(const kernels::ScoreTileView& tile) noexcept {
    if (failed.load(std::memory_order_relaxed)) return;
    const runtime::OwnScratch own;  // the callable may call this library
    try {
      function({.data = tile.data,
                .dtype = tile.f64 ? Dtype::f64 : Dtype::f32,
                .rows = tile.rows,
                .keys = tile.keys,
                .row_stride = tile.row_stride,
                .key_stride = tile.key_stride,
                .batch = tile.batch,
                .head = tile.head,
                .row = tile.row,
                .key = tile.key,
                .row_position = tile.row_position,
                .key_position = tile.key_position});
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
};

CallbackGate::CallbackGate(const ScoreCallback& callback, const ScoreShape& shape, const Lengths& lowered)
    : state_(std::make_unique<State>()) {
  state_->function = callback.function;
  state_->bottom_right = is_bottom_right(callback.align, "score_callback", shape, lowered);
}
CallbackGate::CallbackGate(CallbackGate&&) noexcept = default;
CallbackGate& CallbackGate::operator=(CallbackGate&&) noexcept = default;
CallbackGate::~CallbackGate() = default;

kernels::ScoreCall CallbackGate::describe() const {
  return {.call = [](void* context,
                     const kernels::ScoreTileView& tile) noexcept { static_cast<State*>(context)->call(tile); },
          .context = state_.get(),
          .bottom_right = state_->bottom_right};
}

void CallbackGate::rethrow() const {
  if (state_->error) std::rethrow_exception(state_->error);
}

namespace {

void apply(kernels::Unary op, const ScoreTile& tile) {
  const auto element = tile.dtype == Dtype::f64 ? kernels::Element::f64 : kernels::Element::f32;
  for (std::int64_t n = 0; n < tile.keys; ++n) {
    void* const scores =
        static_cast<char*>(tile.data) + n * tile.key_stride * static_cast<std::int64_t>(size_of(tile.dtype));
    kernels::row_kernels().unary(op, element, scores, scores, tile.rows);
  }
}

}  // namespace

void ScoreTile::exp() const { apply(kernels::Unary::exp, *this); }
void ScoreTile::tanh() const { apply(kernels::Unary::tanh, *this); }

}  // namespace attn
