// src/explain/view.cc: chooses the most informative part of a long sentence.
#include "explain/view.h"

#include <algorithm>
#include <numeric>

namespace attn::explain_detail {
namespace {

/// Returns the weight that each key gets from the rows shown, summed over the heads.
std::vector<double> weight_by_key(const ExplainStep& step, const Grid& grid, std::int64_t b, const Selection& rows) {
  std::vector<double> total(static_cast<std::size_t>(grid.columns()), 0.0);
  for (std::int64_t h = 0; h < step.heads; ++h)
    for (const std::int64_t row : rows.index)
      for (std::int64_t key = 0; key < grid.columns(); ++key) {
        const double w = grid.at(b, h, row, key);
        if (w > 0) total[static_cast<std::size_t>(key)] += w;
      }
  return total;
}

Selection strongest(const std::vector<double>& weight, std::int64_t most) {
  Selection keys{std::vector<std::int64_t>(weight.size()), static_cast<std::int64_t>(weight.size())};
  std::iota(keys.index.begin(), keys.index.end(), 0);
  std::stable_sort(keys.index.begin(), keys.index.end(), [&](std::int64_t a, std::int64_t b) {
    return weight[static_cast<std::size_t>(a)] > weight[static_cast<std::size_t>(b)];
  });
  keys.index.resize(static_cast<std::size_t>(most));
  std::sort(keys.index.begin(), keys.index.end());
  return keys;
}

/// Returns the contiguous run of `most` keys that holds the most weight.
Selection strongest_run(const std::vector<double>& weight, std::int64_t most) {
  double held = std::accumulate(weight.begin(), weight.begin() + most, 0.0), best = held;
  std::size_t first = 0;
  for (std::size_t end = static_cast<std::size_t>(most); end < weight.size(); ++end) {
    held += weight[end] - weight[end - static_cast<std::size_t>(most)];
    if (held > best * (1 + 1e-9)) {
      best = held;
      first = end + 1 - static_cast<std::size_t>(most);
    }
  }
  Selection keys{std::vector<std::int64_t>(static_cast<std::size_t>(most)), static_cast<std::int64_t>(weight.size())};
  std::iota(keys.index.begin(), keys.index.end(), static_cast<std::int64_t>(first));
  return keys;
}

Selection rows_around(std::int64_t of, std::int64_t most, std::int64_t centre) {
  Selection rows = first_of(of, most);
  const auto shown = static_cast<std::int64_t>(rows.index.size());
  const std::int64_t first = std::clamp<std::int64_t>(centre - shown / 2, 0, of - shown);
  std::iota(rows.index.begin(), rows.index.end(), first);
  return rows;
}

}  // namespace

Grid::Grid(const ExplainStep& step) : step_(step) {
  if (step.values.defined()) values_ = step.values.to_vector();
  columns_ = step.shape.empty() ? 1 : step.shape.back();
  const std::int64_t outer = step.batch * step.heads * columns_;
  rows_ = outer == 0 ? 0 : static_cast<std::int64_t>(values_.size()) / outer;
}

Selection first_of(std::int64_t of, std::int64_t most) {
  Selection result{std::vector<std::int64_t>(static_cast<std::size_t>(std::min(of, most))), of};
  std::iota(result.index.begin(), result.index.end(), 0);
  return result;
}

View choose_view(const Explanation& explanation, std::int64_t most_rows, std::int64_t most_keys) {
  const ExplainStep& weights = explanation.step("weights");
  const Grid grid(weights);
  View view;
  view.around_diagonal = std::any_of(weights.hidden.begin(), weights.hidden.end(), [](Hidden reason) {
    return reason == Hidden::causal || reason == Hidden::window;
  });
  for (std::int64_t b = 0; b < weights.batch; ++b) {
    SentenceView sentence;
    sentence.rows = rows_around(grid.rows(), most_rows, explanation.query.value_or(0));
    const std::vector<double> weight = weight_by_key(weights, grid, b, sentence.rows);
    if (most_keys >= grid.columns()) sentence.keys = first_of(grid.columns(), grid.columns());
    else sentence.keys = view.around_diagonal ? strongest_run(weight, most_keys) : strongest(weight, most_keys);
    double shown = 0;
    for (const std::int64_t key : sentence.keys.index) shown += weight[static_cast<std::size_t>(key)];
    const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
    sentence.left_out = total > 0 ? std::max(0.0, 1 - shown / total) : 0;
    view.sentences.push_back(std::move(sentence));
  }
  return view;
}

}  // namespace attn::explain_detail
