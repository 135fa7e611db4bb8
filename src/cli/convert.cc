// src/cli/convert.cc: implements attn convert: writes a model, such as that of a GGUF file, as a folder.
#include "cli/memory.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/gguf.h>
#include <attn/model.h>
#include <attn/tokenizer.h>

#include "runtime/format.h"

#include <filesystem>
#include <memory>
#include <optional>

namespace attn::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string from, to, dtype;
};

/// Returns the model's tokenizer; nullopt if it has none.
std::optional<Tokenizer> tokenizer_of(const std::string& from) {
  std::error_code unknown;
  const bool there = fs::is_directory(from, unknown) ? fs::exists(fs::path(from) / "tokenizer.json", unknown)
                                                     : GgufFile::open(from).has("tokenizer.ggml.model");
  return there ? std::optional(Tokenizer::load(from)) : std::nullopt;
}

void convert(const Arguments& arguments) {
  if (arguments.from.empty() || arguments.to.empty())
    throw UsageError{"a model and a new folder are needed, as in: attn convert model.gguf model"};
  std::optional<Dtype> dtype;
  if (!arguments.dtype.empty())
    dtype = std::array{Dtype::f32, Dtype::f64, Dtype::bf16,
                       Dtype::f16}[choose("--dtype", arguments.dtype, {"f32", "f64", "bf16", "f16"})];
  for (const char* file : {"model.safetensors", "model.safetensors.index.json", "config.json"})
    if (std::error_code unknown; fs::exists(fs::path(arguments.to) / file, unknown))
      throw ValueError(
          runtime::format("convert: {} holds a model already ({}); give another folder", arguments.to, file));
  keep_freed_memory();
  const std::optional<Tokenizer> tokenizer = tokenizer_of(arguments.from);
  const LanguageModel model = LanguageModel::load(arguments.from, dtype);
  model.save(arguments.to);
  if (tokenizer) tokenizer->save(arguments.to);
}

}  // namespace

Verb add_convert(Parser app) {
  Parser parser = app.add_verb("convert", "A model as a folder, with its weights as floats");
  auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  parser.option("FROM", a.from, "A GGUF file, or a model's folder").type_name("");
  parser.option("FOLDER", a.to, "Where config.json, model.safetensors and tokenizer.json go").type_name("");
  parser.option("--dtype", a.dtype, "Weights as f32, f64, bf16 or f16; as they are without it").type_name("NAME");
  parser.footer(
      "Blocks of a GGUF file become f32, unless --dtype says otherwise.\n"
      "\nExample\n  attn convert model.gguf model --dtype bf16");
  return {parser, [arguments](const std::vector<std::string>& rest) {
            no_more(rest);
            convert(*arguments);
          }};
}

}  // namespace attn::cli
