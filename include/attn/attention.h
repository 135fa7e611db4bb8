// include/attn/attention.h: attention as one call; the weights never need to exist as a whole.
#pragma once
#include <attn/bias.h>
#include <attn/hints.h>
#include <attn/mask.h>
#include <attn/random.h>
#include <attn/score.h>
#include <attn/tensor.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attn {

/// How a query and a key make one number.
class ATTN_API Score {
 public:
  /// (q . k) / sqrt(D), or * `AttentionOptions::scale`. Source: Vaswani 2017 (1706.03762).
  static Score scaled_dot();
  /// q . k. Source: Luong 2015 (1508.04025).
  static Score dot();
  /// q^T W k with w [D, Dk] (one for all heads) or [Hq, D, Dk]. Source: Luong 2015 ("general").
  static Score general(const Tensor& w);
  /// w . tanh(W_q q + W_k k) with w_q [A, D], w_k [A, Dk], w [A] (or [1, A]); bias-free. Source: Bahdanau 2014
  /// (1409.0473).
  static Score additive(const Tensor& w_q, const Tensor& w_k, const Tensor& w);

  Score() = default;
  enum class Kind { scaled_dot, dot, general, additive };
  Kind kind = Kind::scaled_dot;
  Tensor w_q, w_k, w;
};

/// Which of the weights the call returns. They are taken from each strip of rows as it is computed: there is memory for
/// what was asked for and for one strip a thread, and the output keeps its bits.
class ATTN_API Weights {
 public:
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wshadow"  // Weights::full beside attn::full
#endif
  enum Kind {
    none,
    full,          ///< [B, Hq, Tq, Tk]
    head_average,  ///< [B, Tq, Tk]: the mean over heads
    column_sums,   ///< [B, Hq, Tk]: what each key gets, summed over rows
    row_subset,    ///< of rows()
    largest,       ///< of top_k()
  };
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
  /// Those of some rows, i64 or i32 [n], in that order: [B, Hq, n, Tk].
  static Weights rows(const Tensor& indices);
  /// The n largest of each row, [B, Hq, Tq, n], descending, of equal ones the earlier key first; `weight_keys` says of
  /// which keys. Where fewer than n are above 0: 0 and key -1.
  static Weights top_k(std::int64_t n);

  Weights(Kind kind_ = none) : kind(kind_) {}
  template <std::same_as<bool> T>
  Weights(T) : kind(none) {
    static_assert(!sizeof(T), "attn: write Weights::full");
  }
  bool operator==(Kind other) const { return kind == other; }

  Kind kind;
  Tensor indices = {};     // rows
  std::int64_t count = 0;  // top_k
};

/// What a kernel answered when it was asked to take a call.
struct PlanStep {
  std::string kernel;  // "ref"
  bool taken = false;
  std::string reason;  // "takes everything"
};

/// Which kernel ran, and why not the others. A few bytes; its texts are made when asked for.
class ATTN_API Plan {
 public:
  static constexpr int most_kernels = 8;
  /// "ref"; empty when there was nothing to compute.
  std::string kernel() const;
  /// In the order in which they were asked; the last was taken.
  std::vector<PlanStep> steps() const;
  /// "avx512_f32: is for another dtype; avx512_f64: takes it"; "no kernel" when there was nothing to compute.
  std::string to_string() const;
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const Plan& plan);

  std::array<std::uint8_t, most_kernels> answers{};  ///< of each kernel asked, as the library numbers them
  int asked = 0;
};

struct AttentionOptions {
  Score score = {};
  /// of the scaled dot product; default 1/sqrt(D). ValueError with another score
  std::optional<double> scale = std::nullopt;
  Mask mask = {};
  Bias bias = {};
  ScoreExpression score_mod = {};     ///< the score as a function of itself and its place, after softcap and bias
  ScoreCallback score_callback = {};  ///< the same as a callable on tiles, after score_mod
  double softcap = 0;                 ///< c: scores become c * tanh(s / c); 0 = off
  double temperature = 1;             ///< scores are divided by it last
  Tensor sinks = {};                  ///< [Hq]: a logit per head that takes weight and gives no value
  Tensor query_lengths = {};
  Tensor key_lengths = {};
  Tensor key_start = {};
  Tensor query_start = {};
  /// i32 or i64 [N + 1], packed sequences: sequence s has the rows cu_seqlens_q[s] ... cu_seqlens_q[s + 1] - 1
  Tensor cu_seqlens_q = {};
  Tensor cu_seqlens_k = {};  ///< the same of its keys; default cu_seqlens_q
  /// each weight becomes 0 with this probability, else it is multiplied by 1 / (1 - p); 0 to 1
  double dropout_p = 0;
  /// which weights: the same seed, the same ones. Default: drawn
  std::optional<std::uint64_t> dropout_seed = std::nullopt;
  /// draws the seed (one u64); the global generator when null
  Generator* generator = nullptr;
  Weights weights = Weights::none;
  Tensor out = {};  ///< receives the output

  // No options: names of other libraries, of which the compiler's error says what to write.
  hints::Causal is_causal = {}, causal = {};
  hints::AttnMask attn_mask = {}, attention_mask = {};
  hints::Window window = {}, window_size = {};
  hints::EnableGqa enable_gqa = {};
  hints::Dropout dropout = {};
  hints::NeedWeights need_weights = {};
};

