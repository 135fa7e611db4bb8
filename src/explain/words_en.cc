// src/explain/words_en.cc: lists the phrases in English, in the order of Phrase, each ended by a zero.
#include "explain/words.h"

#include <algorithm>
#include <iterator>

namespace attn::explain_detail {

const char* words_en() {
  static constexpr char words[] =
      /* tokens */
      "tokens\0"
      /* tokens_to */
      "tokens to\0"
      /* ids */
      "ids\0"
      /* ids_to */
      "ids to\0"
      /* embedding */
      "x\0"
      /* embedding_to */
      "y\0"
      /* positions */
      "p\0"
      /* with_positions */
      "x + p\0"
      /* with_positions_to */
      "y + p\0"
      /* query */
      "q\0"
      /* key */
      "k\0"
      /* value */
      "v\0"
      /* query_rotated */
      "q rotated\0"
      /* key_rotated */
      "k rotated\0"
      /* scores */
      "scores\0"
      /* scaled */
      "scaled\0"
      /* mask */
      "mask\0"
      /* weights */
      "weights\0"
      /* context */
      "context\0"
      /* joined */
      "joined\0"
      /* output */
      "output\0"
      /* learned_query */
      "u\0"
      /* alone */
      "alone\0"
      /* row_scores */
      "query row\0"
      /* row_values */
      "query sum\0"
      /* d_output */
      "dY\0"
      /* d_context */
      "dO\0"
      /* d_value */
      "dV\0"
      /* d_dropped */
      "dP dropped\0"
      /* d_weights */
      "dP\0"
      /* d_scores */
      "dS\0"
      /* d_untempered */
      "dS untempered\0"
      /* d_unmodified */
      "dS unmodified\0"
      /* d_uncapped */
      "dS uncapped\0"
      /* d_query */
      "dQ\0"
      /* d_key */
      "dK\0"
      /* capped */
      "capped\0"
      /* bias */
      "bias\0"
      /* biased */
      "biased\0"
      /* modified */
      "modified\0"
      /* tempered */
      "tempered\0"
      /* sink */
      "sink\0"
      /* dropped */
      "dropped\0"
      /* returned */
      "returned weights\0"
      /* packed */
      "packed\0"
      /* cached */
      "cached\0"
      /* key_int8 */
      "k in 8 bits\0"
      /* value_int8 */
      "v in 8 bits\0"
      /* context_int8 */
      "context\0"
      /* note_tokens */
      "tokens: the pieces the text is cut into\0"
      /* note_tokens_batch */
      "tokens: the pieces; PAD fills up the shorter sentences\0"
      /* note_tokens_to */
      "the text that gives keys and values\0"
      /* note_ids */
      "id: a token's place in the sorted vocabulary\0"
      /* note_ids_pad */
      "id: a token's place in the sorted vocabulary; PAD comes after it\0"
      /* note_embedding */
      "embedding: the vector that stands for an id\0"
      /* note_positions */
      "position: where a token stands, as sines and cosines\0"
      /* note_with_positions */
      "the embedding plus the position\0"
      /* note_query */
      "query: what a token looks for\0"
      /* note_key */
      "key: what a token is found by\0"
      /* note_value */
      "value: what a token passes on\0"
      /* note_rotated */
      "each pair of numbers rotated by an angle that grows with the position\0"
      /* note_scores_self */
      "self-attention: {}, how well a query (row) and a key (column) of the same text match\0"
      /* note_scores_cross */
      "cross-attention: {}, how well a query (row) and a key of the other text (column) match\0"
      /* note_scores_learned */
      "attention with one learned query: {}, how well it (row) and each key (column) match\0"
      /* note_scaled */
      "scaled dot-product attention: the variance of a dot product grows with d; divided by √d it stays the same\0"
      /* note_mask */
      "mask: a masked pair counts as -inf and gets weight 0\0"
      /* note_mask_causal */
      "causal attention: no token sees a later one; a masked pair counts as -inf and gets weight 0\0"
      /* note_weights */
      "attention weights: each row adds up to 1\0"
      /* note_weights_empty */
      "attention weights: each row adds up to 1; a row that sees no key has none\0"
      /* note_context */
      "context vector: the values, mixed by the weights\0"
      /* note_context_pad */
      "context vector: the values, mixed by the weights; PAD rows are 0\0"
      /* note_joined */
      "multi-head attention: the heads side by side in one vector\0"
      /* note_output */
      "output projection: W_O mixes what the heads found\0"
      /* note_learned_query */
      "one learned vector asks, the same for every text\0"
      /* note_parameters */
      "the matrices that a model learns\0"
      /* note_alone */
      "each sentence computed alone, without PAD: is every bit the same?\0"
      /* note_row_scores */
      "one query by hand: products, sum, minus the maximum, exp, divided by the total\0"
      /* note_row_values */
      "one query by hand: each value times its weight, then the sum\0"
      /* note_d_output */
      "the backward pass begins: how the loss changes with each number of the output\0"
      /* note_d_context */
      "the backward pass begins: how the loss changes with each number of the context\0"
      /* note_d_context_output */
      "back through W_O: how the loss changes with each number of the context\0"
      /* note_d_value */
      "gradient of a value: the sum of the queries' gradients, each times its weight\0"
      /* note_d_dropped */
      "how the loss changes with each weight that dropout left\0"
      /* note_d_weights */
      "how the loss changes with each weight\0"
      /* note_d_scores */
      "back through softmax: what a row gains on one key it loses on others, so each row adds up to 0\0"
      /* note_d_untempered */
      "back through temperature: divided as the score was\0"
      /* note_d_unmodified */
      "back through the score's expression: times its derivative at that score\0"
      /* note_d_uncapped */
      "back through softcap: the nearer a score is to the cap, the smaller its gradient\0"
      /* note_d_query */
      "gradient of a query, from the keys that it attends to\0"
      /* note_d_key */
      "gradient of a key, from the queries that attend to it\0"
      /* note_capped */
      "softcap: large scores level off\0"
      /* note_alibi */
      "ALiBi: the farther back, the more is taken off\0"
      /* note_alibi_ahead */
      "ALiBi: the farther back, the more is taken off; without a causal mask, the farther ahead, the more is added\0"
      /* note_alibi_symmetric */
      "ALiBi both ways: the farther away, the more is taken off\0"
      /* note_relative */
      "relative position: a number for each distance\0"
      /* note_biased */
      "the bias is added to the score\0"
      /* note_modified */
      "the score that your expression (score_mod) gives\0"
      /* note_tempered */
      "temperature: below 1 weights grow sharper, above 1 more even\0"
      /* note_weights_sink */
      "attention weights: each row and what its sink takes add up to 1\0"
      /* note_sink */
      "sink: takes weight and gives no value\0"
      /* note_dropped */
      "dropout: some weights are 0, the others grow\0"
      /* note_column_sums */
      "what each key gets from all queries\0"
      /* note_head_average */
      "the weights of all heads, averaged\0"
      /* note_asked */
      "the weights that the call returns\0"
      /* note_packed */
      "the sentences one behind the other, without PAD: is every bit of the context the same?\0"
      /* note_cached */
      "keys and values from a paged cache: is every bit of the context the same?\0"
      /* note_int8 */
      "what the cache returns: numbers of 8 bits, times one scale a row\0"
      /* note_context_int8 */
      "context vector from the 8-bit cache\0"
      /* source_automatic */
      "words, cut at spaces; Chinese and Japanese by characters\0"
      /* source_words */
      "words, cut at spaces\0"
      /* source_characters */
      "characters\0"
      /* source_cut_words */
      "words\0"
      /* source_embedding */
      "Embedding({}, {}), seed {}\0"
      /* source_random */
      "{}, seed {}\0"
      /* source_drawn */
      "{}: rand, seed {}\0"
      /* source_own */
      "your own {}\0"
      /* source_head */
      "layer {}, head {}\0"
      /* source_key_head */
      "layer {}, head {} of keys\0"
      /* source_sines */
      "sin and cos of place / 10000^(2i / {})\0"
      /* source_left_out */
      "commas left out: {}\0"
      /* source_and */
      "; \0"
      /* dot */
      "dot-product score\0"
      /* general */
      "general (bilinear) score\0"
      /* additive */
      "additive score\0"
      /* learned_row */
      "query\0"
      /* head */
      "head {}\0"
      /* sentence */
      "sentence {}: {}\0"
      /* legend */
      "hidden:\0"
      /* legend_blank */
      "blank:\0"
      /* legend_causal */
      "later than the query (causal)\0"
      /* legend_window */
      "outside the window\0"
      /* legend_mask */
      "excluded by the mask\0"
      /* legend_padding */
      "padding\0"
      /* legend_score */
      "its score is -inf\0"
      /* legend_not_returned */
      "not requested\0"
      /* scale */
      "shades: ░ from {}  ▒ from {}  ▓ from {}  █ from {}\0"
      /* scale_share */
      "an equal share is {:.4f}\0"
      /* rows_left_out */
      "rows: {} of {} shown\0"
      /* keys_left_out_strongest */
      "keys: {} of {} shown, the strongest; those left out hold {:.1f} % of these rows' weight\0"
      /* keys_left_out_diagonal */
      "keys: {} of {} shown, around the diagonal; those left out hold {:.1f} % of these rows' weight\0"
      /* columns_left_out */
      "{} more columns\0"
      /* maximum */
      "maximum {}\0"
      /* total */
      "total {}\0"
      /* row_of */
      "query {} \"{}\"\0"
      /* row_number */
      "query {}\0"
      /* same_bits */
      "the same bits alone\0"
      /* other_bits */
      "other bits alone\0"
      /* still_same_bits */
      "the same bits\0"
      /* changed_bits */
      "other bits\0"
      /* sum_row */
      "sum\0"
      /* loss */ "loss L = ½ Σ {}² = {}\0";
  static_assert(std::count(words, std::end(words) - 1, 0) == static_cast<int>(Phrase::count_));
  return words;
}

}  // namespace attn::explain_detail
