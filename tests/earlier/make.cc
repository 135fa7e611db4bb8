// tests/earlier/make.cc: writes one of each file that attn stores, for the tests of later versions; run once a release.
// B=build/release/src
// g++ -std=c++20 -Iinclude tests/earlier/make.cc $B/libattn_model.a $B/libattn.a -ldl -o build/make_earlier
// build/make_earlier tests/earlier/VERSION
#include <attn/attn.h>
#include <attn/model.h>
#include <attn/npy.h>
#include <attn/safetensors.h>
#include <attn/tokenizer.h>
#include <attn/train.h>

#include <filesystem>
#include <iostream>
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
  if (count != 2) return 2;
  const std::string folder = arguments[1];
  std::filesystem::create_directories(folder);
  write_model(folder + "/gpt2", gpt2());
  write_model(folder + "/llama", llama());
  write_tokenizer(folder + "/characters", Tokenizer::Kind::characters, 0);
  write_tokenizer(folder + "/words", Tokenizer::Kind::words, 0);
  write_tokenizer(folder + "/bpe", Tokenizer::Kind::bpe, 300);
  write_checkpoint(folder + "/checkpoint_f32", Dtype::f32);
  write_checkpoint(folder + "/checkpoint_bf16", Dtype::bf16);
  const Tensor values = arange(6).to(Dtype::f32).reshape({2, 3});
  save_npy(folder + "/values.npy", values);
  save_safetensors(folder + "/values.safetensors", {{"f32", values}, {"bf16", values.to(Dtype::bf16)}},
                   {{"made", "by attn"}});
  std::cout << "written: " << folder << "\n";
}
