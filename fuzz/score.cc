// fuzz/score.cc: parses, prints and differentiates score expressions: fused they must give what `apply` gives.
#include "fuzz.h"

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  const std::int64_t rows = in.between(1, 9), keys = in.coin() ? rows : in.between(1, 70);
  const Dtype dtype = in.pick({Dtype::f32, Dtype::f64});
  const std::string text = in.rest();
  const std::vector<std::pair<std::string, Tensor>> tables{{"slope", tensor<float>({0.5F, 0.25F})},
                                                           {"t", arange(90).to(Dtype::f32)},
                                                           {"n", arange(9)},
                                                           {"c", arange(0, 90, 1).to(Dtype::boolean)},
                                                           {"x", full({}, 0.3)},
                                                           {"m", arange(0, 64, 1).to(Dtype::f32).reshape({8, 8})}};
  ScoreExpression expression;
  if (!answers([&] { expression = ScoreExpression::parse(text, tables); })) return 0;
  const std::string printed = expression.to_string();
  check(ScoreExpression::parse(printed, tables).to_string() == printed, "printed again it is other than " + printed);
  answers([&] {
    for (const ScoreExpression& lookup : expression.lookups()) (void)derivative(expression, lookup).to_string();
    (void)derivative(expression, ScoreExpression::score()).to_string();
  });
  manual_seed(3);
  const auto drawn = [&](std::int64_t n, std::int64_t dim) { return randn({1, 2, n, dim}).to(dtype); };
  const Tensor q = drawn(rows, 4), k = drawn(keys, 4), v = drawn(keys, 3);
  Tensor applied, output;
  const bool fits = answers([&] { applied = expression.apply(attention_scores(q, k)); });
  const bool taken = answers([&] { output = attention(q, k, v, {.score_mod = expression}).output; });
  check(fits == taken, "apply and attention disagree on whether it fits");
  if (!fits) return 0;
  check(same_bits(output, attention(zeros_like(q), k, v, {.bias = Bias::dense(applied)}).output),
        "fused it is other than applied: " + printed);
  const Tensor leaf = q.clone().requires_grad_();
  answers([&] { attention(leaf, k, v, {.score_mod = expression}).output.sum().backward(); });
  return 0;
}
