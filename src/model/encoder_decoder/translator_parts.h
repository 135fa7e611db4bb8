// src/model/encoder_decoder/translator_parts.h: what a Translator holds besides its model.
#pragma once
#include "model/encoder_decoder/tokenizers.h"

namespace attn {

struct Translator::Parts {
  std::shared_ptr<const PairTokenizer> tokenizer;
};

}  // namespace attn
