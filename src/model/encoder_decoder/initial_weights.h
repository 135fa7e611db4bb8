// src/model/encoder_decoder/initial_weights.h: draws the initial weights of an encoder-decoder.
#pragma once
#include <attn/encoder_decoder.h>

namespace attn {

void draw_initial_weights(const EncoderDecoder& model, Generator& generator);

}  // namespace attn