struct AttentionResult {
  Tensor output;            ///< [B, Hq, Tq, Dv], the dtype of q (packed: the layout of q)
  Tensor weights;           ///< what was asked for, else undefined
  Tensor weight_keys = {};  ///< of Weights::top_k: the keys, i64
  Tensor logsumexp;         ///< [B, Hq, Tq], f32 (f64 for f64): natural log; -inf where nothing is seen; before dropout
  std::uint64_t dropout_seed = 0;  ///< of this call's dropout: given again, it drops the same weights
  Plan plan;
};

/// Attention: softmax over the keys of a score, then the weighted mean of the values.
///
///   s[b,h,i,j] = score(q[b,h,i,:], k[b,g,j,:])          g = h / (Hq / Hk)
///   o[b,h,i,:] = sum_j softmax_j(mod(cap(s) + bias) / temperature, where mask)[j] v[b,g',j,:]
///
/// Shapes   q [B, Hq, Tq, D]   k [B, Hk, Tk, D]   v [B, Hv, Tk, Dv]  ->  output [B, Hq, Tq, Dv], logsumexp [B, Hq, Tq]
///          Hk and Hv each divide Hq (grouped heads). Rank 3 means [B, T, D] with one head, rank 2 [T, D].
/// Dtypes   f32, f64, bf16, f16, the same for q, k, v; sums and softmax in f32 (f64 for f64). A mask or dense bias of
///          rank 3 beside q of rank 3 is [B, Tq, Tk].
/// Packed   with cu_seqlens_q sequences of any lengths, 0 included, lie one behind the other, without padding, as
///          FlashAttention's varlen functions have them: q [total, Hq, D], k [total_k, Hk, D], v [total_k, Hv, Dv] ->
///          output [total, Hq, Dv], logsumexp [Hq, total]; or, with the heads outside, [1, H, total, D] each; or
///          [total, D]. A sequence is what a batch item is elsewhere: it sees its own keys only, positions and
///          alignment count from its start, query_start and a prefix per batch item are [N]. Dense masks and biases lie
///          over [Hq, total, total_k]. Its bits are those of the sequence alone.
/// Dropout  by counter: whether a weight is kept is a function of seed, batch item, head and the positions of row and
///          key (Philox, docs/numerics.md section 6), so no mask is stored and the cut of the work does not matter.
///          Returned weights are those after it. Functions with torch's names draw torch's stream instead.
/// Weights  exp(s - m) / l by the row's final maximum m and sum l (docs/numerics.md section 3); exactly 0 where hidden.
/// A row that sees no key gives output 0, weights 0 and logsumexp -inf, with a sink too. A pair that a mask, a length
/// or a bias of -inf hides changes nothing, even if its k or v is NaN or inf.
/// Errors   ShapeError when dims disagree or Hq % Hk or Hq % Hv != 0; DtypeError when dtypes differ; ValueError for a
///          length, scale, temperature, softcap or dropout_p out of range. Nothing is written, `out` included, when one
///          is thrown.
/// Bits     the same for a row in any batch, any padding, any thread count, prefill or decode (docs/numerics.md).
/// Gradient q, k, v, biases, sinks, the score's parameters and what an expression looks up, from the output and the
///          logsumexp in one fused pass; from the weights, and of gradients themselves by the definition, with matrices
///          of all scores.
/// Source   Vaswani 2017 (1706.03762); Bahdanau 2014 (1409.0473); Dao 2022 (2205.14135).
ATTN_API AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionOptions& options = {});

/// The scores alone, before softcap, bias, mask and softmax: [.., Tq, Tk], scaled as `options` says; the numbers that
/// `attention` goes on from. Of the options only `score` and `scale` count.
ATTN_API Tensor attention_scores(const Tensor& q, const Tensor& k, const AttentionOptions& options = {});

struct SdpaOptions {
  Tensor attn_mask = {};  ///< bool (True = takes part) or float (added), broadcastable to the scores
  double dropout_p = 0;
  bool is_causal = false;  ///< top-left; composes with attn_mask
  std::optional<double> scale = std::nullopt;
  bool enable_gqa = false;
  Generator* generator = nullptr;          ///< for dropout; the global one when null
  Tensor out = {};                         ///< receives the output
  hints::SdpaMask mask = {}, causal = {};  // no options: the compiler's error says what to write
};

/// torch.nn.functional.scaled_dot_product_attention, argument by argument (PyTorch 2.13).
///
/// Shapes   query [.., Hq, L, E]  key [.., H, S, E]  value [.., H, S, Ev]  ->  [.., Hq, L, Ev]; rank 2 to 8, leading
///          dims broadcast.
/// Differs from torch where torch's answer depends on its path: docs/torch.md lists each case.
ATTN_API Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                             const SdpaOptions& options = {});

// --- small forms the tutorials use -------------------------------------------------------------------------------
struct ScoresAndContext {
  Tensor scores, weights, context;
};
/// x W_q, x W_k, x W_v with rows as words, then attention: x [T, C], w_q, w_k [C, D], w_v [C, Dv].
ATTN_API ScoresAndContext self_attention(const Tensor& x, const Tensor& w_q, const Tensor& w_k, const Tensor& w_v,
                                         const AttentionOptions& options = {});
/// Queries from `x`, keys and values from `memory`.
ATTN_API ScoresAndContext cross_attention(const Tensor& x, const Tensor& memory, const Tensor& w_q, const Tensor& w_k,
                                          const Tensor& w_v, const AttentionOptions& options = {});
/// Additive attention, weights included when asked: query [.., Tq, D], key [.., Tk, Dk], value [.., Tk, Dv].
ATTN_API AttentionResult additive_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                            const Tensor& w_q, const Tensor& w_k, const Tensor& w,
                                            const AttentionOptions& options = {});

}  // namespace attn
