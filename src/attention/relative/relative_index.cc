// src/attention/relative/relative_index.cc: makes the indices of relative products, DeBERTa's buckets among them.
#include <attn/error.h>
#include <attn/relative.h>

#include "runtime/format.h"

#include "kernels/reference.h"
#include "runtime/floating_point.h"

#include <cmath>

namespace attn {
namespace {

constexpr std::int64_t most_rows = std::int64_t{1} << 30, most_position = 65536;

void check_size(const char* function, const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw ValueError(
        runtime::format("RelativeIndex::{}: {} is {}; it must be from {} to {}", function, name, value, least, most));
}

float log_of(float x) {
  float y = 0;
  kernels::reference().unary(kernels::Unary::log, kernels::Element::f32, &x, &y, 1);
  return y;
}

/// Returns DeBERTa's bucket of a distance, which is above `middle`; in f32, as transformers computes it.
std::int64_t far_bucket(std::int64_t distance, std::int64_t middle, std::int64_t max_position) {
  const float whole = log_of(static_cast<float>(max_position - 1) / static_cast<float>(middle)),
              part = log_of(static_cast<float>(distance) / static_cast<float>(middle));
  return static_cast<std::int64_t>(std::ceil(part / whole * static_cast<float>(middle - 1))) + middle;
}

}  // namespace

RelativeIndex RelativeIndex::distance(std::int64_t before, std::int64_t after) {
  check_size("distance", "before", before, 0, most_rows);
  check_size("distance", "after", after, 0, most_rows);
  RelativeIndex index;
  index.form_ = {.first = -before, .entries = before + after + 1};
  index.rows_ = before + after + 1;
  index.text_ = runtime::format("distance({}, {})", before, after);
  return index;
}

RelativeIndex RelativeIndex::log_buckets(std::int64_t buckets, std::int64_t max_position) {
  check_size("log_buckets", "buckets", buckets, 4, most_position);
  if (buckets % 2 != 0)
    throw ValueError(runtime::format("RelativeIndex::log_buckets: buckets is {}; it must be even", buckets));
  const std::int64_t middle = buckets / 2;
  check_size("log_buckets", "max_position", max_position, middle + 2, most_position);
  const runtime::DefaultFloatingPoint floating_point;
  // the entries of the distances row minus key, from -max_position to max_position, ascending
  std::vector<std::int32_t> rows;
  for (std::int64_t distance = -max_position; distance <= max_position; ++distance) {
    const std::int64_t size = distance < 0 ? -distance : distance,
                       bucket = size <= middle ? size : far_bucket(size, middle, max_position),
                       row = (distance < 0 ? -bucket : bucket) + buckets;
    rows.push_back(static_cast<std::int32_t>(row < 0 ? 0 : row > 2 * buckets - 1 ? 2 * buckets - 1 : row));
  }
  // the form counts key minus row: the same entries from the other end
  std::vector<std::int32_t> steps;
  for (std::size_t n = rows.size(); n-- > 0;) steps.push_back(static_cast<std::int32_t>(2 * buckets - 1 - rows[n]));
  RelativeIndex index;
  index.form_ = {.first = -max_position,
                 .entries = 2 * max_position + 1,
                 .steps = std::make_shared<const std::vector<std::int32_t>>(std::move(steps)),
                 .backwards = true};
  index.rows_ = 2 * buckets;
  index.text_ = runtime::format("log_buckets({}, {})", buckets, max_position);
  return index;
}

RelativeIndex RelativeIndex::picture_rows(std::int64_t height, std::int64_t width) {
  check_size("picture_rows", "height", height, 1, most_rows / 2);
  check_size("picture_rows", "width", width, 1, most_rows / 2);
  RelativeIndex index;
  index.form_ = {
      .coordinate = Coordinate::row, .width = width, .first = 1 - height, .entries = 2 * height - 1, .backwards = true};
  index.rows_ = 2 * height - 1;
  index.text_ = runtime::format("picture_rows({}, {})", height, width);
  return index;
}

RelativeIndex RelativeIndex::picture_columns(std::int64_t width) {
  check_size("picture_columns", "width", width, 1, most_rows / 2);
  RelativeIndex index;
  index.form_ = {.coordinate = Coordinate::column,
                 .width = width,
                 .first = 1 - width,
                 .entries = 2 * width - 1,
                 .backwards = true};
  index.rows_ = 2 * width - 1;
  index.text_ = runtime::format("picture_columns({})", width);
  return index;
}

RelativeIndex RelativeIndex::reversed() const {
  static constexpr std::string_view word = ".reversed()";
  RelativeIndex index = *this;
  index.form_.backwards = !form_.backwards;
  if (text_.ends_with(word)) index.text_.resize(text_.size() - word.size());
  else index.text_ += word;
  return index;
}

}  // namespace attn
