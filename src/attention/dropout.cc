// src/attention/dropout.cc: one number of 53 bits for each weight, kept where it is below 1 - p.
#include "attention/dropout.h"

#include <algorithm>

namespace attn {

DropoutStrips::DropoutStrips(double p, const Shape& shape, Generator* generator) : p_(p), shape_(shape) {
  if (p == 0 || p == 1) return;
  if (generator != nullptr) {
    walk(*generator);
    return;
  }
  const std::lock_guard<std::mutex> lock(default_generator_mutex());
  walk(default_generator());
}

void DropoutStrips::walk(Generator& generator) {
  states_.reserve(static_cast<std::size_t>(shape_.heads * shape_.strips()));
  for (std::int64_t head = 0; head < shape_.heads; ++head)
    for (std::int64_t strip = 0; strip < shape_.strips(); ++strip) {
      states_.push_back(generator);
      for (std::int64_t left = shape_.rows_of(strip) * shape_.keys; left > 0; --left) generator.u64();
    }
}

double DropoutStrips::scale(bool f64) const {
  if (p_ == 1) return 0;  // nothing is kept
  return f64 ? 1 / (1 - p_) : static_cast<double>(1.0f / static_cast<float>(1 - p_));
}

void DropoutStrips::draw(std::int64_t head, std::int64_t strip, std::uint8_t* keep) const {
  const std::int64_t count = shape_.rows_of(strip) * shape_.keys;
  if (p_ == 1) {
    std::fill_n(keep, count, std::uint8_t{0});
    return;
  }
  Generator generator = states_[static_cast<std::size_t>(head * shape_.strips() + strip)];
  for (std::int64_t n = 0; n < count; ++n) keep[n] = generator.uniform_f64() < 1 - p_ ? 1 : 0;
}

void DropoutStrips::draw_rows(std::int64_t head, std::int64_t row, std::int64_t rows, std::uint8_t* keep) const {
  for (std::int64_t strip = row / shape_.strip_rows; strip * shape_.strip_rows < row + rows; ++strip)
    draw(head, strip, keep + (strip * shape_.strip_rows - row) * shape_.keys);
}

}  // namespace attn
