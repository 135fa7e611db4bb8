// include/attn/explain_mechanisms.h: explains attention beside the softmax of one call, as named steps with all their
// numbers: linear attention with a state, latent attention, and forward mode.
#pragma once
#include <attn/explain.h>

namespace attn {

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
