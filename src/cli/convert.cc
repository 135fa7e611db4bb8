// src/cli/convert.cc: implements attn convert: writes the model of a GGUF file as a folder, that of a folder as a GGUF
// file.
#include "cli/memory.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/gguf.h>
#include <attn/model.h>
#include <attn/tokenizer.h>

#include "model/encoder/gguf_file.h"
#include "model/encoder/write_gguf.h"
#include "model/gguf/mapped_file.h"
#include "model/gguf/model.h"
#include "model/gguf/write.h"
#include "model/gguf/written.h"

#include "runtime/format.h"

#include <filesystem>
#include <memory>
#include <optional>

namespace attn::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertArguments {
  std::string from, to, dtype, type = "F32";
  Option dtype_given, type_given;
};

/// Returns the model's tokenizer; nullopt if it has none.
std::optional<Tokenizer> tokenizer_of(const std::string& from) {
  std::error_code unknown;
  const bool there = fs::is_directory(from, unknown) ? fs::exists(fs::path(from) / "tokenizer.json", unknown)
                                                     : GgufFile::open(from).has("tokenizer.ggml.model");
  return there ? std::optional(Tokenizer::load(from)) : std::nullopt;
}

bool is_encoder_file(const std::string& from) {
  return gguf::is_gguf(from) && gguf::holds_encoder(GgufFile::open(from));
}

void convert(const ConvertArguments& arguments) {
  if (arguments.from.empty() || arguments.to.empty())
    throw UsageError{"a model and a new folder or GGUF file are needed, as in: attn convert model.gguf model"};
  const bool file = arguments.to.ends_with(".gguf");
  if (file && arguments.dtype_given.given()) throw UsageError{"--dtype is for a folder; a GGUF file has --type"};
  if (!file && arguments.type_given.given()) throw UsageError{"--type is for a GGUF file; a folder has --dtype"};
  const std::optional<Dtype> dtype = weights_dtype(arguments.dtype);
  std::string type;
  if (file) {
    const std::vector<std::string> types = gguf::written_types();
    type = types[choose("--type", arguments.type, types)];
    if (std::error_code unknown; fs::exists(arguments.to, unknown))
      throw ValueError(runtime::format("convert: {} is there already; give another name", arguments.to));
  }
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "config.json"})
    if (std::error_code unknown; fs::exists(fs::path(arguments.to) / name, unknown))
      throw ValueError(
          runtime::format("convert: {} holds a model already ({}); give another folder", arguments.to, name));
  keep_freed_memory();
  if (const bool folder = gguf::is_encoder_folder(arguments.from); folder || is_encoder_file(arguments.from)) {
    if (!folder || !file)
      throw ValueError(
          runtime::format("convert: {} holds an encoder of texts; attn writes the folder of one as a GGUF "
                          "file, and nothing else",
                          arguments.from));
    const TextEncoder encoder = TextEncoder::load(arguments.from);
    const Tokenizer* const own = encoder.has_tokenizer() ? &encoder.tokenizer() : nullptr;
    return gguf::write_encoder(arguments.to, encoder, type,
                               gguf::notes_of(arguments.from, own, encoder.config.vocab_size));
  }
  gguf::check_architecture(arguments.from);
  const std::optional<Tokenizer> tokenizer = tokenizer_of(arguments.from);
  const Tokenizer* const given = tokenizer ? &*tokenizer : nullptr;
  const LanguageModel model = LanguageModel::load(arguments.from, dtype);
  const gguf::Notes notes = gguf::notes_of(arguments.from, given, model.config.vocab_size);
  if (file) return gguf::write(arguments.to, model, given, type, notes);
  model.save(arguments.to);
  if (std::error_code unknown; fs::is_directory(arguments.from, unknown))
    gguf::copy_notes(arguments.from, arguments.to);
  if (tokenizer) tokenizer->save(arguments.to);
  gguf::save_notes(arguments.to, notes, given);
}

Run add_convert_options(Parser parser) {
  auto arguments = std::make_shared<ConvertArguments>();
  ConvertArguments& a = *arguments;
  parser.option("FROM", a.from, "A GGUF file, or a model's folder").type_name("");
  parser.option("TO", a.to, "Where it goes: FILE.gguf, or a folder for config.json, model.safetensors, tokenizer.json")
      .type_name("");
  a.dtype_given = add_weights_dtype(parser, a.dtype);
  a.type_given =
      parser.option("--type", a.type, "In a GGUF file: F32, F16, BF16, Q8_0 or Q4_0 (F32)").type_name("NAME");
  parser.footer(
      "Blocks of a GGUF file become f32, unless --dtype says otherwise.\n"
      "\nExample\n  attn convert model.gguf model --dtype bf16");
  return run_with(arguments, convert);
}

}  // namespace

const Verb convert_verb{"convert", "A GGUF file as a model's folder, or a folder as a GGUF file", add_convert_options};

}  // namespace attn::cli
