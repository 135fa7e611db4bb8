// src/model/encoder/texts.h: what the steps of an encoder share about packed texts.
#pragma once
#include <attn/encoder.h>

namespace attn {

/// Returns where each text begins and the last one ends. Throws a ValueError unless they ascend from 0 to `total`.
std::vector<std::int64_t> ends_of_texts(const Tensor& cu_seqlens, std::int64_t total);

/// Returns the vector [C] of one text's rows [n, C]; its first `prompt` rows take no part, except in cls.
Tensor pooled_rows(const Tensor& rows, EncoderPooling::Kind kind, std::int64_t prompt);

}  // namespace attn
