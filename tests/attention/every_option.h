// tests/attention/every_option.h: each thing that may stand inside the pass, once, and the same in plain operations on
// whole matrices.
#pragma once
#include "attention/truth.h"
#include "kernels/philox.h"
#include "verify/inputs.h"

#include <functional>
#include <string>
#include <vector>

namespace attn::testing {

/// Sizes that the options' tensors follow.
struct OptionSizes {
  std::int64_t heads = 2, rows = 70, dim = 16;  // as many keys as rows
  Dtype dtype = Dtype::f32;
  Dtype computed() const { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
};
/// Where a parameter lies: as it is, or beside memory that nobody may touch.
using Place = std::function<Tensor(const Tensor&)>;
inline Tensor as_it_is(const Tensor& x) { return x; }

/// Numbers that are the same in every floating type.
inline Tensor exact(const Dims& sizes, Dtype dtype, std::uint64_t seed, double width = 2) {
  return cases::integers(sizes, Dtype::bf16, seed, width).to(dtype);
}

constexpr double dropped_share = 0.25;
constexpr std::uint64_t dropout_seed_of_test = 77;

struct Option {
  const char* name;
  std::function<AttentionOptions(const OptionSizes&, const Place&)> make;
  /// Of scores [1, H, T, T] what stands before the softmax, and of weights what comes after it; in the scores' dtype.
  std::function<Tensor(const OptionSizes&, const Tensor& s)> scores = [](const OptionSizes&, const Tensor& s) {
    return s;
  };
  std::function<Tensor(const OptionSizes&, const Tensor& p)> weights = [](const OptionSizes&, const Tensor& p) {
    return p;
  };
  bool sinks = false;
};

inline Tensor of_pairs(const OptionSizes& z, Dtype dtype,
                       const std::function<double(std::int64_t h, std::int64_t i, std::int64_t j)>& value) {
  std::vector<double> values;
  for (std::int64_t h = 0; h < z.heads; ++h)
    for (std::int64_t i = 0; i < z.rows; ++i)
      for (std::int64_t j = 0; j < z.rows; ++j) values.push_back(value(h, i, j));
  return tensor<double>(values, {1, z.heads, z.rows, z.rows}).to(dtype);
}
inline Tensor hidden_where(const OptionSizes& z, const Tensor& s,
                           const std::function<bool(std::int64_t i, std::int64_t j)>& hides) {
  return add(s, of_pairs(z, s.dtype(),
                         [&](std::int64_t, std::int64_t i, std::int64_t j) { return hides(i, j) ? -INFINITY : 0; }));
}
inline double slope_of(std::int64_t h) { return std::exp2(-static_cast<double>(h + 2)); }
inline Tensor slopes_of(const OptionSizes& z) {
  std::vector<double> slopes;
  for (std::int64_t h = 0; h < z.heads; ++h) slopes.push_back(slope_of(h));
  return tensor<double>(slopes).to(z.computed());
}
/// Sequences of a packed call: a third of the rows, none, the rest.
inline std::vector<std::int64_t> packed_at(const OptionSizes& z) { return {0, z.rows / 3, z.rows / 3, z.rows}; }

inline std::vector<Option> every_option() {
  using S = const OptionSizes&;
  using P = const Place&;
  const auto document = [](S z, std::int64_t i) { return i >= z.rows / 3; };
  const auto distance = [](S z, Dtype dtype) {
    return of_pairs(z, dtype, [](auto h, auto i, auto j) { return -slope_of(h) * static_cast<double>(i - j); });
  };
  return {
      {"nothing", [](S, P) { return AttentionOptions{}; }},
      {"causal", [](S, P) { return AttentionOptions{.mask = Mask::causal()}; },
       [](S z, auto& s) { return hidden_where(z, s, [](auto i, auto j) { return j > i; }); }},
      {"window", [](S, P) { return AttentionOptions{.mask = Mask::window(9, 3)}; },
       [](S z, auto& s) { return hidden_where(z, s, [](auto i, auto j) { return j < i - 9 || j > i + 3; }); }},
      {"bool mask",
       [](S z, P place) {
         Tensor keys = empty({1, z.rows}, Dtype::boolean);
         for (std::int64_t j = 0; j < z.rows; ++j) keys.data<bool>()[j] = j % 3 != 1;
         return AttentionOptions{.mask = Mask::attend(place(keys))};
       },
       [](S z, auto& s) { return hidden_where(z, s, [](auto, auto j) { return j % 3 == 1; }); }},
      {"softcap", [](S, P) { return AttentionOptions{.softcap = 2}; },
       [](S, auto& s) { return mul(tanh(div(s, 2)), 2); }},
      {"temperature", [](S, P) { return AttentionOptions{.temperature = 0.5}; },
       [](S, auto& s) { return div(s, 0.5); }},
      {"bias of keys",
       [](S z, P place) {
         return AttentionOptions{.bias = Bias::dense(place(exact({z.heads, 1, z.rows}, z.computed(), 21)))};
       },
       [](S z, auto& s) { return add(s, exact({z.heads, 1, z.rows}, s.dtype(), 21)); }},
      {"ALiBi", [](S z, P place) { return AttentionOptions{.bias = Bias::alibi(place(slopes_of(z)))}; },
       [distance](S z, auto& s) { return add(s, distance(z, s.dtype())); }},
      {"symmetric ALiBi",
       [](S z, P place) { return AttentionOptions{.bias = Bias::alibi(place(slopes_of(z)), Align::unset, true)}; },
       [](S z, auto& s) {
         return add(s, of_pairs(z, s.dtype(), [](auto h, auto i, auto j) {
                      return -slope_of(h) * static_cast<double>(i > j ? i - j : j - i);
                    }));
       }},
      {"relative bias",
       [](S z, P place) {
         return AttentionOptions{.bias = Bias::relative(place(exact({8, z.heads}, z.computed(), 22)), false, 5)};
       },
       [](S z, auto& s) {  // of 8 buckets one way, distances below 5 have their own; farther ones share the last
         const Tensor table = exact({8, z.heads}, Dtype::f64, 22);
         return add(s, of_pairs(z, s.dtype(), [&](auto h, auto i, auto j) {
                      return table[i - j >= 5 ? 7 : std::max<std::int64_t>(i - j, 0)][h].item();
                    }));
       }},
      {"sinks",
       [](S z, P place) { return AttentionOptions{.sinks = place(exact({z.heads}, z.computed(), 23))}; },
       {},
       {},
       true},
      {"dropout",
       [](S, P) { return AttentionOptions{.dropout_p = dropped_share, .dropout_seed = dropout_seed_of_test}; },
       {},
       [](S z, auto& p) {
         return mul(p, of_pairs(z, p.dtype(), [](auto h, auto i, auto j) {
                      std::uint32_t words[4] = {0, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(i),
                                                static_cast<std::uint32_t>(j / 4)};
                      kernels::Philox(dropout_seed_of_test).words(words);
                      return words[j % 4] >= dropped_share * 4294967296.0 ? 1 / (1 - dropped_share) : 0.0;
                    }));
       }},
      {"score expression",
       [](S z, P place) {
         const ScoreTable slope(place(slopes_of(z)));
         return AttentionOptions{.score_mod = [slope](auto s, auto, auto h, auto i, auto j) {
           return 2.0 * tanh(s / 2.0) - slope(h) * (i - j);
         }};
       },
       [distance](S z, auto& s) { return add(mul(tanh(div(s, 2)), 2), distance(z, s.dtype())); }},
      {"score callable",
       [](S, P) { return AttentionOptions{.score_callback = [](const ScoreTile& tile) { tile.tanh(); }}; },
       [](S, auto& s) { return tanh(s); }},
      {"documents",
       [document](S z, P place) {
         std::vector<std::int64_t> ids;
         for (std::int64_t i = 0; i < z.rows; ++i) ids.push_back(document(z, i));
         return AttentionOptions{.mask = Mask::documents(place(tensor<std::int64_t>(ids)))};
       },
       [document](S z, auto& s) {
         return hidden_where(z, s, [&](auto i, auto j) { return document(z, i) != document(z, j); });
       }},
      {"blocks of keys",
       [](S z, P place) {
         std::vector<std::int64_t> lists;  // of heads and blocks of 8 rows: the block of the same index, and the first
         const std::int64_t blocks = (z.rows + 7) / 8, far = (z.rows - 1) / 24;
         for (std::int64_t h = 0; h < z.heads; ++h)
           for (std::int64_t n = 0; n < blocks; ++n) lists.insert(lists.end(), {n / 3, h % 2 ? -1 : far});
         return AttentionOptions{.mask =
                                     Mask::blocks(place(tensor<std::int64_t>(lists, {1, z.heads, blocks, 2})), 8, 24)};
       },
       [](S z, auto& s) {
         const std::int64_t far = (z.rows - 1) / 24;
         return add(s, of_pairs(z, s.dtype(), [far](auto h, auto i, auto j) {
                      return j / 24 == i / 24 || (h % 2 == 0 && j / 24 == far) ? 0 : -INFINITY;
                    }));
       }},
      {"packed",
       [](S z, P place) { return AttentionOptions{.cu_seqlens_q = place(tensor<std::int64_t>(packed_at(z)))}; },
       [document](S z, auto& s) {
         return hidden_where(z, s, [&](auto i, auto j) { return document(z, i) != document(z, j); });
       }},
      {"additive score",
       [](S z, P place) {
         return AttentionOptions{.score = Score::additive(place(exact({8, z.dim}, z.dtype, 24, 0.5)),
                                                          place(exact({8, z.dim}, z.dtype, 25, 0.5)),
                                                          place(exact({8}, z.dtype, 26)))};
       }},
      {"general score",
       [](S z, P place) {
         return AttentionOptions{.score = Score::general(place(exact({z.dim, z.dim}, z.dtype, 24, 0.5)))};
       }},
  };
}

/// The option in plain operations of `dtype`, one after the other, matrices and all.
inline Tensor in_plain_operations(const Option& option, const OptionSizes& z, const Tensor& q, const Tensor& k,
                                  const Tensor& v, Dtype dtype) {
  const AttentionOptions options = option.make(z, as_it_is);
  const auto to = [&](const Tensor& x) { return x.to(dtype); };
  Tensor s;
  if (options.score.kind == Score::Kind::additive) {
    const Tensor q_turned = matmul(to(q), to(options.score.w_q).t()),
                 k_turned = matmul(to(k), to(options.score.w_k).t());
    s = matmul(tanh(add(q_turned.unsqueeze(3), k_turned.unsqueeze(2))), to(options.score.w).reshape({8, 1}))
            .squeeze(-1);
  } else if (options.score.kind == Score::Kind::general) {
    s = matmul(matmul(to(q), to(options.score.w)), to(k).transpose(2, 3));
  } else {
    s = div(matmul(to(q), to(k).transpose(2, 3)), std::sqrt(static_cast<double>(z.dim)));
  }
  if (option.scores) s = option.scores(z, s);
  if (option.sinks) s = cat({s, to(options.sinks).reshape({1, z.heads, 1, 1}).expand({1, z.heads, z.rows, 1})}, 3);
  Tensor p = softmax(s, -1).slice(3, 0, z.rows);
  if (option.weights) p = option.weights(z, p);
  return matmul(p, to(v));
}

}  // namespace attn::testing
