// src/explain/words.h: names every phrase of an explanation; each language has one table.
#pragma once
#include <attn/explain.h>

#include <string>
#include <string_view>
#include <vector>

namespace attn::explain_detail {

/// Phrases with {} are formats (fmt); their arguments are the same in every language.
enum class Phrase {
  // titles
  tokens,
  tokens_to,
  ids,
  ids_to,
  embedding,
  embedding_to,
  positions,
  with_positions,
  with_positions_to,
  query,
  key,
  value,
  query_rotated,
  key_rotated,
  scores,
  scaled,
  mask,
  weights,
  context,
  joined,
  output,
  learned_query,
  alone,
  row_scores,
  row_values,
  d_output,
  d_context,
  d_value,
  d_dropped,
  d_weights,
  d_scores,
  d_untempered,
  d_unmodified,
  d_uncapped,
  d_query,
  d_key,
  capped,
  bias,
  biased,
  modified,
  tempered,
  sink,
  dropped,
  returned,
  packed,
  cached,
  key_int8,
  value_int8,
  context_int8,
  // notes
  note_tokens,
  note_tokens_batch,
  note_tokens_to,
  note_ids,
  note_ids_pad,
  note_embedding,
  note_positions,
  note_with_positions,
  note_query,
  note_key,
  note_value,
  note_rotated,
  note_scores_self,
  note_scores_cross,
  note_scores_learned,
  note_scaled,
  note_mask,
  note_mask_causal,
  note_weights,
  note_weights_empty,
  note_context,
  note_context_pad,
  note_joined,
  note_output,
  note_learned_query,
  note_parameters,
  note_alone,
  note_row_scores,
  note_row_values,
  note_d_output,
  note_d_context,
  note_d_context_output,
  note_d_value,
  note_d_dropped,
  note_d_weights,
  note_d_scores,
  note_d_untempered,
  note_d_unmodified,
  note_d_uncapped,
  note_d_query,
  note_d_key,
  note_capped,
  note_alibi,
  note_alibi_ahead,
  note_alibi_symmetric,
  note_relative,
  note_biased,
  note_modified,
  note_tempered,
  note_weights_sink,
  note_sink,
  note_dropped,
  note_column_sums,
  note_head_average,
  note_asked,
  note_packed,
  note_cached,
  note_int8,
  note_context_int8,
  // sources
  source_automatic,
  source_words,
  source_characters,
  source_cut_words,
  source_embedding,
  source_random,
  source_drawn,
  source_own,
  source_head,
  source_key_head,
  source_sines,
  source_left_out,
  source_and,
  // scores
  dot,
  general,
  additive,
  // frames
  learned_row,
  head,
  sentence,
  legend,
  legend_blank,
  legend_causal,
  legend_window,
  legend_mask,
  legend_padding,
  legend_score,
  legend_not_returned,
  scale,
  scale_share,
  rows_left_out,
  keys_left_out_strongest,
  keys_left_out_diagonal,
  columns_left_out,
  maximum,
  total,
  row_of,
  row_number,
  same_bits,
  other_bits,
  still_same_bits,
  changed_bits,
  sum_row,
  loss,
  count_
};

/// The phrases in the order above, one behind the other and each ended by a zero: an array of strings would need one
/// address for each phrase.
const char* words_en();
const char* words_zh();

/// Returns what a line of the checks step with that name says.
Phrase phrase_of_check(const std::string& step, bool same);

/// Names the reasons for signs in a table, and the legend's phrase for each.
struct Reason {
  Hidden hidden;
  Phrase phrase;
};
inline constexpr Reason reasons_of_signs[] = {
    {Hidden::causal, Phrase::legend_causal}, {Hidden::window, Phrase::legend_window},
    {Hidden::mask, Phrase::legend_mask},     {Hidden::padding, Phrase::legend_padding},
    {Hidden::score, Phrase::legend_score},   {Hidden::not_returned, Phrase::legend_not_returned}};

/// Returns what the step `mask` says of the pairs that it masks.
Phrase note_of_mask(const std::vector<Hidden>& hidden);

std::string_view say(Language language, Phrase phrase);

}  // namespace attn::explain_detail
