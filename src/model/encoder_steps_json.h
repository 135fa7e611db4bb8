// src/model/encoder_steps_json.h: declares how the steps of an encoder's tokenizer.json are read.
#pragma once
#include "model/tokenizer_fields.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// These read a field of the document; what is not supported is refused by its name.
std::vector<text::NormalizerStep> read_normalizer(const TokenizerFields& file);
std::vector<text::PreTokenizerStep> read_pre_tokenizer(const TokenizerFields& file);
/// Returns nullopt if the file has no decoder.
std::optional<std::vector<text::DecoderStep>> read_decoder(const TokenizerFields& file);

/// Decodes Base64; nullopt unless it is whole, with its padding.
std::optional<std::string> bytes_of_base64(std::string_view text);

}  // namespace attn
