// src/explain/text_steps.cc: the steps from the text to its vectors: tokens, ids, embedding, positions, and the vector
// of a learned query.
#include "explain/explainer.h"

#include <attn/ops.h>

namespace attn::explain_detail {

void Explainer::add_tokens(const TokenTable& table, const char* name, Phrase title, Phrase note,
                           const std::string& source) {
  ExplainStep words = step(Kind::words, name, title, "", note, {"split", {}}, source);
  if (batch_) words.shape.push_back(table.batch());
  words.shape.push_back(table.width());
  words.batch = table.batch();
  words.rows = table.tokens;
  words.places = table.places;
  result_.steps.push_back(std::move(words));
}

void Explainer::add_ids(const TokenTable& table, const char* name, Phrase title, Phrase note) {
  ExplainStep ids = step(Kind::ids, name, title, "", note, {"index", {result_.steps.back().name}});
  ids.shape = result_.steps.back().shape;
  ids.batch = table.batch();
  ids.rows = table.tokens;
  ids.values = table.ids.reshape(ids.shape);
  result_.steps.push_back(std::move(ids));
}

void Explainer::add_texts() {
  std::string source;
  if (options_.tokens == text::Tokens::characters) source = say(Phrase::source_characters);
  if (options_.tokens == text::Tokens::words)
    source = say(options_.cut_words ? Phrase::source_cut_words : Phrase::source_words);
  if (options_.tokens == text::Tokens::automatic) source = say(Phrase::source_automatic);
  const auto without = [this](const TokenTable& table) {
    return table.commas.empty()
               ? ""
               : say_with(Phrase::source_left_out, runtime::format("{}", runtime::join(table.commas, " ")));
  };
  if (const std::string commas = without(text()); !commas.empty()) source += say(Phrase::source_and) + commas;
  const bool pads = text().pads();
  add_tokens(text(), "tokens", Phrase::tokens, pads ? Phrase::note_tokens_batch : Phrase::note_tokens, source);
  add_ids(text(), "ids", Phrase::ids, pads ? Phrase::note_ids_pad : Phrase::note_ids);
  if (!options_.to) return;
  add_tokens(tokens_.to, "tokens_to", Phrase::tokens_to, Phrase::note_tokens_to, without(tokens_.to));
  add_ids(tokens_.to, "ids_to", Phrase::ids_to, Phrase::note_ids);
}

void Explainer::add_embedding() {
  const std::string source = matrices_.own_embedding ? say_with(Phrase::source_own, "embedding")
                                                     : say_with(Phrase::source_embedding, matrices_.embedding_rows,
                                                                matrices_.dim(), options_.seed);
  add(step(Kind::table, "x", Phrase::embedding, "embedding[id]", Phrase::note_embedding, {"look_up", {"ids"}}, source),
      learned() ? run_.memory : run_.x, learned());
  if (options_.to)
    add(step(Kind::table, "y", Phrase::embedding_to, "embedding[id]", Phrase::note_embedding, {"look_up", {"ids_to"}},
             source),
        run_.memory, true);
  if (sinusoidal()) add_positions();
  if (learned())
    add(step(Kind::table, "learned_query", Phrase::learned_query, "", Phrase::note_learned_query, {"draw", {}},
             matrices_.own_query
                 ? say_with(Phrase::source_own, "query_vector")
                 : say_with(Phrase::source_random, runtime::format("randn(1, {})", matrices_.dim()), options_.seed)),
        run_.x);
}

void Explainer::add_positions() {
  const bool of_keys = learned() || run_.memory.size(1) > run_.x.size(1);
  const Tensor& places = of_keys ? run_.places_memory : run_.places_x;
  ExplainStep positions = step(Kind::table, "positions", Phrase::positions, "sin, cos", Phrase::note_positions,
                               {"sines", {}}, say_with(Phrase::source_sines, matrices_.dim()));
  positions.key_rows = of_keys;
  positions.shape = places.sizes();
  positions.values = places;
  std::vector<std::string> rows;
  for (std::int64_t row = 0; row < places.size(0); ++row) rows.push_back(std::to_string(row));
  positions.rows = {rows};
  result_.steps.push_back(std::move(positions));
  add(step(Kind::table, "x_positions", Phrase::with_positions, "x + p", Phrase::note_with_positions,
           {"add", {"x", "positions"}}),
      learned() ? run_.memory + run_.places_memory : run_.x + run_.places_x, learned());
  if (options_.to)
    add(step(Kind::table, "y_positions", Phrase::with_positions_to, "y + p", Phrase::note_with_positions,
             {"add", {"y", "positions"}}),
        run_.memory + run_.places_memory, true);
}

}  // namespace attn::explain_detail
