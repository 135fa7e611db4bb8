// tests/model/moved_test.cc: what was moved from, or made of nothing, answers or says so; it never ends the process.
#include "model/tiny_models.h"
#include "support/errors.h"

#include <attn/attn.h>
#include <attn/chat.h>
#include <attn/generate.h>
#include <attn/gguf.h>
#include <attn/ops.h>
#include <attn/train.h>

#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <span>
#include <sstream>
#include <utility>

namespace attn {
namespace {

using testing::error_of;
using Calls = std::vector<std::function<void()>>;

std::vector<std::int64_t> ids() {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(i * i % 13);
  return ids;
}

TEST(Moved, ATrainerSaysThatItIsEmpty) {
  const testing::Folder folder;
  Trainer from(ids(), {.model = testing::tiny_gpt2(), .steps = 3, .batch = 1});
  Trainer to = std::move(from);
  const Calls calls = {[&] { from.advance(); },
                       [&] { from.validate(); },
                       [&] { from.extend(9); },
                       [&] { from.save(folder.path()); },
                       [&] { from.save_model(folder.path()); },
                       [&] { from.options(); },
                       [&] { from.model(); },
                       [&] { from.step(); },
                       [&] { static_cast<void>(from.done()); },
                       [&] { from.best_loss(); },
                       [&] { from.best_step(); },
                       [&] { from.losses(); },
                       [&] { from.validations(); },
                       [&] { loss_curve_svg(from, ""); }};
  for (const auto& call : calls) EXPECT_EQ(error_of<ValueError>(call), "Trainer: it is empty (moved from)");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(to.advance().step, 1);
  from = std::move(to);
  EXPECT_EQ(from.advance().step, 2);
}

TEST(Moved, ATokenizerStaysWhatItIs) {
  Tokenizer from = Tokenizer::train("abc", Tokenizer::Kind::characters);
  const Tokenizer to = std::move(from);
  EXPECT_EQ(from.encode("cab"), to.encode("cab"));
  EXPECT_EQ(from.to_json(), to.to_json());
  Tokenizer other;
  other = std::move(from);
  EXPECT_EQ(from.size(), 3);
  const testing::Folder folder;
  const Tokenizer none;
  EXPECT_EQ(none.encode(""), std::vector<std::int64_t>{});
  EXPECT_EQ(error_of<ValueError>([&] { none.encode("a"); }),
            "encode: \"a\" is not among the 0 characters of the tokenizer");
  EXPECT_EQ(none.decode({0}), "");
  EXPECT_EQ(error_of<ValueError>([&] { none.bytes(0); }), "decode: id 0 is not there; the tokenizer has 0 tokens");
  EXPECT_NO_THROW(none.save(folder / "none"));
  EXPECT_EQ(none.find("a"), std::nullopt);
}

TEST(Moved, AModelStaysWhatItIs) {
  LanguageModel from(testing::tiny_llama());
  const LanguageModel to = std::move(from);
  const Tensor text = zeros({1, 3}, Dtype::i64);
  EXPECT_TRUE(same_bits(from(text).detach(), to(text).detach()));
  EXPECT_EQ(generate(from, {{1}}, {.tokens = 2})[0].tokens.size(), 2u);
  ModelCache cache(to.config, 2);
  const ModelCache kept = std::move(cache);
  EXPECT_EQ(error_of<ValueError>([&] { cache.length(0); }), "ModelCache: it is empty (moved from)");
  EXPECT_EQ(error_of<ValueError>([&] { cache.truncate(0, 0); }), "ModelCache: it is empty (moved from)");
  EXPECT_THROW(cache.reorder({0, 1}), ValueError);
  EXPECT_THROW(to.hidden(text, cache), ValueError);
  EXPECT_EQ(cache.sequences(), 0);
}

TEST(Moved, ContainersKeepTheirModules) {
  nn::Sequential from(nn::Linear(4, 4), nn::Linear(4, 4));
  const nn::Sequential to = std::move(from);
  EXPECT_EQ(from.size(), 2);
  EXPECT_TRUE(same_bits(from(ones({1, 4})).detach(), to(ones({1, 4})).detach()));
  from.push_back(nn::Linear(4, 4));
  EXPECT_EQ(to.size(), 3);
  nn::ModuleList<nn::Linear> list;
  list.push_back(nn::Linear(4, 4));
  const nn::ModuleList<nn::Linear> list_to = std::move(list);
  EXPECT_EQ(list.size(), 1);
  EXPECT_TRUE(same_bits(list[0](ones({1, 4})).detach(), list_to[0](ones({1, 4})).detach()));
  list.push_back(nn::Linear(4, 4));
  EXPECT_EQ(std::distance(list_to.begin(), list_to.end()), 2);
}

TEST(Moved, TextsAndConversationsSayThatTheyAreEmpty) {
  const LanguageModel model(testing::tiny_llama());
  TextGeneration from(model, Tokenizer(), {{1}}, {.tokens = {.tokens = 2}});
  TextGeneration to = std::move(from);
  EXPECT_EQ(error_of<ValueError>([&] { from.step(); }), "TextGeneration: it is empty (moved from)");
  EXPECT_EQ(error_of<ValueError>([&] { from.texts(); }), "TextGeneration: it is empty (moved from)");
  while (to.step()) {}
  EXPECT_EQ(to.texts()[0].tokens.size(), 2u);

  const ChatFormat format = {.name = "plain"};
  Chat chat(model, Tokenizer::train("abc", Tokenizer::Kind::characters), format, {.generate = {.tokens = 2}});
  Chat chat_to = std::move(chat);
  EXPECT_EQ(error_of<ValueError>([&] { chat.say("a"); }), "chat: it is empty (moved from)");
  EXPECT_EQ(error_of<ValueError>([&] { chat.ask("a"); }), "chat: it is empty (moved from)");
  EXPECT_EQ(error_of<ValueError>([&] { chat.step(); }), "chat: there is no answer to go on with; ask() begins one");
  EXPECT_NO_THROW(chat.forget());
  EXPECT_EQ(chat_to.say("a").tokens.size(), 2u);
}

TEST(Moved, AGgufFileStaysWhatItIs) {
  std::string header(24, '\0');  // version 3, no tensors, no keys
  header.replace(0, 5, "GGUF\3");
  GgufFile from = GgufFile::parse(std::as_bytes(std::span(header)));
  const GgufFile to = std::move(from);
  EXPECT_EQ(from.version(), to.version());
  EXPECT_EQ(from.keys(), to.keys());
}

/// A mask, a bias or a score that was moved from is still there: "none" would be another result without a word.
TEST(Moved, OptionsKeepTheirValue) {
  const Tensor q = ones({1, 2, 3, 4}), k = arange(24).to(Dtype::f32).reshape({1, 2, 3, 4});
  const auto keeps = [&](AttentionOptions options) {
    const Tensor expected = attention(q, k, k, options).output;
    EXPECT_FALSE(same_bits(attention(q, k, k).output, expected));
    const AttentionOptions to = std::move(options);
    EXPECT_TRUE(same_bits(attention(q, k, k, options).output, expected));
    EXPECT_TRUE(same_bits(attention(q, k, k, to).output, expected));
    AttentionOptions assigned;
    assigned = std::move(options);
    EXPECT_TRUE(same_bits(attention(q, k, k, options).output, expected));
    EXPECT_TRUE(same_bits(attention(q, k, k, assigned).output, expected));
  };
  keeps({.mask = Mask::causal()});
  keeps({.bias = Bias::alibi(ones({2}))});
  keeps({.score_mod = ScoreExpression::parse("s * 0.01")});
  keeps({.score_callback = [](const ScoreTile& tile) { tile.each([](auto s, auto, auto) { return s * 0.01; }); }});
}

/// Each answers, or an error of the library says what is wrong.
TEST(Moved, WhatIsBelowThem) {
  const Tensor q = ones({1, 2, 3, 4});
  Tensor x = ones({2, 2});
  const Tensor moved_x = std::move(x);
  Mask mask = Mask::causal(), mask_to = std::move(mask);
  Bias bias = Bias::alibi(Bias::alibi_slopes(2)), bias_to = std::move(bias);
  ScoreTable table(ones({2})), table_to = std::move(table);
  ScoreExpression score([&](auto s, auto, auto h, auto, auto) { return s * table_to(h); }), score_to = std::move(score);
  KvCache cache({.key_heads = 2, .head_dim = 4, .pages = 4}), cache_to = std::move(cache);
  nn::Linear linear(4, 4), linear_to = std::move(linear);
  nn::MultiheadAttention heads(4, 2), heads_to = std::move(heads);
  nn::Embedding embedding(4, 4), embedding_to = std::move(embedding);
  nn::RotaryEmbedding rotary(4), rotary_to = std::move(rotary);
  Generator generator(1);
  [[maybe_unused]] const Generator generator_to = std::move(generator);
  Weights weights = Weights::rows(zeros({1}, Dtype::i64)), weights_to = std::move(weights);
  const Calls calls = {
      [&] { x.sizes(); },
      [&] { x.data<float>(); },
      [&] { x + moved_x; },
      [&] { sum(x); },
      [&] { x.backward(); },
      [&] { x.item(); },
      [&] { attention(x, q, q); },
      [&] { attention(q, q, x); },
      [&] { cat({x}); },
      [&] { std::ostringstream() << x; },
      [&] { same_bits(x, q); },
      [&] { x.requires_grad_(); },
      [&] { x.set_grad({}); },
      [&] { attention(q, q, q, {.mask = mask}); },
      [&] { ~mask; },
      [&] { mask & mask_to; },
      [&] { mask.to_string(); },
      [&] { mask.print(2, 2); },
      [&] { attention(q, q, q, {.bias = bias}); },
      [&] { attention(q, q, q, {.score_mod = score}); },
      [&] { attention(q, q, q, {.score_mod = [&](auto s, auto, auto h, auto, auto) { return s * table(h); }}); },
      [&] { attention(q, q, q, {.weights = weights}); },
      [&] { cache.create(); },
      [&] { cache.options(); },
      [&] { cache.release({}); },
      [&] { cache.fork({}); },
      [&] { cache.append(KvSequence{}, q[0], q[0]); },
      [&] { attention_cached(q, cache, {KvSequence{}}); },
      [&] { cache.alive({}); },
      [&] { cache.free_pages(); },
      [&] { linear(q); },
      [&] { linear.state_dict(); },
      [&] { heads.forward(q[0], q[0], q[0]); },
      [&] { embedding(zeros({1}, Dtype::i64)); },
      [&] { rotary.tables(arange(3)); },
      [&] { generator.u32(); }};
  for (std::size_t i = 0; i < calls.size(); ++i) try {
      calls[i]();
    } catch (const Error&) {
    } catch (const std::exception& error) { ADD_FAILURE() << "call " << i << ": " << error.what(); }
}

}  // namespace
}  // namespace attn
