// src/model/encoder_decoder/sines.h: the table of sine and cosine positions of Marian, PEGASUS and M2M-100.
#pragma once
#include <attn/encoder_decoder.h>

namespace attn {

/// Returns the table in f32, [rows, C]: the sines of a row stand before its cosines.
///
///   Marian, PEGASUS   row t: of the angles t w_i                      w_i = 10000^(-2i / C)
///   M2M-100           row 1 + t: of (padding_id + 1 + t) w_i, in f32  w_i = 10000^(-i / (C / 2 - 1))
///
/// M2M-100's row 0 is that of padding: zeros.
Tensor sines_of(const EncoderDecoderConfig& config);

}  // namespace attn
