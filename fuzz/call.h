// fuzz/call.h: makes a random call of attention from the bytes of an input.
#pragma once
#include "fuzz.h"

#include <limits>

namespace attn::fuzz {

/// Returns random numbers, some of them special values such as NaN and infinity; some tensors are transposed in memory.
inline Tensor numbers(Choices& in, Dims sizes, Dtype dtype) {
  Tensor x = randn(sizes).to(dtype);
  if (in.below(4) == 0 && x.numel() > 0) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    const double odd = in.pick({infinite, -infinite, std::numeric_limits<double>::quiet_NaN(), 6e4, -1e9, 1e-30, 0.0});
    x = where(lt(rand(sizes), in.pick({0.02, 0.5, 1.1})),
              full({}, dtype == Dtype::f16 && odd == -1e9 ? -6e4 : odd, dtype), x);
  }
  return in.coin() && x.dim() == 4 ? x.transpose(1, 2).clone().contiguous().transpose(1, 2) : x;
}

struct RandomCall {
  Tensor q, k, v;
  AttentionOptions options = {};
};

inline Mask random_mask(Choices& in, std::int64_t batch, std::int64_t rows, std::int64_t keys) {
  switch (in.below(7)) {
    case 0: return Mask::causal(Align::bottom_right);
    case 1: return Mask::causal(in.coin() ? Align::top_left : Align::unset);
    case 2: return Mask::window(in.below(20) - 1, in.below(5) - 1, Align::bottom_right);
    case 3: return Mask::attend(lt(rand({in.coin() ? batch : 1, 1, rows, keys}), 0.5));
    case 4: return Mask::key_padding(lt(rand({batch, keys}), 0.3));
    case 5:
      return (Mask::causal(Align::bottom_right) | Mask::prefix(in.below(9))) & ~Mask::window(3, 0, Align::bottom_right);
    default: return {};
  }
}

inline Bias random_bias(Choices& in, std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t keys,
                        Dtype dtype) {
  switch (in.below(5)) {
    case 0:
      return Bias::dense(
          numbers(in, {in.coin() ? batch : 1, in.coin() ? heads : 1, rows, keys}, in.coin() ? dtype : Dtype::f32));
    case 1: return Bias::alibi(Bias::alibi_slopes(heads), Align::bottom_right);
    case 2:
      return Bias::relative(randn({in.between(2, 33), heads}), in.coin(), in.between(2, 150), Align::bottom_right);
    default: return {};
  }
}

inline Tensor some(Choices& in, std::int64_t batch, std::int64_t most) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(batch));
  for (std::int64_t& value : values) value = in.between(-1, static_cast<int>(most));
  return in.below(3) == 0 ? tensor<std::int64_t>(values) : Tensor();
}

inline RandomCall random_call(Choices& in) {
  manual_seed(static_cast<std::uint64_t>(in.below(256)));
  const Dtype dtype = in.pick({Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16});
  const std::int64_t batch = in.between(1, 3), k_heads = in.between(1, 2), v_heads = in.between(1, 2),
                     heads = k_heads * v_heads * in.between(1, 2);
  const std::int64_t rows = in.coin() ? in.below(4) : in.below(70), keys = in.coin() ? in.below(140) : in.below(12);
  const std::int64_t dim = in.below(40), value_dim = in.below(40);
  RandomCall call{.q = numbers(in, {batch, heads, rows, dim}, dtype),
                  .k = numbers(in, {batch, k_heads, keys, dim}, dtype),
                  .v = numbers(in, {batch, v_heads, keys, value_dim}, dtype)};
  AttentionOptions& options = call.options;
  options.mask = random_mask(in, batch, rows, keys);
  options.bias = random_bias(in, batch, heads, rows, keys, dtype);
  if (in.below(4) == 0)
    options.score_mod = ScoreExpression::parse(
        in.pick({"s - 0.1 * abs(i(bottom_right) - j)", "where(j % 3 == h, s, -inf)", "tanh(s) + b", "s - 1e9"}));
  if (in.below(4) == 0) options.scale = in.pick({0.0, 1.0, -2.0, 1e5});
  options.softcap = in.pick({0.0, 0.0, 0.0, 1.5}), options.temperature = in.pick({1.0, 1.0, 0.7, 100.0});
  if (in.below(4) == 0) options.sinks = randn({heads});
  options.query_lengths = some(in, batch, rows), options.key_lengths = some(in, batch, keys);
  options.key_start = some(in, batch, keys), options.query_start = some(in, batch, keys);
  options.dropout_p = in.pick({0.0, 0.0, 0.0, 0.3}), options.dropout_seed = 5;
  options.weights = in.pick({Weights(), Weights(), Weights(Weights::full), Weights(Weights::head_average),
                             Weights(Weights::column_sums), Weights::top_k(3)});
  return call;
}

}  // namespace attn::fuzz
