// src/attention/score/dropout.h: decides which attention weights dropout keeps, without storing Tq x Tk: counter-based,
// or by PyTorch's random stream tile by tile.
#pragma once
#include <attn/random.h>

#include "kernels/attention/query_tile.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace attn {

/// Returns the given seed, or draws one from the generator (null: the global one) if p needs random numbers.
std::uint64_t dropout_seed(double p, std::optional<std::uint64_t> given, Generator* generator);
/// Describes counter-based dropout in `problem`. `f64`: the compute type.
void describe_dropout(double p, std::uint64_t seed, bool f64, kernels::AttentionProblem& problem);
/// Writes the counter-based dropout as bytes, for a query tile of one head: keep[row * Tk + j], 1 = kept, for the keys
/// of the item or sequence.
void draw_by_counter(const kernels::AttentionProblem& problem, const kernels::Task& rows, std::uint8_t* keep);

/// Decides which weights torch's dropout keeps. It advances through the random stream once, in torch's order (row-major
/// over [B, Hq, Tq, Tk]), and saves the generator's state at each query tile, so that every task can draw its query
/// tiles again, in any order.
class DropoutTiles {
 public:
  struct Shape {
    std::int64_t heads, rows, keys, query_tile_rows;  // heads: of all batch items together
    std::int64_t tiles() const { return (rows + query_tile_rows - 1) / query_tile_rows; }
    std::int64_t rows_of(std::int64_t tile) const {
      return tile + 1 < tiles() ? query_tile_rows : rows - tile * query_tile_rows;
    }
  };

  /// p in (0, 1]; 1 draws nothing.
  DropoutTiles(double p, const Shape& shape, Generator* generator);

  /// Returns 1 / (1 - p), rounded to the compute type as in torch.
  double scale(bool f64) const;
  std::size_t tile_bytes() const { return static_cast<std::size_t>(shape_.query_tile_rows * shape_.keys); }
  /// Writes keep[row * keys + j], 1 = kept, of query tile `tile` of head `head` (b * Hq + h).
  void draw(std::int64_t head, std::int64_t tile, std::uint8_t* keep) const;
  /// Writes the same bytes for `rows` rows from `row` on, which must be the first row of a query tile.
  void draw_rows(std::int64_t head, std::int64_t row, std::int64_t rows, std::uint8_t* keep) const;

 private:
  void save_states(Generator& generator);

  double p_;
  Shape shape_;
  std::vector<Generator> states_;
};

}  // namespace attn
