// src/model/encoder_decoder/texts.h: checks the texts of a call, and says what the architecture fixes of its attention.
#pragma once
#include "model/encoder_decoder/blocks.h"

#include <optional>
#include <string>
#include <vector>

namespace attn {

/// Returns "1 token", "2 tokens".
std::string count_of(std::int64_t n, const char* what);

/// Checks packed texts (one after another, without padding), and returns their ends. `what`: source or target; `most`:
/// the maximum tokens of a text, 0: no limit.
std::vector<std::int64_t> checked_texts(const char* what, const Tensor& ids, const Tensor& cu_seqlens,
                                        std::int64_t most);

/// Returns the row of the table of positions for a token. `before`: the number of tokens before it in its text;
/// M2M-100's encoder does not count padding.
std::int64_t position_row(const EncoderDecoderConfig& config, std::int64_t id, std::int64_t before);

/// The same for texts one after another.
std::vector<std::int64_t> position_rows(const EncoderDecoderConfig& config, const std::vector<std::int64_t>& ids,
                                        const std::vector<std::int64_t>& ends, bool counts_padding);

/// Options of self-attention that are those of the architecture.
AttentionOptions options_of(const EncoderDecoderConfig& config, const PairStack& stack, Side side);

/// Returns the scale of cross-attention; nullopt: 1 / sqrt(D).
std::optional<double> cross_scale(const EncoderDecoderConfig& config);

void check_memory(const EncoderDecoderConfig& config, const Memory& memory);

Tensor rows_joined(const Tensor& x);  // [total, H, D] -> [total, H D]

}  // namespace attn
