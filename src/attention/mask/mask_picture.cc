// src/attention/mask/mask_picture.cc: evaluates a mask for given sizes: draws it as text, makes a dense tensor, and
// finds rows that see no key.
#include <attn/ops.h>

#include "runtime/format.h"

#include "attention/lower.h"
#include "attention/mask/mask_expression.h"
#include "kernels/attention/mask/mask_program.h"

#include <algorithm>
#include <numeric>

namespace attn {
namespace {

/// A mask together with the sizes for which it is evaluated.
class Viewed {
 public:
  Viewed(const Mask& mask, const ScoreShape& shape, const Lengths& lengths)
      : mask_(mask), lengths_(lower_lengths(lengths, shape)), lowered_(lower_mask(mask, shape, lengths_)) {
    describe_scores(shape, lengths_, problem_);
    describe_mask(lowered_, problem_);
  }
  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return kernels::sees(problem_, {.batch = b}, h, i, j);
  }
  bool sees_nothing(std::int64_t b, std::int64_t h, std::int64_t i) const {
    for (std::int64_t j = 0; j < problem_.k_rows; ++j)
      if (sees(b, h, i, j)) return false;
    return true;
  }
  /// Returns the number of valid rows; rows beyond query_lengths are padding.
  std::int64_t rows(std::int64_t b) const { return problem_.rows_end({.batch = b}); }

 private:
  Mask mask_;
  Lengths lengths_;
  LoweredMask lowered_;
  kernels::AttentionProblem problem_;
};

void check_sizes(const char* function, std::initializer_list<std::int64_t> sizes) {
  constexpr std::int64_t most = std::int64_t{1} << 40;  // so that every position fits in 64 bits
  for (const std::int64_t size : sizes) {
    if (size < 0) throw ShapeError(runtime::format("{}: a size is {}; sizes are at least 0", function, size));
    if (size > most) throw ShapeError(runtime::format("{}: a size is {}; sizes are at most 2^40", function, size));
  }
}

/// Raises `batches` and `heads` to the sizes of the expression's tensors.
void raise_to(const Mask::Expression& whole, std::int64_t& batches, std::int64_t& heads) {
  using Kind = Mask::Expression::Kind;
  std::int64_t multiple = 1;  // of the heads: they share lists of blocks in groups
  std::vector<const Mask::Expression*> next{&whole};
  while (!next.empty()) {
    const Mask::Expression& e = *next.back();
    next.pop_back();
    for (const auto* part : {&e.a, &e.b})
      if (*part) next.push_back(part->get());
    for (const Tensor& x : {e.first, e.second}) {
      if (!x.defined()) continue;
      const bool has_batch = e.kind == Kind::prefix || x.dim() == (e.kind == Kind::documents ? 2 : 4);
      if (has_batch) batches = std::max(batches, x.size(0));
      if (e.kind == Kind::dense && x.dim() >= 3) heads = std::max(heads, x.size(-3));
      if (e.kind == Kind::blocks && x.size(1) > 0) multiple = std::lcm(multiple, x.size(1));
    }
  }
  heads = (heads + multiple - 1) / multiple * multiple;
}

/// Returns the indices below `size` that a picture draws, -1 for a gap.
std::vector<std::int64_t> shown_of(std::int64_t size) {
  constexpr std::int64_t most = 128, edge = 32;
  std::vector<std::int64_t> places;
  for (std::int64_t n = 0; n < size; ++n) {
    if (size > most && n == edge) places.push_back(-1), n = size - edge;
    places.push_back(n);
  }
  return places;
}

std::string rows_text(std::int64_t first, std::int64_t last) {
  return first == last ? runtime::format("row {} sees no key", first)
                       : runtime::format("rows {} to {} see no key", first, last);
}

}  // namespace

std::string Mask::print(std::int64_t q_rows, std::int64_t k_rows, const Lengths& lengths, std::int64_t batch,
                        std::int64_t head) const {
  check_sizes("Mask::print", {q_rows, k_rows, batch, head});
  std::int64_t batches = batch + 1, heads = head + 1;  // at least these; more if the mask's tensors have more
  for (const Tensor& length : {lengths.query_lengths, lengths.key_lengths, lengths.key_start, lengths.query_start})
    if (length.defined() && length.dim() == 1) batches = std::max(batches, length.size(0));
  if (expression_) raise_to(*expression_, batches, heads);
  const Viewed view(*this, {"Mask::print", batches, heads, q_rows, k_rows}, lengths);
  std::string picture;
  const std::vector<std::int64_t> keys = shown_of(k_rows);
  for (const std::int64_t i : shown_of(k_rows > 0 ? q_rows : 0)) {
    for (std::size_t n = 0; n < (i < 0 ? 1 : keys.size()); ++n) {
      if (n > 0) picture += ' ';
      picture += i < 0 || keys[n] < 0 ? "…" : view.sees(batch, head, i, keys[n]) ? "■" : "·";
    }
    picture += '\n';
  }
  return picture;
}

Tensor Mask::dense(std::int64_t batch, std::int64_t heads, std::int64_t q_rows, std::int64_t k_rows,
                   const Lengths& lengths) const {
  check_sizes("Mask::dense", {batch, heads, q_rows, k_rows});
  const Viewed view(*this, {"Mask::dense", batch, heads, q_rows, k_rows}, lengths);
  Tensor result = empty({batch, heads, q_rows, k_rows}, Dtype::boolean);
  bool* to = result.data<bool>();
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < q_rows; ++i)
        for (std::int64_t j = 0; j < k_rows; ++j) *to++ = view.sees(b, h, i, j);
  return result;
}

std::vector<std::string> Mask::check(std::int64_t batch, std::int64_t heads, std::int64_t q_rows, std::int64_t k_rows,
                                     const Lengths& lengths) const {
  check_sizes("Mask::check", {batch, heads, q_rows, k_rows});
  const Viewed view(*this, {"Mask::check", batch, heads, q_rows, k_rows}, lengths);
  // Finds the groups of adjacent rows of one head that see no key. A group that all heads of a batch item share is
  // reported once.
  const auto groups = [&](std::int64_t b, std::int64_t h) {
    std::vector<std::string> found;
    for (std::int64_t i = 0; i < view.rows(b); ++i) {
      if (!view.sees_nothing(b, h, i)) continue;
      const std::int64_t first = i;
      while (i + 1 < view.rows(b) && view.sees_nothing(b, h, i + 1)) ++i;
      found.push_back(rows_text(first, i));
    }
    return found;
  };
  std::vector<std::string> lines;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<std::vector<std::string>> of_heads;
    bool shared = true;
    for (std::int64_t h = 0; h < heads; ++h) {
      of_heads.push_back(groups(b, h));
      shared = shared && of_heads.back() == of_heads.front();
    }
    for (std::size_t h = 0; h < of_heads.size(); ++h)
      for (const std::string& rows : of_heads[h])
        if (h == 0 || !shared)
          lines.push_back(shared ? runtime::format("batch {}, {}", b, rows)
                                 : runtime::format("batch {}, head {}, {}", b, h, rows));
  }
  return lines;
}

}  // namespace attn
