// include/attn/attention.h: computes attention in one call, without storing the Tq x Tk weights.
#pragma once
#include <attn/bias.h>
#include <attn/hints.h>
#include <attn/mask.h>
#include <attn/normalizer.h>
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

/// How a score is computed from a query q and a key k.
class ATTN_API Score {
 public:
  /// Computes (q . k) / sqrt(D), or (q . k) * `AttentionOptions::scale`. Source: Vaswani 2017 (1706.03762).
  static Score scaled_dot();
  /// Computes q . k. Source: Luong 2015 (1508.04025).
  static Score dot();
  /// Computes q^T W k with w [D, Dk] (one for all heads) or [Hq, D, Dk]. Source: Luong 2015 ("general").
  static Score general(const Tensor& w);
  /// Computes w . tanh(W_q q + W_k k) with w_q [A, D], w_k [A, Dk], w [A] (or [1, A]), without bias. Source: Bahdanau
  /// 2014 (1409.0473).
  static Score additive(const Tensor& w_q, const Tensor& w_k, const Tensor& w);

  Score() = default;
  enum class Kind { scaled_dot, dot, general, additive };
  Kind kind = Kind::scaled_dot;
  Tensor w_q, w_k, w;
};

/// Says which attention weights a call returns. They are copied out of each query tile as it is computed. Extra memory:
/// the returned weights, and for each thread the weights of one query tile x Tk. The output has the same bits as
/// without them.
class ATTN_API Weights {
 public:
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wshadow"  // Weights::full beside attn::full
#endif
  enum Kind : int {
    none,
    full,          ///< [B, Hq, Tq, Tk]
    head_average,  ///< [B, Tq, Tk]: the mean over heads
    column_sums,   ///< [B, Hq, Tk]: the sum of each key's weights over all rows
    row_subset,    ///< the weights of chosen rows: write rows(indices)
    largest,       ///< the n largest weights of each row: write top_k(n)
  };
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
  /// Returns the weights of the rows in `indices` (i64 or i32 [n]), in that order: [B, Hq, n, Tk].
  static Weights rows(const Tensor& indices);
  /// Returns the n largest weights of each row, [B, Hq, Tq, n], in descending order; of equal weights the earlier key
  /// comes first. `AttentionResult::weight_keys` holds their keys. If fewer than n weights are above 0, the rest is
  /// weight 0 and key -1.
  static Weights top_k(std::int64_t n);

  /// Reads what `to_string` writes: "full", "rows(0, 5)", "top_k(3)". ValueError for anything else.
  static Weights parse(const std::string& text);
  std::string to_string() const;

  Weights(Kind kind_ = none) : kind(kind_) {}
  template <std::same_as<bool> T>
  Weights(T) : kind(none) {
    static_assert(!sizeof(T), "attn: write Weights::full");
  }
  bool operator==(Kind other) const { return kind == other; }

  Kind kind;
  Tensor indices = {};     // the indices given to rows()
  std::int64_t count = 0;  // the n given to top_k()
};

/// Whether one kernel accepts a call, and the reason.
struct PlanStep {
  std::string kernel;  // "ref"
  bool taken = false;
  std::string reason;  // "takes everything"
};

/// Says which kernel ran and why each kernel that was tried before it did not take the call. It holds one byte for each
/// kernel; its functions make the texts.
class ATTN_API Plan {
 public:
  static constexpr int most_kernels = 8;
  /// Returns the name of the kernel that ran, such as "ref"; empty in the result of attention_recorded, which runs
  /// none.
  std::string kernel() const;
  /// Returns the kernels in the order in which they were tried; the last one was taken.
  std::vector<PlanStep> steps() const;
  /// Returns the steps as one line: "avx512_f32: is for another dtype; avx512_f64: takes it"; "no kernel" if none ran.
  std::string to_string() const;
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const Plan& plan);

  std::array<std::uint8_t, most_kernels> answers{};  ///< the answer of each kernel that was tried
  int asked = 0;
};

