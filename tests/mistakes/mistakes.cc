// tests/mistakes/mistakes.cc: what users write by mistake, each behind its number, and what the compiler's first error
// must say (tests/mistakes/run).
#include <attn/attn.h>

using namespace attn;  // NOLINT: as a small program does
const Tensor q = ones({2, 4, 8, 16}), x = ones({4});
const ScoreTable table(x);
const auto s = ScoreExpression::score(), i = ScoreExpression::row(), j = ScoreExpression::key(),
           h = ScoreExpression::head();
template <typename T>
void take(const T&);

void mistake() {
#if MISTAKE == 0  // says: nothing
  take(attention(q, q, q,
                 {.scale = 0.5,
                  .mask = Mask::causal(),
                  .score_mod = [](auto a, auto, auto, auto b, auto c) { return where((b >= c) & (b < 9), a, 0); }})
           .output);
#elif MISTAKE == 1   // says: Mask::attend(allowed)
  attention(q, q, q, {.mask = x});
#elif MISTAKE == 2   // says: Mask::attend(allowed)
  const AttentionOptions options{.mask = x};
#elif MISTAKE == 3   // says: Mask::attend(allowed)
  AttentionOptions options;
  options.mask = x;
#elif MISTAKE == 4   // says: Mask::parse(text)
  attention(q, q, q, {.mask = "causal"});
#elif MISTAKE == 5   // says: Mask::causal()
  attention(q, q, q, {.mask = true});
#elif MISTAKE == 6   // says: .mask = Mask::causal()
  attention(q, q, q, {.is_causal = true});
#elif MISTAKE == 7   // says: .mask = Mask::causal()
  const AttentionOptions options{.scale = 0.5, .is_causal = true};
#elif MISTAKE == 8   // says: .mask = Mask::causal()
  AttentionOptions options;
  options.causal = true;
#elif MISTAKE == 9   // says: .mask = Mask::causal()
  attention(q, q, q, {.is_causal = true, .scale = 0.5});
#elif MISTAKE == 10  // says: .mask = Mask::attend(allowed), or .bias = Bias::dense(added)
  attention(q, q, q, {.attn_mask = x});
#elif MISTAKE == 11  // says: .mask = Mask::window(left, right)
  attention(q, q, q, {.window = 128});
#elif MISTAKE == 12  // says: leave it out
  attention(q, q, q, {.enable_gqa = true});
#elif MISTAKE == 13  // says: .dropout_p = 0.1
  attention(q, q, q, {.dropout = 0.1});
#elif MISTAKE == 14  // says: .weights = Weights::full
  attention(q, q, q, {.need_weights = true});
#elif MISTAKE == 15  // says: Weights::full
  attention(q, q, q, {.weights = true});
#elif MISTAKE == 16  // says: Bias::dense(values)
  attention(q, q, q, {.bias = x});
#elif MISTAKE == 17  // says: .attn_mask = a tensor
  scaled_dot_product_attention(q, q, q, {.mask = x});
#elif MISTAKE == 18  // says: .is_causal = true
  scaled_dot_product_attention(q, q, q, {.causal = true});
#elif MISTAKE == 20  // says: write a & b
  take(where(i >= j && j < 3, s, 0));
#elif MISTAKE == 21  // says: write a | b
  take(where(i >= j || j < 3, s, 0));
#elif MISTAKE == 22  // says: write ~a
  take(where(!(i >= j), s, 0));
#elif MISTAKE == 23  // says: where(c, a, b)
  take(i >= j ? s : s * 2);
#elif MISTAKE == 24  // says: where(c, a, b)
  if (i >= j) take(s);
#elif MISTAKE == 25  // says: where(c, a, b)
  attention(q, q, q, {.score_mod = [](auto a, auto, auto, auto b, auto c) { return b >= c ? a : a * 2; }});
#elif MISTAKE == 26  // says: [](auto s, auto b, auto h, auto i, auto j)
  attention(q, q, q, {.score_mod = [](auto a, auto, auto b, auto c) { return a + b - c; }});
#elif MISTAKE == 27  // says: [](auto s, auto b, auto h, auto i, auto j)
  const ScoreExpression expression = [](auto a) { return a * 2; };
#elif MISTAKE == 28  // says: [](auto s, auto b, auto h, auto i, auto j)
  const ScoreExpression expression = [](ScoreExpression a, ScoreExpression b, ScoreExpression c, ScoreExpression d,
                                        ScoreExpression e, ScoreExpression) { return a + b + c + d + e; };
#elif MISTAKE == 29  // says: ScoreTable table(values), then table(h)
  take(s - x);
#elif MISTAKE == 30  // says: a ScoreTable is looked up
  take(s - table);
#elif MISTAKE == 31  // says: where(condition, 1.0, 0.0)
  take(s * true);
#elif MISTAKE == 32  // says: write a & b
  take(where(i >= j && true, s, 0));
#endif
}
