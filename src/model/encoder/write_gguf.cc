// src/model/encoder/write_gguf.cc: writes an encoder as a GGUF file: its keys, then its tensors in one type.
#include "model/encoder/write_gguf.h"

#include <attn/error.h>

#include "model/encoder/blocks.h"
#include "model/encoder/gguf_file.h"
#include "model/gguf/written.h"
#include "model/json_fields.h"
#include "model/weights_files.h"

#include "io/is_file.h"

#include "runtime/format.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

namespace attn::gguf {
namespace {

using EncoderFamily = EncoderConfig::Family;

[[noreturn]] void refuse_encoder(const std::string& what) { throw ValueError("convert: the encoder " + what); }

/// Returns the rows of the table of positions that no token of a text has: those of RoBERTa before its first.
std::int64_t rows_before_positions(const EncoderConfig& config) { return config.positions - config.context(); }

const PoolingType& pooling_type_of(const TextEncoder& encoder) {
  const EncoderPooling& pooling = encoder.pooling;
  const auto found = std::find_if(std::begin(pooling_types), std::end(pooling_types), [&](const PoolingType& one) {
    return pooling.kinds == std::vector<EncoderPooling::Kind>{one.kind};
  });
  if (found == std::end(pooling_types)) refuse_encoder("has another pooling than mean, cls or the last token");
  if (!pooling.include_prompt) refuse_encoder("leaves the prompt out of the pooling, which GGUF files cannot say");
  if (TextEncoder::Parts::has_dense(encoder))
    refuse_encoder("has linear maps behind the pooling, which GGUF files cannot hold");
  return *found;
}

void check_encoder(const EncoderConfig& config) {
  if (config.family == EncoderFamily::mpnet || config.family == EncoderFamily::modernbert)
    refuse_encoder(
        runtime::format("is {}; attn writes BERT, RoBERTa and DistilBERT as GGUF files, and computes others from their "
                        "folder",
                        config.family == EncoderFamily::mpnet ? "MPNet" : "ModernBERT"));
  if (config.activation != EncoderConfig::Activation::gelu)
    refuse_encoder("has another activation than gelu, which GGUF files of its architecture cannot say");
  if (config.labels > 0)
    refuse_encoder("gives scores of pairs, which attn computes from its folder; GGUF files are of vectors");
}

void add_encoder_keys(Metadata& metadata, const TextEncoder& encoder) {
  const EncoderConfig& c = encoder.config;
  const std::string prefix = std::string(encoder_architecture) + ".";
  metadata.number(prefix + "context_length", c.context());
  metadata.number(prefix + "embedding_length", c.width);
  metadata.number(prefix + "block_count", c.layers);
  metadata.number(prefix + "feed_forward_length", c.mlp_width);
  metadata.number(prefix + "attention.head_count", c.heads);
  metadata.real(prefix + "attention.layer_norm_epsilon", c.norm_eps);
  metadata.boolean(prefix + "attention.causal", false);
  metadata.number(pooling_key, pooling_type_of(encoder).number);
  if (c.segments > 0) metadata.number(segments_key, c.segments);
  metadata.boolean(normalize_key, encoder.pooling.normalize);
  metadata.number(length_key, encoder.max_tokens);
  if (encoder.prompts.texts.empty()) return;
  std::vector<std::string> names, texts;
  for (const auto& [name, text] : encoder.prompts.texts) {
    names.push_back(name);
    texts.push_back(text);
  }
  metadata.texts(prompts_key, names);
  metadata.texts(prompt_texts_key, texts);
  if (!encoder.prompts.default_name.empty()) metadata.text(default_prompt_key, encoder.prompts.default_name);
}

}  // namespace

bool is_encoder_folder(const std::string& path) {
  const std::filesystem::path folder(path);
  if (io::is_file(folder / "modules.json")) return true;
  const std::optional<JsonFields> config = fields_of("convert", folder / "config.json");
  const std::string type = config ? config->text("model_type", "") : "";
  constexpr const char* types[] = {"bert", "roberta", "xlm-roberta", "camembert", "mpnet", "distilbert", "modernbert"};
  return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

void write_encoder(const std::string& path, const TextEncoder& encoder, const std::string& type, const Notes& notes) {
  check_encoder(encoder.config);
  Metadata metadata = metadata_of(encoder_architecture, type);
  add_encoder_keys(metadata, encoder);
  if (encoder.has_tokenizer()) add_encoder_tokenizer(metadata, encoder.tokenizer(), encoder.config.vocab_size);
  Notes own = notes;
  own.tokens[Notes::begin].reset();  // add_encoder_tokenizer has added the tokens around a text
  own.tokens[Notes::separator].reset();
  own.tokens[Notes::unknown].reset();
  add_notes(metadata, own);
  EncoderConfig config = encoder.config;
  const std::int64_t before = rows_before_positions(config);
  config.positions -= before;
  const nn::StateDict state = encoder.state_dict();
  const std::map<std::string, Tensor> parameters(state.begin(), state.end());
  std::vector<Written> tensors;
  for (const Stored& one : stored_of_encoder(config)) {
    const std::int64_t first = one.parameter == "positions.weight" ? before : one.row;
    const Tensor rows = parameters.at(one.parameter).narrow(0, first, one.rows).detach().to(Dtype::f32).contiguous();
    tensors.push_back(written(one.name, rows, type_of(one.is_matrix() ? type : "F32")));
  }
  write_file(path, metadata, tensors);
}

}  // namespace attn::gguf
