// tests/earlier/make.cc: writes one of each file that attn stores, for the tests of later versions; run once a release.
// B=build/release/src
// g++ -std=c++20 -Iinclude tests/earlier/make.cc $B/libattn_model.a $B/libattn.a -ldl -o build/make_earlier
// build/make_earlier tests/earlier/VERSION build/release/attn
#include <attn/attn.h>
#include <attn/encoder.h>
#include <attn/encoder_decoder.h>
#include <attn/model.h>
#include <attn/npy.h>
#include <attn/safetensors.h>
#include <attn/tokenizer.h>
#include <attn/train.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

using namespace attn;

namespace {

ModelConfig gpt2() { return {.vocab_size = 13, .context = 12, .layers = 2, .heads = 2, .width = 8, .mlp_width = 12}; }

ModelConfig llama() {
  ModelConfig config = gpt2();
  config.heads = 4, config.kv_heads = 2;
  config.norm = ModelConfig::Norm::rms_norm, config.positions = ModelConfig::Positions::rotary;
  config.activation = ModelConfig::Activation::swiglu;
  config.attention_bias = config.mlp_bias = config.tied_head = false;
  return config;
}

Tensor as_tensor(const std::vector<std::int64_t>& ids) {
  return Tensor::from_blob(const_cast<std::int64_t*>(ids.data()), {static_cast<std::int64_t>(ids.size())}, Dtype::i64)
      .clone();
}

void write_model(const std::string& folder, const ModelConfig& config) {
  manual_seed(1);
  const LanguageModel model(config);
  model.save(folder);
  const Tensor ids = randint(0, config.vocab_size, {2, 9});
  const NoGrad no_grad;
  save_safetensors(folder + "/expected.safetensors", {{"ids", ids}, {"logits", model(ids)}});
}

void write_tokenizer(const std::string& folder, Tokenizer::Kind kind, std::int64_t size) {
  const std::string text = "Life is short, eat dessert first. 生命短暂，先吃甜点。 Life is 42.";
  std::filesystem::create_directories(folder);
  const Tokenizer tokenizer = size == 0 ? Tokenizer::train(text, kind) : Tokenizer::train(text, kind, size);
  tokenizer.save(folder);
  save_safetensors(folder + "/expected.safetensors", {{"ids", as_tensor(tokenizer.encode(text))}}, {{"text", text}});
}

/// Two source texts and two target texts, and the logits of the targets.
void write_encoder_decoder(const std::string& folder, EncoderDecoderConfig::Family family) {
  EncoderDecoderConfig config = EncoderDecoderConfig::nano(13);
  config.family = family;
  config.encoder_layers = config.decoder_layers = 1, config.encoder_heads = config.decoder_heads = 2;
  config.width = 8, config.encoder_mlp_width = config.decoder_mlp_width = 12;
  config.scaled_embedding = family != EncoderDecoderConfig::Family::t5;
  config.positions = family == EncoderDecoderConfig::Family::t5 ? 0 : 16;
  config.dropout = 0;
  manual_seed(1);
  EncoderDecoder model(config);
  model.eval();
  model.save(folder);
  const nn::StateDict texts = {{"ids", randint(0, 12, {9})},
                               {"starts", as_tensor({0, 4, 9})},
                               {"target_ids", randint(0, 12, {6})},
                               {"target_starts", as_tensor({0, 3, 6})}};
  nn::StateDict expected = texts;
  const NoGrad no_grad;
  expected.emplace_back("logits", model.forward(texts[0].second, texts[1].second, texts[2].second, texts[3].second));
  save_safetensors(folder + "/expected.safetensors", expected);
}

/// Runs attn convert, which writes GGUF files.
void convert(const std::string& attn, const std::string& from, const std::string& to, const std::string& type) {
  std::filesystem::remove(to);
  if (std::system(("'" + attn + "' convert '" + from + "' '" + to + "' --type " + type).c_str()) != 0)
    throw std::runtime_error("attn convert failed");
}

/// A language model in blocks of 32, with its tokenizer: the logits of a text.
void write_gguf(const std::string& attn, const std::string& folder, const std::string& tokenizer_folder) {
  const std::string text = "Life is short.", from = folder + "/from";
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_folder);
  ModelConfig config = llama();
  config.vocab_size = tokenizer.size(), config.layers = 1, config.width = 32, config.mlp_width = 32;
  config.tied_head = true, config.context = 32;
  manual_seed(1);
  const LanguageModel drawn(config);
  drawn.save(from);
  tokenizer.save(from);
  convert(attn, from, folder + "/model.gguf", "Q8_0");
  std::filesystem::remove_all(from);
  const NoGrad no_grad;
  const LanguageModel model = LanguageModel::load(folder + "/model.gguf");
  const std::vector<std::int64_t> ids = Tokenizer::load(folder + "/model.gguf").encode(text);
  save_safetensors(folder + "/expected.safetensors",
                   {{"ids", as_tensor(ids)}, {"logits", model(as_tensor(ids).unsqueeze(0))}}, {{"text", text}});
}

