// src/model/encoder/names.h: lists the tensors of an encoder's file and the parameter each belongs to.
#pragma once
#include <attn/encoder.h>

#include "model/stored.h"

#include <string>
#include <vector>

namespace attn {

/// Lists the tensors under transformers' names, without the prefix that files of models with a head have ("bert.").
std::vector<StoredTensor> encoder_tensors(const EncoderConfig& config);

/// Returns the name of a tensor of the file as `encoder_tensors` has it: without the prefix, and with today's names of
/// a norm's parameters, which files of BERT's time call gamma and beta.
std::string encoder_name(const EncoderConfig& config, const std::string& name);

/// Returns whether the tensor of that name (of `encoder_name`) is a weight of the encoder: buffers and the layers of
/// another task are not.
bool is_encoder_weight(const EncoderConfig& config, const std::string& name);

}  // namespace attn
