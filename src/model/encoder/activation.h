// src/model/encoder/activation.h: the activations of encoders and encoder-decoders: their names in config.json, and
// their values.
#pragma once
#include <attn/encoder.h>

#include "model/json_fields.h"

namespace attn {

/// Reads the name of an activation; `otherwise` if the field is missing.
EncoderConfig::Activation read_activation(const JsonFields& fields, const char* field, const char* otherwise = "gelu");

/// Returns the name that read_activation reads.
const char* name_of(EncoderConfig::Activation activation);

Tensor activated(const Tensor& x, EncoderConfig::Activation activation);

}  // namespace attn