/// An encoder of texts, which attn writes as a GGUF file only, from a folder of transformers: the vectors of two texts.
void write_encoder(const std::string& attn, const std::string& folder) {
  const std::string golden = "tests/golden/model/encoders/bert", from = folder + "/from";
  std::filesystem::create_directories(from);
  Safetensors file = load_safetensors(golden + "/model.safetensors");  // without what a GGUF file has no place for
  std::erase_if(file.tensors, [](const auto& named) { return named.first.starts_with("classifier."); });
  save_safetensors(from + "/model.safetensors", file.tensors);
  std::ifstream config_file(golden + "/config.json");
  std::string config(std::istreambuf_iterator<char>(config_file), {});
  config.replace(config.find("BertForSequenceClassification"), 29, "BertModel");
  std::ofstream(from + "/config.json") << config;
  convert(attn, from, folder + "/model.gguf", "F16");
  std::filesystem::remove_all(from);
  manual_seed(1);
  const NoGrad no_grad;
  const TextEncoder encoder = TextEncoder::load(folder + "/model.gguf");
  const Tensor ids = randint(0, encoder.config.vocab_size, {9}), starts = as_tensor({0, 4, 9});
  save_safetensors(
      folder + "/expected.safetensors",
      {{"ids", ids}, {"starts", starts}, {"vectors", encoder.pooled(encoder.hidden(ids, starts), starts)}});
}

/// A training of six steps: its state after three, and what the other three gave.
void write_checkpoint(const std::string& folder, Dtype dtype) {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(i * i % 13);
  Trainer trainer(ids, {.model = gpt2(), .dtype = dtype, .steps = 6, .batch = 2, .eval_every = 2});
  for (int step = 0; step < 3; ++step) trainer.advance();
  trainer.save(folder);
  for (int step = 3; step < 6; ++step) trainer.advance();
  nn::StateDict expected = trainer.model().state_dict();
  expected.emplace_back("ids", as_tensor(ids));
  expected.emplace_back("losses", trainer.losses());
  save_safetensors(folder + "/expected.safetensors", expected);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const std::string folder = arguments[1], attn = arguments[2];
  std::filesystem::create_directories(folder);
  write_model(folder + "/gpt2", gpt2());
  write_model(folder + "/llama", llama());
  write_tokenizer(folder + "/characters", Tokenizer::Kind::characters, 0);
  write_tokenizer(folder + "/words", Tokenizer::Kind::words, 0);
  write_tokenizer(folder + "/bpe", Tokenizer::Kind::bpe, 300);
  write_checkpoint(folder + "/checkpoint_f32", Dtype::f32);
  write_checkpoint(folder + "/checkpoint_bf16", Dtype::bf16);
  write_encoder_decoder(folder + "/marian", EncoderDecoderConfig::Family::marian);
  write_encoder_decoder(folder + "/bart", EncoderDecoderConfig::Family::bart);
  write_encoder_decoder(folder + "/t5", EncoderDecoderConfig::Family::t5);
  write_gguf(attn, folder + "/gguf", folder + "/bpe");
  write_encoder(attn, folder + "/gguf_encoder");
  const Tensor values = arange(6).to(Dtype::f32).reshape({2, 3});
  save_npy(folder + "/values.npy", values);
  save_safetensors(folder + "/values.safetensors", {{"f32", values}, {"bf16", values.to(Dtype::bf16)}},
                   {{"made", "by attn"}});
  std::cout << "written: " << folder << "\n";
}
