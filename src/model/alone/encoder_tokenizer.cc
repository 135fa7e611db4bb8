// src/model/alone/encoder_tokenizer.cc: refuses the tokenizers of encoders, in builds that hold none (WebAssembly).
#include "model/encoder_tokenizer.h"

namespace attn {

std::shared_ptr<const EncoderTokenizer> read_encoder_tokenizer(const TokenizerFields& file, std::vector<std::string>&) {
  file.fail("the model is that of an encoder, WordPiece or Unigram; here are only those of language models", "model");
}

}  // namespace attn
