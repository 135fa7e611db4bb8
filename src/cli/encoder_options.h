// src/cli/encoder_options.h: declares what attn embed and attn rank share: the model, and the lines that it encodes.
#pragma once
#include "cli/lines.h"
#include "cli/parser.h"

#include <attn/encoder.h>
#include <attn/error.h>

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

/// Reads the next lines that are encoded in one call; none at the end. `stop`: as Lines::next has it.
std::vector<std::string> next_lines(Lines& lines, int stop = -1);

/// Returns why a call with one text failed: the error without the number of the text.
std::string reason_of(const ValueError& error);

/// Returns compute(texts) for the last lines that were read. An error of one text names its line.
Tensor computed(const Lines& lines, const std::vector<std::string>& texts,
                const std::function<Tensor(const std::vector<std::string>&)>& compute);

}  // namespace attn::cli
