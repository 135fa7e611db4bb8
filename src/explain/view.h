// src/explain/view.h: chooses which rows and keys of a long sentence are shown, and computes the weight left out.
#pragma once
#include <attn/explain.h>

#include <vector>

namespace attn::explain_detail {

/// Reads values of a step as [batch, heads, rows, columns], in double, which holds f32 and small i64 exactly.
class Grid {
 public:
  explicit Grid(const ExplainStep& step);
  double at(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    return values_[index(b, h, row, column)];
  }
  Hidden hidden(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    return step_.hidden.empty() ? Hidden::visible : step_.hidden[index(b, h, row, column)];
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }

 private:
  std::size_t index(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(((b * step_.heads + h) * rows_ + row) * columns_ + column);
  }
  const ExplainStep& step_;
  std::vector<double> values_;
  std::int64_t rows_ = 1, columns_ = 1;
};

/// Holds ascending indices of some of `of` places.
struct Selection {
  std::vector<std::int64_t> index;
  std::int64_t of = 0;
  bool all() const { return static_cast<std::int64_t>(index.size()) == of; }
};
Selection first_of(std::int64_t of, std::int64_t most);

/// Holds the selection for one sentence of the batch.
struct SentenceView {
  Selection rows, keys;
  double left_out = 0;  // share of the shown rows' weight on keys that are not shown
};
struct View {
  std::vector<SentenceView> sentences;
  bool around_diagonal = false;  // the keys are a contiguous run, because the mask is causal or a window
};

/// Chooses the rows from the first one, or around the query that is worked out; and the keys with the largest weight in
/// the rows shown: a contiguous run of them if the mask is causal or a window.
View choose_view(const Explanation& explanation, std::int64_t most_rows, std::int64_t most_keys);

}  // namespace attn::explain_detail
