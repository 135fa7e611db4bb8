// src/cli/encoder_options.cc: implements what attn embed and attn rank share.
#include "cli/encoder_options.h"

#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/error.h>

#include "model/gguf/mapped_file.h"

#include "runtime/format.h"

#include <filesystem>
#include <system_error>

namespace attn::cli {

void add_encoder_options(Parser& parser, EncoderOptions& options, const std::string& prompt_text) {
  parser.option("--prompt", options.prompt, prompt_text).type_name("NAME");
  parser.option("--batch", options.batch, "Tokens that are computed together (2048); no bit depends on it")
      .type_name("N")
      .check(whole_number);
  add_weights_dtype(parser, options.dtype);
}

TextEncoder load_encoder(const EncoderOptions& given) {
  if (given.folder.empty())
    throw UsageError{
        "a model is missing: the folder of an encoder, as transformers or sentence-transformers stores it, or a GGUF "
        "file"};
  if (given.lines.empty()) throw UsageError{"a file of lines is missing; - is stdin"};
  if (given.batch < 1) throw UsageError{runtime::format("--batch is {}; it must be at least 1", given.batch)};
  if (std::error_code unknown; std::filesystem::is_regular_file(given.folder, unknown) && !gguf::is_gguf(given.folder))
    throw ValueError(
        runtime::format("{} is a file; an encoder is a folder, as transformers or sentence-transformers "
                        "stores it, or a GGUF file",
                        given.folder));
  TextEncoder encoder = TextEncoder::load(given.folder, weights_dtype(given.dtype));
  encoder.tokenizer();  // says at once that there is none
  return encoder;
}

std::vector<std::string> next_lines(Lines& lines, int stop) {
  constexpr std::size_t most_lines = 256, most_bytes = 1 << 18;
  std::vector<std::string> texts;
  std::string line;
  for (std::size_t bytes = 0; texts.size() < most_lines && bytes < most_bytes && lines.next(line, stop);) {
    bytes += line.size();
    texts.push_back(line);
  }
  return texts;
}

std::string reason_of(const ValueError& error) {
  const std::string why = error.what();  // "TextEncoder: text 0: ..."
  const std::size_t number = why.find(" 0");
  return number == why.npos ? why : why.substr(why.find_first_not_of(": ", number + 2));
}

Tensor computed(const Lines& lines, const std::vector<std::string>& texts,
                const std::function<Tensor(const std::vector<std::string>&)>& compute) {
  try {
    return compute(texts);
  } catch (const ValueError&) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      try {
        compute({texts[i]});
      } catch (const ValueError& error) {
        throw ValueError(runtime::format("{}: line {}: {}", lines.name(),
                                         lines.count() - std::ssize(texts) + static_cast<std::int64_t>(i) + 1,
                                         reason_of(error)));
      }
    }
    throw;
  }
}

}  // namespace attn::cli
