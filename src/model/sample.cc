// src/model/sample.cc: draws one token from logits.
#include <attn/generate.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include "model/generate_internal.h"
#include "runtime/floating_point.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace attn {
namespace {

using Ids = std::vector<std::int64_t>;

[[noreturn]] void refuse(const char* option, double value, const char* needed) {
  throw ValueError(runtime::format("generate: {} is {}; it must be {}", option, value, needed));
}

void penalise(std::vector<double>& logits, Ids before, double penalty) {
  if (penalty == 1) return;
  std::sort(before.begin(), before.end());
  before.erase(std::unique(before.begin(), before.end()), before.end());
  for (const std::int64_t id : before) {
    double& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

/// Returns an order of ids by descending value; of equal values the smaller id comes first.
auto likelier(const std::vector<double>& values) {
  return [&values](std::int64_t a, std::int64_t b) {
    const double x = values[static_cast<std::size_t>(a)], y = values[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
}

/// Returns the ids that top_k keeps, in ascending order.
Ids most_likely(const std::vector<double>& logits, std::int64_t top_k) {
  Ids ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  if (top_k <= 0 || top_k >= static_cast<std::int64_t>(ids.size())) return ids;
  std::nth_element(ids.begin(), ids.begin() + (top_k - 1), ids.end(), likelier(logits));
  ids.resize(static_cast<std::size_t>(top_k));
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// Keeps the smallest set of most likely entries whose probabilities add up to top_p, and sets the others to 0.
void keep_nucleus(std::vector<double>& probabilities, double top_p) {
  if (top_p >= 1) return;
  // The n entries below (1 - p) / n add up to less than 1 - p, so the others reach p. Only those others are sorted, and
  // they are few.
  const double least = (1 - top_p) / static_cast<double>(probabilities.size()) * (1 - 1e-9);
  Ids places;
  for (std::size_t i = 0; i < probabilities.size(); ++i)
    if (probabilities[i] >= least) places.push_back(static_cast<std::int64_t>(i));
  std::sort(places.begin(), places.end(), likelier(probabilities));
  std::vector<double> kept(probabilities.size(), 0);
  double total = 0;
  for (const std::int64_t place : places) {
    if (total >= top_p) break;
    total += kept[static_cast<std::size_t>(place)] = probabilities[static_cast<std::size_t>(place)];
  }
  probabilities = std::move(kept);
}

/// Returns the likeliest token; throws ValueError if even its logit is -inf.
std::int64_t checked(std::int64_t token, double logit) {
  if (logit == -std::numeric_limits<double>::infinity()) throw ValueError("generate: no token has a logit above -inf");
  return token;
}

}  // namespace

void check_sample(const SampleOptions& o) {
  if (!(o.temperature >= 0 && std::isfinite(o.temperature)))
    refuse("temperature", o.temperature, "0 or more, and finite");
  if (o.top_k < 0) refuse("top_k", static_cast<double>(o.top_k), "0 (all) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) refuse("top_p", o.top_p, "above 0, at most 1");
  if (!(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty)))
    refuse("repetition_penalty", o.repetition_penalty, "above 0, and finite");
  if (!(o.min_p >= 0 && o.min_p <= 1)) refuse("min_p", o.min_p, "from 0 to 1");
}

std::int64_t sample(const Tensor& given, const Ids& before, const SampleOptions& options, Generator& generator) {
  const runtime::DefaultFloatingPoint floating_point;
  check_sample(options);
  if (given.dim() != 1 || given.size(0) < 1)
    throw ShapeError("sample: logits has shape " + to_string(given.sizes()) + "; it must be [V]");
  for (const std::int64_t id : before)
    if (id < 0 || id >= given.size(0))
      throw ValueError("sample: token " + std::to_string(id) + " must be from 0 to " +
                       std::to_string(given.size(0) - 1));
  const Tensor plain = given.detach();
  const auto likeliest = static_cast<std::int64_t>(argmax(plain, 0).item());  // a NaN, if there is one
  if (std::isnan(plain[likeliest].item()))
    throw ValueError("generate: a logit is NaN; the model's weights are damaged");
  if (options.temperature == 0 && options.repetition_penalty == 1) return checked(likeliest, plain[likeliest].item());

  std::vector<double> logits = plain.to_vector();
  penalise(logits, before, options.repetition_penalty);
  const auto best = std::max_element(logits.begin(), logits.end());
  checked(best - logits.begin(), *best);
  if (options.temperature == 0) return best - logits.begin();

  const double top = *best;  // subtracted before the division, so that no quotient overflows
  const Ids ids = most_likely(logits, options.top_k);
  std::vector<double> scaled;
  for (const std::int64_t id : ids) {
    const double logit = logits[static_cast<std::size_t>(id)];
    scaled.push_back(logit == top ? 0 : (logit - top) / options.temperature);
  }
  std::vector<double> probabilities = softmax(tensor<double>(scaled), 0).to_vector();
  keep_nucleus(probabilities, options.top_p);
  const double least = options.min_p * *std::max_element(probabilities.begin(), probabilities.end());
  for (double& p : probabilities)
    if (p < least) p = 0;
  double rest = generator.uniform_f64() * std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  std::size_t last = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (probabilities[i] <= 0) continue;
    last = i;
    rest -= probabilities[i];
    if (rest < 0) break;
  }
  return ids[last];
}

}  // namespace attn
