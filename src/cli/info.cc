// src/cli/info.cc: implements attn info: prints the version, this machine, and the kernels that can run here, or what a
// GGUF file holds.
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/gguf.h>
#include <attn/runtime.h>

#include "model/encoder/gguf_file.h"
#include "model/gguf/model.h"

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

namespace attn::cli {
namespace {

void print_info(bool json) {
  const Info about = info();
  if (json) {
    print(nlohmann::ordered_json{{"attn_info", 1},
                                 {"version", about.version},
                                 {"numerics_version", about.numerics_version},
                                 {"cpu", about.cpu},
                                 {"features", about.features},
                                 {"targets", about.targets},
                                 {"target", about.target},
                                 {"cores", about.cores},
                                 {"threads", about.threads},
                                 {"compiler", about.compiler}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
    return;
  }
  print(runtime::format(
      "attn {}   numerics {}\ncpu      {}\nfeatures {}\ntargets  {}   (in use: {})\ncores    {}   threads "
      "{}\ncompiler {}\n",
      about.version, about.numerics_version, one_line(about.cpu), runtime::join(about.features, " "),
      runtime::join(about.targets, " "), about.target, about.cores, about.threads, about.compiler));
}

/// Returns the types of the file's tensors, and how many have each: the most frequent first.
std::vector<std::pair<std::string, std::int64_t>> types_of(const GgufFile& file) {
  std::map<std::string, std::int64_t> counts;
  for (const GgufFile::Entry& entry : file.tensors()) ++counts[entry.type];
  std::vector<std::pair<std::string, std::int64_t>> types(counts.begin(), counts.end());
  std::stable_sort(types.begin(), types.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return types;
}

/// What the metadata says of a language model or an encoder.
struct Shape {
  std::int64_t layers, width, heads, kv_heads, head_dim, mlp_width, vocab_size, context, parameters;
  bool kept;  // the matrices stay as they are
  nlohmann::ordered_json config;
};

Shape shape_of(const GgufFile& file, Dtype dtype) {
  if (!gguf::holds_encoder(file)) {
    const ModelConfig c = gguf::config_of(file);
    gguf::check_weights(file, c);
    return {c.layers,
            c.width,
            c.heads,
            c.key_value_heads(),
            c.dim_of_head(),
            c.dim_of_mlp(),
            c.vocab_size,
            c.context,
            c.parameters(),
            gguf::keeps_matrices(file, c, dtype),
            nlohmann::ordered_json::parse(c.to_json(dtype))};
  }
  const EncoderConfig c = gguf::encoder_config_of(file);
  const auto stored = gguf::stored_of_encoder(c);
  gguf::check_weights(file, stored);
  std::int64_t parameters = 0;
  for (const gguf::Stored& one : stored) parameters += one.sizes.product();
  return {c.layers,
          c.width,
          c.heads,
          c.heads,
          c.width / c.heads,
          c.mlp_width,
          c.vocab_size,
          c.positions,
          parameters,
          gguf::keeps_matrices(file, stored, dtype) && !gguf::is_f32(file, stored),
          {{"vocab_size", c.vocab_size},
           {"max_position_embeddings", c.positions},
           {"num_hidden_layers", c.layers},
           {"num_attention_heads", c.heads},
           {"hidden_size", c.width},
           {"intermediate_size", c.mlp_width},
           {"type_vocab_size", c.segments}}};
}

void print_file(const std::string& path, bool json) {
  if (std::error_code unknown; std::filesystem::is_directory(path, unknown))
    throw UsageError{path + " is a folder; attn info reads GGUF files, and attn convert writes a folder as one"};
  const GgufFile file = GgufFile::open(path);
  const Dtype dtype = gguf::dtype_of(file);
  const Shape c = shape_of(file, dtype);
  std::uint64_t bytes = 0;
  for (const GgufFile::Entry& entry : file.tensors()) bytes += entry.bytes;
  const std::string number_type(name_of(dtype));
  const std::string name = file.text("general.name", ""), architecture = file.text("general.architecture"),
                    tokenizer = file.text("tokenizer.ggml.model", ""), pre = file.text("tokenizer.ggml.pre", "");
  const auto types = types_of(file);
  if (json) {
    nlohmann::ordered_json counts;
    for (const auto& [type, count] : types) counts[type] = count;
    print(nlohmann::ordered_json{{"attn_info", 1},
                                 {"file", path},
                                 {"gguf_version", file.version()},
                                 {"name", name},
                                 {"architecture", architecture},
                                 {"parameters", c.parameters},
                                 {"tensors", counts},
                                 {"tensor_bytes", bytes},
                                 {"memory", c.kept ? "mapped" : "decoded"},
                                 {"config", c.config},
                                 {"tokenizer", tokenizer},
                                 {"pre_tokenizer", pre},
                                 {"tokens", file.texts("tokenizer.ggml.tokens").size()}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
    return;
  }
  std::vector<std::string> counts;
  for (const auto& [type, count] : types) counts.push_back(runtime::format("{} {}", count, type));
  print(runtime::format(
      "{}   GGUF {}\narchitecture {}   {} layers, width {}, {} heads ({} of keys and values) of {}, MLP {}\n"
      "vocabulary   {}   context {}\nparameters   {}   {:.1f} bits each\ntensors      {}\nin memory    {}\ntokenizer   "
      " {}\n",
      one_line(name.empty() ? path : name), file.version(), architecture, c.layers, c.width, c.heads, c.kv_heads,
      c.head_dim, c.mlp_width, c.vocab_size, c.context, c.parameters,
      8.0 * static_cast<double>(bytes) / static_cast<double>(c.parameters), runtime::join(counts, ", "),
      c.kept ? "the matrices stay mapped as they are; computed in " + number_type : "decoded to " + number_type,
      tokenizer.empty() ? "none" : one_line(tokenizer + (pre.empty() ? "" : ", " + pre))));
}

Run add_info_options(Parser parser) {
  auto json = std::make_shared<bool>(false);
  auto file = std::make_shared<std::string>();
  parser.option("FILE", *file, "A GGUF file: what it holds").type_name("");
  parser.flag("--json", *json, "The same as JSON");
  return [json, file](const std::vector<std::string>& rest) {
    no_more(rest);
    file->empty() ? print_info(*json) : print_file(*file, *json);
  };
}

}  // namespace

const Verb info_verb{"info", "Version, processor, kernels, threads; or a model's file", add_info_options};

}  // namespace attn::cli
