// src/model/encoder_decoder/names.h: lists the tensors of an encoder-decoder's file and the parameter each belongs to.
#pragma once
#include <attn/encoder_decoder.h>

#include "model/stored.h"

#include <string>
#include <vector>

namespace attn {

/// Lists the tensors under transformers' names, without the prefix "model." of BART's like. Tables: "shared.weight",
/// or, if there are two, "encoder.embed_tokens.weight" and "decoder.embed_tokens.weight"; "lm_head.weight" unless tied.
std::vector<StoredTensor> pair_tensors(const EncoderDecoderConfig& config);

/// Returns the name of a tensor of the file as `pair_tensors` has it.
std::string pair_name(const EncoderDecoderConfig& config, const std::string& name);
/// The same backwards: the name in a file of transformers.
std::string pair_file_name(const EncoderDecoderConfig& config, const std::string& name);

/// Returns whether the tensor of that name (of `pair_name`) is read: tables of computed positions, T5's unused biases
/// of cross-attention and versions are not.
bool is_pair_weight(const EncoderDecoderConfig& config, const std::string& name);

}  // namespace attn
