// src/model/encoder_decoder/generation_config.h: the text of generation_config.json that an encoder-decoder is saved
// with.
#pragma once
#include <attn/encoder_decoder.h>

#include <filesystem>
#include <string>

namespace attn {

/// The ids that the family's texts begin and end with, as far as the vocabulary has them.
std::string default_generation_config(const EncoderDecoderConfig& config);

/// The folder's generation_config.json; without one, or if it is not JSON, what its config.json says of generation.
std::string generation_config_of(const char* function, const std::filesystem::path& folder,
                                 const EncoderDecoderConfig& config);

}  // namespace attn
