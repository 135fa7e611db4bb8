// src/model/encoder_decoder/texts.cc: checks the texts of a call, and says what the architecture fixes of its
// attention.
#include "model/encoder_decoder/texts.h"

#include "runtime/format.h"

namespace attn {

std::string count_of(std::int64_t n, const char* what) {
  return runtime::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

/// Checks packed texts, and returns their ends.
std::vector<std::int64_t> checked_texts(const char* what, const Tensor& ids, const Tensor& cu_seqlens,
                                        std::int64_t most) {
  if (!ids.defined() || ids.dim() != 1)
    throw ShapeError(runtime::format("EncoderDecoder: the {} ids have shape {}; texts one after another are [total]",
                                     what, ids.defined() ? to_string(ids.sizes()) : "[]"));
  if (!cu_seqlens.defined() || cu_seqlens.dim() != 1 || !is_integral(cu_seqlens.dtype()))
    throw ValueError(runtime::format("EncoderDecoder: cu_seqlens of the {} must be i32 or i64 [N + 1]", what));
  std::vector<std::int64_t> ends = cu_seqlens.to_int_vector();
  if (ends.empty() || ends.front() != 0 || ends.back() != ids.size(0))
    throw ValueError(
        runtime::format("EncoderDecoder: cu_seqlens of the {} must begin with 0 and end with {}, the number of ids",
                        what, ids.size(0)));
  for (std::size_t n = 0; n + 1 < ends.size(); ++n) {
    const std::int64_t length = ends[n + 1] - ends[n];
    if (length < 1)
      throw ValueError(runtime::format("EncoderDecoder: {} text {} has no token; cu_seqlens must ascend", what, n));
    if (most > 0 && length > most)
      throw ValueError(runtime::format("EncoderDecoder: {} text {} has {}; the model reads at most {}", what, n,
                                       count_of(length, "token"), most));
  }
  return ends;
}

/// Returns the row of the table of positions for a token. `before`: the number of tokens before it in its text;
/// M2M-100's encoder does not count padding.
std::int64_t position_row(const EncoderDecoderConfig& config, std::int64_t id, std::int64_t before) {
  using Family = EncoderDecoderConfig::Family;
  if (config.family == Family::m2m_100) return id == config.padding_id ? 0 : before + 1;
  const bool learned = config.family == Family::bart || config.family == Family::mbart;
  return learned ? before + 2 : before;
}

/// The same for texts one after another.
std::vector<std::int64_t> position_rows(const EncoderDecoderConfig& config, const std::vector<std::int64_t>& ids,
                                        const std::vector<std::int64_t>& ends, bool counts_padding) {
  std::vector<std::int64_t> rows;
  for (std::size_t n = 0; n + 1 < ends.size(); ++n) {
    std::int64_t before = 0;
    for (std::int64_t i = ends[n]; i < ends[n + 1]; ++i) {
      const std::int64_t id = ids[static_cast<std::size_t>(i)];
      rows.push_back(position_row(config, id, before));
      if (counts_padding || config.family != EncoderDecoderConfig::Family::m2m_100 || id != config.padding_id) ++before;
    }
  }
  return rows;
}

/// Options of self-attention that are those of the architecture.
AttentionOptions options_of(const EncoderDecoderConfig& config, const PairStack& stack, Side side) {
  AttentionOptions options;
  if (side == Side::decoder) options.mask = Mask::causal();
  if (!stack.relative) return options;
  options.scale = 1.0;
  options.bias =
      Bias::relative(stack.relative->weight, /*bidirectional=*/side == Side::encoder, config.relative_distance);
  return options;
}

Tensor rows_joined(const Tensor& x) { return x.reshape({x.size(0), x.size(1) * x.size(2)}); }  // [total, H, D]

/// Returns the scale of cross-attention; nullopt: 1 / sqrt(D).
std::optional<double> cross_scale(const EncoderDecoderConfig& config) {
  return config.family == EncoderDecoderConfig::Family::t5 ? std::optional(1.0) : std::nullopt;
}

void check_memory(const EncoderDecoderConfig& config, const Memory& memory) {
  if (std::ssize(memory.keys) != config.decoder_layers || std::ssize(memory.values) != config.decoder_layers)
    throw ValueError(runtime::format("EncoderDecoder: the memory is of a model with {}; this one has {}",
                                     count_of(std::ssize(memory.keys), "layer"), config.decoder_layers));
}

}  // namespace attn
