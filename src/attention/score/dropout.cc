// src/attention/score/dropout.cc: sets seeds and thresholds of counter-based dropout; draws torch's dropout: a 53-bit
// number per weight, kept if it is below 1 - p.
#include "attention/score/dropout.h"

#include "kernels/philox.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

/// Returns 1 / (1 - p), rounded to the compute type as in torch.
double scale_of_kept(double p, bool f64) {
  if (p == 1) return 0;  // every weight is dropped
  return f64 ? 1 / (1 - p) : static_cast<double>(1.0f / static_cast<float>(1 - p));
}

}  // namespace

std::uint64_t dropout_seed(double p, std::optional<std::uint64_t> given, Generator* generator) {
  if (given || p == 0 || p == 1) return given.value_or(0);
  if (generator != nullptr) return generator->u64();
  const std::lock_guard<std::mutex> lock(default_generator_mutex());
  return default_generator().u64();
}

void describe_dropout(double p, std::uint64_t seed, bool f64, kernels::AttentionProblem& problem) {
  constexpr double words = 4294967296.0, last = words - 1;
  const double least = std::ceil(p * words);  // p * 2^32 is exact
  problem.drop_seed = seed;
  problem.drop_least = static_cast<std::uint64_t>(std::min(least, last));
  // The threshold is limited to the largest word, so p near 1 keeps the weights that draw this word; a factor of 0
  // drops them.
  problem.keep_scale = least > last ? 0 : scale_of_kept(p, f64);
}

void draw_by_counter(const kernels::AttentionProblem& problem, const kernels::Task& rows, std::uint8_t* keep) {
  const kernels::Philox philox(problem.drop_seed);
  const std::int64_t begin = problem.keys_begin(rows), end = problem.keys_end(rows);
  for (std::int64_t i = 0; i < rows.rows; ++i, keep += problem.k_rows)
    for (std::int64_t j = begin; j < end;) {
      const std::int64_t position = problem.key_position(rows, j);
      std::uint32_t words[4] = {static_cast<std::uint32_t>(problem.item(rows)),
                                static_cast<std::uint32_t>(problem.first_head + rows.head),
                                static_cast<std::uint32_t>(rows.row + i + problem.row_offset(rows, false)),
                                static_cast<std::uint32_t>(position / 4)};
      philox.words(words);
      for (std::int64_t n = position % 4; n < 4 && j < end; ++n, ++j) keep[j] = words[n] >= problem.drop_least;
    }
}

DropoutTiles::DropoutTiles(double p, const Shape& shape, Generator* generator) : p_(p), shape_(shape) {
  if (p == 1) return;
  if (generator != nullptr) {
    save_states(*generator);
    return;
  }
  const std::lock_guard<std::mutex> lock(default_generator_mutex());
  save_states(default_generator());
}

void DropoutTiles::save_states(Generator& generator) {
  states_.reserve(static_cast<std::size_t>(shape_.heads * shape_.tiles()));
  for (std::int64_t head = 0; head < shape_.heads; ++head)
    for (std::int64_t tile = 0; tile < shape_.tiles(); ++tile) {
      states_.push_back(generator);
      for (std::int64_t left = shape_.rows_of(tile) * shape_.keys; left > 0; --left) generator.u64();
    }
}

double DropoutTiles::scale(bool f64) const { return scale_of_kept(p_, f64); }

void DropoutTiles::draw(std::int64_t head, std::int64_t tile, std::uint8_t* keep) const {
  const std::int64_t count = shape_.rows_of(tile) * shape_.keys;
  if (p_ == 1) {
    std::fill_n(keep, count, std::uint8_t{0});
    return;
  }
  Generator generator = states_[static_cast<std::size_t>(head * shape_.tiles() + tile)];
  for (std::int64_t n = 0; n < count; ++n) keep[n] = generator.uniform_f64() < 1 - p_ ? 1 : 0;
}

void DropoutTiles::draw_rows(std::int64_t head, std::int64_t row, std::int64_t rows, std::uint8_t* keep) const {
  for (std::int64_t tile = row / shape_.query_tile_rows; tile * shape_.query_tile_rows < row + rows; ++tile)
    draw(head, tile, keep + (tile * shape_.query_tile_rows - row) * shape_.keys);
}

}  // namespace attn