struct AttentionOptions {
  Score score = {};
  /// The factor of the scaled dot product; default 1/sqrt(D). With another score it is a ValueError.
  std::optional<double> scale = std::nullopt;
  Mask mask = {};
  Bias bias = {};
  ScoreExpression score_mod = {};     ///< an expression of score and position, applied after softcap and bias
  ScoreCallback score_callback = {};  ///< a C++ callable that changes tiles of scores, applied after score_mod
  Normalizer normalizer = {};         ///< how the scores of a row become weights: softmax, or another
  /// An expression of the weight (which takes the place of the score: `s`) and of the position, applied after the
  /// normalizer and before dropout.
  ScoreExpression weight_mod = {};
  double softcap = 0;      ///< c: scores become c * tanh(s / c); 0 = off
  double temperature = 1;  ///< scores are divided by it, as the last step before softmax
  Tensor sinks = {};       ///< [Hq]: an extra logit per head in the softmax's sum, without a row of v
  Tensor query_lengths = {};
  Tensor key_lengths = {};
  Tensor key_start = {};
  Tensor query_start = {};
  /// i32 or i64 [N + 1]. Packed sequences: sequence s has the rows cu_seqlens_q[s] ... cu_seqlens_q[s + 1] - 1.
  Tensor cu_seqlens_q = {};
  Tensor cu_seqlens_k = {};  ///< where the keys of each sequence are; default cu_seqlens_q
  /// The probability, 0 to 1, with which a weight is set to 0; a weight that is kept is multiplied by 1 / (1 - p).
  double dropout_p = 0;
  /// The same seed drops the same weights. Default: drawn from `generator`.
  std::optional<std::uint64_t> dropout_seed = std::nullopt;
  /// The generator that draws the seed (one u64); null means the global one.
  Generator* generator = nullptr;
  Weights weights = Weights::none;
  Tensor out = {};  ///< receives the output

  // These are no options but names from other libraries: setting one is a compiler error that says what to write
  // instead.
  hints::Causal is_causal = {}, causal = {};
  hints::AttnMask attn_mask = {}, attention_mask = {};
  hints::Window window = {}, window_size = {};
  hints::EnableGqa enable_gqa = {};
  hints::Dropout dropout = {};
  hints::NeedWeights need_weights = {};
};

struct AttentionResult {
  Tensor output;            ///< [B, Hq, Tq, Dv], the dtype of q (packed: the layout of q)
  Tensor weights;           ///< the weights that `AttentionOptions::weights` requested, else undefined
  Tensor weight_keys = {};  ///< with Weights::top_k: the key of each weight, i64
  /// [B, Hq, Tq], f32 (f64 for f64): natural log, before dropout; -inf if no key is seen. Undefined with another
  /// normalizer than softmax and softmax1.
  Tensor logsumexp;
  std::uint64_t dropout_seed = 0;  ///< the dropout seed of this call; passing it again drops the same weights
  Plan plan;
};

