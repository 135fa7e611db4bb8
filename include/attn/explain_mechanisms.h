// include/attn/explain_mechanisms.h: explains attention other than the softmax of one product, as named steps with all
// their numbers: relative products, other normalizers and functions of the weight; linear attention with a state,
// latent attention, and forward mode.
#pragma once
#include <attn/explain.h>

#include <optional>
#include <string>
#include <vector>

namespace attn {

/// A relative product of an explained call (Bias::relative_product). Its table [heads, rows of the index, dk] is drawn.
struct ATTN_API ExplainRelative {
  RelativeIndex index = {};
  bool of_keys = false;  ///< a key's row is multiplied instead of a query's
  /// The rows that are multiplied are those of q (of k with of_keys) plus a drawn vector, as in Transformer-XL.
  bool operand = false;
  std::optional<double> scale = std::nullopt;  ///< of the product; nullopt: that of the scores

  /// Reads "distance(2, 2)", "log_buckets(4, 8).reversed() of_keys", "picture_rows(2, 3) scale=1 + picture_columns(3)
  /// scale=1": an index of RelativeIndex, then the words of_keys, operand and scale=X; + joins several. ValueError for
  /// anything else.
  static std::vector<ExplainRelative> parse(const std::string& text);
};

/// What an explained call has in addition to ExplainOptions.
struct ExplainAdditions {
  std::vector<ExplainRelative> relative = {};  ///< added to the scores in this order, after the bias
  Normalizer normalizer = {};                  ///< as in AttentionOptions
  ScoreExpression weight_mod = {};             ///< as in AttentionOptions; it looks up no tensors
};

/// The steps of `explain`, with steps of their own for each addition. Relative products: which row of the table each
/// pair reads, the products with all rows of the table, each pair's product times its scale, the scores with it.
/// Normalizers: the threshold of sparsemax and entmax-1.5 and how many keys are above it, the sum of a row of sigmoid
/// and ReLU squared, what softmax-1 leaves to no key. The function of the weight: the weights after it.
/// Options  those of explain without gradients; ValueError names what does not go together.
/// Numbers  scores, weights and context are those of attention, bit by bit.
ATTN_API Explanation explain_attention(const std::string& text, const ExplainAdditions& additions,
                                       const ExplainOptions& options = {});
ATTN_API Explanation explain_attention_batch(const std::vector<std::string>& texts, const ExplainAdditions& additions,
                                             const ExplainOptions& options = {});

/// How linear attention changes its state: as it is, with a decay of each head, by the delta rule, or by both (the
/// gated delta rule; decay and beta are then made of each token).
enum class LinearRule { plain, decay, delta, gated_delta };

/// Runs linear attention on a text. After q, k and v come the decay and beta, the state before one row
/// (`options.query`, default the last), each change that the row makes in it, what it reads, and the context of all.
/// Options  heads, dim, dk, dv, vocabulary, seed, positions, tokens, cut_words, own matrices, query, only, language;
///          ValueError names another one that is given.
/// Numbers  state and context are those of linear_attention, bit by bit.
ATTN_API Explanation explain_linear_attention(const std::string& text, LinearRule rule,
                                              const ExplainOptions& options = {});

/// Runs latent attention on a text, in the absorbed order: the latent row of `latent` numbers and the rotary key of 2
/// that a cache keeps for each token, the absorbed queries, the scores, the weights, the mean of latents (the values
/// are the first numbers of the rows themselves) and the context; at last the context in the expanded order.
/// Options  as above without positions and query, and a mask.
/// Numbers  weights and both contexts are those of latent_attention, bit by bit.
ATTN_API Explanation explain_latent_attention(const std::string& text, std::int64_t latent,
                                              const ExplainOptions& options = {});

/// The steps of `explain`, then forward mode: the tangents of q, k and v (drawn), and how scores, weights and context
/// change along them.
/// Options  those of explain without dropout, score_mod, weights, learned_query and scores other than the (scaled) dot
///          product; ValueError names one that is given.
/// Numbers  the tangent of the context is that of attention_jvp, bit by bit.
ATTN_API Explanation explain_tangent(const std::string& text, const ExplainOptions& options = {});

}  // namespace attn
