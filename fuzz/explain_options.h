// fuzz/explain_options.h: makes options of explain from the bytes of an input.
#pragma once
#include "fuzz.h"

namespace attn::fuzz {

inline ExplainOptions explain_options(Choices& in) {
  ExplainOptions o;
  o.score = in.pick({Score::Kind::scaled_dot, Score::Kind::dot, Score::Kind::general, Score::Kind::additive});
  o.mask = in.pick({Mask{}, Mask::causal(), Mask::window(2, 1), Mask::causal(Align::bottom_right), Mask::none()});
  o.heads = in.below(4), o.dim = in.below(5), o.dk = in.below(5), o.dv = in.below(5);
  o.positions = in.pick({Positions::none, Positions::sinusoidal, Positions::rotary});
  o.tokens = in.pick({text::Tokens::automatic, text::Tokens::words, text::Tokens::characters});
  o.bias = in.pick({ExplainBias::none, ExplainBias::alibi, ExplainBias::relative});
  o.softcap = in.pick({0.0, 1.5, -1.0}), o.temperature = in.pick({1.0, 0.5, 0.0}),
  o.dropout_p = in.pick({0.0, 0.5, 1.5});
  if (in.coin()) o.query = in.between(-1, 5);
  if (in.coin()) o.cache = in.pick({KvStorage::same, KvStorage::int8});
  o.weights = in.pick({Weights(), Weights(Weights::full), Weights(Weights::column_sums), Weights::top_k(2)});
  o.packed = in.coin(), o.gradients = in.coin();
  o.language = in.pick({Language::en, Language::zh});
  o.output_projection = in.coin(), o.learned_query = in.coin();
  o.vocabulary = in.pick<std::int64_t>({50000, 3, 0});
  if (in.coin()) o.only = {in.pick<std::string>({"weights", "context", "no step"})};
  return o;
}

}  // namespace attn::fuzz
