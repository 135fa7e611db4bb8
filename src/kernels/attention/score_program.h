// src/kernels/attention/score_program.h: a score expression as steps on places; the tree of src/attention, lowered.
#pragma once
#include <cstdint>

namespace attn::kernels {

enum class Element : std::uint8_t;

/// One operation on an element; conditions are 1 and 0. docs/numerics.md section 3.10 says what each does.
enum class ScoreStepOp : std::uint8_t {
  copy, neg, abs, exp, tanh, op_not, add, sub, mul, div, floor_div, mod, min, max, lt, le, eq, op_and, op_or, where, lookup
};

/// What a value depends on: nothing within a strip of one batch item, the row (and head), the key, the distance of the two (and the head),
/// or the pair.
enum class ScoreRate : std::uint8_t { once, row, key, distance, pair };
inline constexpr int score_rates = 5;

/// A place that holds a value, among those of its rate.
struct ScorePlace {
  ScoreRate rate = ScoreRate::once;
  std::uint16_t place = 0;
};

struct ScoreStep {
  ScoreStepOp op = ScoreStepOp::copy;
  bool whole = false;        // of whole numbers: exact
  std::uint16_t lookup = 0;  // lookup: which
  ScorePlace to = {};
  ScorePlace from[4] = {};   // operands; lookup: an index a dim
};

/// A tensor that is looked up.
struct ScoreLookup {
  const void* data = nullptr;
  Element element{};         // f32 or f64
  int rank = 0;
  std::int64_t stride[4] = {0, 0, 0, 0};
};

/// Symbols whose value a place begins with; -1: the program does not read it.
struct ScoreSymbols {
  int batch = -1;                 // once
  int head = -1, row[2] = {-1, -1};  // row: by top_left, by bottom_right
  int key = -1;                   // key
  int distance[2] = {-1, -1};     // distance: j - i, by either alignment
};

/// Steps in order: those of each rate after all of a lower one. The score is pair 0, and so is the result.
struct ScoreProgram {
  const ScoreStep* steps = nullptr;
  int begin[score_rates + 1] = {0, 0, 0, 0, 0, 0};  // steps of rate r: begin[r] ... begin[r + 1] - 1
  int places[score_rates] = {0, 0, 0, 0, 0};
  const double* constants = nullptr;             // of the first places of rate `once`
  int constant_count = 0;
  ScoreSymbols symbols;
  const ScoreLookup* lookups = nullptr;
  bool fits_f32 = true;  // whole numbers within 2^24, tensors within 2^31 elements: vectors of f32 hold them exactly

  bool empty() const { return places[static_cast<int>(ScoreRate::pair)] == 0; }
};

/// The most places of all rates together: what the specification keeps on the stack.
inline constexpr int most_score_places = 1024;

/// Scores of neighbouring rows and keys for the caller's own function; see attn::ScoreTile.
struct ScoreTileView {
  void* data = nullptr;
  bool f64 = false;
  std::int64_t rows = 0, keys = 0, row_stride = 0, key_stride = 0;
  std::int64_t batch = 0, head = 0, row = 0, key = 0, row_position = 0, key_position = 0;
};

struct ScoreCall {
  void (*call)(void* context, const ScoreTileView& tile) noexcept = nullptr;  // null: none
  void* context = nullptr;
  bool bottom_right = false;
};

}  // namespace attn::kernels
