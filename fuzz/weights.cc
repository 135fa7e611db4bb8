// fuzz/weights.cc: parses texts of Weights: the printed text must parse to the same, and the output must have the bits
// of a call without weights; the weights must have their shape.
#include "fuzz.h"

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  manual_seed(3);
  const std::int64_t rows = in.below(9), keys = in.below(20);
  const Tensor q = randn({1, 2, rows, 4}), k = randn({1, 1, keys, 4}), v = randn({1, 1, keys, 3});
  const std::string text = in.rest();
  Weights weights;
  if (!answers([&] { weights = Weights::parse(text); })) return 0;
  const std::string printed = weights.to_string();
  check(Weights::parse(printed).to_string() == printed, "printed again it is other than " + printed);
  if (weights.count > 1000) return 0;  // the caller wants so many columns
  AttentionResult result;
  if (!answers([&] { result = attention(q, k, v, {.weights = weights}); })) return 0;
  check(same_bits(result.output, attention(q, k, v).output), "other bits with " + printed);
  Dims sizes = {1, 2, rows, keys};
  if (weights == Weights::head_average) sizes = {1, rows, keys};
  if (weights == Weights::column_sums) sizes = {1, 2, keys};
  if (weights == Weights::row_subset) sizes = {1, 2, weights.indices.size(0), keys};
  if (weights == Weights::largest) sizes = {1, 2, rows, weights.count};
  check(result.weights.defined() ? result.weights.sizes() == sizes : weights == Weights::none,
        "weights of another shape: " + printed);
  return 0;
}