/// Computes attention: a softmax over the keys of each row's scores, then the weighted mean of the values.
///
///   s[b,h,i,j] = score(q[b,h,i,:], k[b,g,j,:])          g = h / (Hq / Hk), g' = h / (Hq / Hv)
///   o[b,h,i,:] = sum_j softmax_j(mod(cap(s) + bias) / temperature, where mask)[j] v[b,g',j,:]
///
/// Shapes   q [B, Hq, Tq, D]   k [B, Hk, Tk, D]   v [B, Hv, Tk, Dv]  ->  output [B, Hq, Tq, Dv], logsumexp [B, Hq, Tq]
///          Hk and Hv each divide Hq (grouped heads). Rank 3 means [B, T, D] with one head, rank 2 [T, D]. With q of
///          rank 3, a mask or dense bias of rank 3 is [B, Tq, Tk].
/// Dtypes   f32, f64, bf16, f16, the same for q, k and v. Sums and softmax are in f32 (f64 for f64).
/// Packed   With cu_seqlens_q, sequences of any length (0 included) are concatenated without padding, as in
///          FlashAttention's varlen functions: q [total, Hq, D], k [total_k, Hk, D], v [total_k, Hv, Dv] -> output
///          [total, Hq, Dv], logsumexp [Hq, total]. Two other layouts are accepted: [1, H, total, D], heads first, and
///          [total, D] for one head. A packed sequence takes the place of a batch item: its rows see its own keys only,
///          positions and alignment count from its start, and query_start and the n of Mask::prefix have shape [N].
///          Dense masks and biases cover [Hq, total, total_k]. The bits are those of computing the sequence alone.
/// Dropout  Counter-based: whether a weight is kept depends only on the seed, batch item, head, row position and key
///          position (Philox, docs/numerics.md section 6). So no mask is stored, and splitting the work among tasks
///          changes nothing. Returned weights are those after dropout. Functions with torch's names draw from torch's
///          random stream instead.
/// Weights  exp(s - m) / l with the row's final maximum m and sum l (docs/numerics.md section 3); exactly 0 for masked
///          pairs.
/// A row that sees no key has output 0, weights 0 and logsumexp -inf, even with a sink. A pair that is masked by a
/// mask, a length or a bias of -inf affects no result, even if its k or v is NaN or inf.
/// Errors   ShapeError when dims disagree, or Hk or Hv does not divide Hq; DtypeError when dtypes differ; ValueError
///          for a length, scale, temperature, softcap or dropout_p out of range. A call that throws one of these writes
///          nothing, not even to `out`.
/// Bits     A row has the same bits in any batch, with any padding and thread count, in prefill and decode
///          (docs/numerics.md).
/// Gradient Of q, k, v, biases, sinks, the score's parameters and the tensors that score_mod looks up. Gradients that
///          come in through output and logsumexp are computed in one fused pass. Gradients that come in through the
///          weights, and second derivatives, use the unfused definition, which stores matrices of all scores.
/// Source   Vaswani 2017 (1706.03762); Bahdanau 2014 (1409.0473); Dao 2022 (2205.14135).
ATTN_API AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionOptions& options = {});

/// Returns the scores before softcap, bias, mask and softmax: [.., Tq, Tk], scaled as `options` says, with the bits
/// that `attention` uses. Only the options `score` and `scale` are used.
ATTN_API Tensor attention_scores(const Tensor& q, const Tensor& k, const AttentionOptions& options = {});

struct SdpaOptions {
  Tensor attn_mask = {};  ///< bool (True = takes part) or float (added to the scores), broadcastable to the scores
  double dropout_p = 0;
  bool is_causal = false;  ///< aligned top-left; applies together with attn_mask
  std::optional<double> scale = std::nullopt;
  bool enable_gqa = false;
  Generator* generator = nullptr;          ///< draws the numbers of dropout; null: the global generator
  Tensor out = {};                         ///< receives the output
  hints::SdpaMask mask = {}, causal = {};  // no options: setting one is a compiler error that says what to write
};

/// Computes torch.nn.functional.scaled_dot_product_attention with the same arguments (PyTorch 2.13).
///
/// Shapes   query [.., Hq, L, E]  key [.., H, S, E]  value [.., H, S, Ev]  ->  [.., Hq, L, Ev]; rank 2 to 8, leading
///          dims broadcast.
/// Differs from torch only where torch's result depends on the kernel that it chooses: docs/torch.md lists each case.
ATTN_API Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                             const SdpaOptions& options = {});

// --- small forms the tutorials use -------------------------------------------------------------------------------
struct ScoresAndContext {
  Tensor scores, weights, context;
};
/// Computes q = x W_q, k = x W_k and v = x W_v, then attention. The weights are the full ones unless `options` requests
/// others. One row of x per word: x [T, C], w_q, w_k [C, D], w_v [C, Dv].
ATTN_API ScoresAndContext self_attention(const Tensor& x, const Tensor& w_q, const Tensor& w_k, const Tensor& w_v,
                                         const AttentionOptions& options = {});
/// Computes cross-attention: as self_attention, with queries from `x`, and keys and values from `memory`.
ATTN_API ScoresAndContext cross_attention(const Tensor& x, const Tensor& memory, const Tensor& w_q, const Tensor& w_k,
                                          const Tensor& w_v, const AttentionOptions& options = {});
/// Computes additive attention: query [.., Tq, D], key [.., Tk, Dk], value [.., Tk, Dv]. The result holds the weights
/// if `options.weights` requests them.
ATTN_API AttentionResult additive_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                            const Tensor& w_q, const Tensor& w_k, const Tensor& w,
                                            const AttentionOptions& options = {});

}  // namespace attn
