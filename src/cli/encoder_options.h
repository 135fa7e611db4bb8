// src/cli/encoder_options.h: declares what attn embed and attn rank share: the model, and the lines that it encodes.
#pragma once
#include "cli/lines.h"
#include "cli/parser.h"

#include <attn/encoder.h>

#include <functional>
#include <string>
#include <vector>

namespace attn::cli {

/// The options as they are given.
struct EncoderOptions {
  std::string folder, lines, dtype, prompt;
  std::int64_t batch = 2048;
};
/// Adds --dtype, --prompt and --batch to a verb.
void add_encoder_options(Parser& parser, EncoderOptions& options, const std::string& prompt_text);

/// Loads the model. Throws a UsageError for options that say nothing.
TextEncoder load_encoder(const EncoderOptions& given);

/// Reads the next lines that are encoded in one call; none at the end.
std::vector<std::string> next_lines(Lines& lines);

/// Returns compute(texts) for the last lines that were read. An error of one text names its line.
Tensor computed(const Lines& lines, const std::vector<std::string>& texts,
                const std::function<Tensor(const std::vector<std::string>&)>& compute);

}  // namespace attn::cli
