// src/kernels/attention/score_program.h: describes a score expression as a list of steps. The steps read and write
// numbered registers, here called places. src/attention lowers the expression tree to it.
#pragma once
#include "kernels/attention/block_and_tile_sizes.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

enum class Element : std::uint8_t;

/// One operation on an element; conditions are 1 and 0. docs/numerics.md section 3.10 says what each does.
enum class ScoreStepOp : std::uint8_t {
  copy,
  neg,
  abs,
  exp,
  tanh,
  op_not,
  add,
  sub,
  mul,
  div,
  floor_div,
  mod,
  min,
  max,
  lt,
  le,
  eq,
  op_and,
  op_or,
  where,
  lookup
};

/// How often a value is computed: once for a query tile of one batch item; or once for each row (and head), each key,
/// each distance of row and key (and head), or each pair.
enum class ScoreRate : std::uint8_t { once, row, key, distance, pair };
inline constexpr int score_rates = 5;

/// The place (register) of a value: its number among the places of its rate.
struct ScorePlace {
  ScoreRate rate = ScoreRate::once;
  std::uint16_t place = 0;
};

struct ScoreStep {
  ScoreStepOp op = ScoreStepOp::copy;
  bool whole = false;        // an integer step, which is exact
  std::uint16_t lookup = 0;  // lookup: its index
  ScorePlace to = {};
  ScorePlace from[4] = {};  // operands; lookup: one index per dim
};

/// A tensor that the program looks up.
struct ScoreLookup {
  const void* data = nullptr;
  Element element{};  // f32 or f64
  int rank = 0;
  std::int64_t stride[4] = {0, 0, 0, 0};
};

/// The places that hold the symbols (batch item, head, row, key, distance) when the program starts. The comment on each
/// symbol names its rate. -1: the program does not read the symbol.
struct ScoreSymbols {
  int batch = -1;                    // once
  int head = -1, row[2] = {-1, -1};  // row: by top_left, by bottom_right
  int key = -1;                      // key
  int distance[2] = {-1, -1};        // distance: j - i, by either alignment
};

/// The steps are sorted by rate, in the order of ScoreRate. The score is in place 0 of the rate `pair`; the result
/// replaces it.
struct ScoreProgram {
  const ScoreStep* steps = nullptr;
  int begin[score_rates + 1] = {0, 0, 0, 0, 0, 0};  // steps of rate r: begin[r] ... begin[r + 1] - 1
  int places[score_rates] = {0, 0, 0, 0, 0};
  const double* constants = nullptr;  // values of the first places of the rate `once`
  int constant_count = 0;
  ScoreSymbols symbols;
  const ScoreLookup* lookups = nullptr;
  bool fits_f32 = true;  // integers within 2^24 and tensors below 2^31 elements: f32 vectors hold them exactly

  bool empty() const { return places[static_cast<int>(ScoreRate::pair)] == 0; }
};

/// Which pairs of a backward step share an index into a looked-up tensor, and are summed first: all of them (`step`),
/// those of a row, of a key or of a distance, or any (`pair`). `element`: no two pairs of a head, because one dim is
/// indexed by the row and one by the key.
enum class ScoreLine : std::uint8_t { step, row, key, distance, element, pair };

/// A lookup of a tensor whose gradient is wanted. Places belong to the program of the derivatives.
struct ScoreSlope {
  ScorePlace slope = {};  // the derivative by the lookup
  bool one = false;       // the derivative is 1 everywhere and has no place
  ScoreLine line = ScoreLine::pair;
  // whether some dim is indexed by the head alone, or by the batch item alone: other heads or items then use other
  // elements
  bool by_head = false, by_item = false;
  int rank = 0;
  ScorePlace index[4] = {};
  std::int64_t stride[4] = {0, 0, 0, 0};  // of the gradient
  std::int64_t row_stride = 0;            // element: stride between rows
  std::int64_t elements = 0;
  void* gradient = nullptr;  // contiguous, compute type; steps add to it (of `step`: the caller does)
};

/// When a step adds to lookups of ScoreLine::element. none: there are no such lookups; by_key: after the previous step
/// has finished the same keys; after_all: after the previous step has ended.
enum class ElementOrder : std::uint8_t { none, by_key, after_all };

/// The derivatives of an expression: a program that starts from the score, and the places of its results.
struct ScoreGradient {
  ScoreProgram program;
  ScorePlace slope = {};  // the derivative by the score
  bool one = false;       // the derivative is 1 everywhere and has no place
  const ScoreSlope* lookups = nullptr;
  int lookup_count = 0;
  int step_count = 0;  // lookups with ScoreLine::step
  ElementOrder elements = ElementOrder::none;

  bool has_lines() const { return lookup_count > step_count; }
};

/// The maximum number of places of all rates together: the reference code keeps them on the stack.
inline constexpr int most_score_places = 1024;

/// score_chunk: the number of keys that vector code evaluates at a time. score_place_elements: the number of elements
/// that it stores for a place of a rate, or for all places of a program, for query tiles of `rows` rows.
inline constexpr int score_chunk = 16;
constexpr int score_place_elements(int rate, int rows, int lanes) {
  const int elements[score_rates] = {lanes, rows, kv_block * lanes, rows + kv_block, score_chunk * rows};
  return elements[rate];
}
inline std::size_t score_place_elements(const ScoreProgram& program, int rows, int lanes) {
  std::size_t total = 0;
  for (int r = 0; r < score_rates; ++r)
    total += static_cast<std::size_t>(program.places[r] * score_place_elements(r, rows, lanes));
  return total;
}

/// Scores of adjacent rows and keys for the caller's function; see attn::ScoreTile.
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
