// tests/faults/call_memory_test.cc: each allocation of each public call fails in turn: std::bad_alloc reaches the
// caller, and all is as before.
#include "faults/saved.h"
#include "model/chat_model.h"
#include "model/gguf_bytes.h"
#include "support/failing_memory.h"
#include "support/folder.h"
#include "support/golden.h"

#include <attn/attn.h>
#include <attn/cache.h>
#include <attn/chat.h>
#include <attn/encoder.h>
#include <attn/explain.h>
#include <attn/generate.h>
#include <attn/gguf.h>
#include <attn/nn.h>
#include <attn/optim.h>
#include <attn/text.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <sstream>

namespace attn::testing {
namespace {

/// What the call gives is the same before and after its allocations failed one by one; how many there are, of the first
/// `most`.
long expect_steady(const char* name, const std::function<Tensor()>& call, long most = 4000) {
  SCOPED_TRACE(name);
  const int threads = num_threads();
  set_num_threads(1);  // all memory is this thread's
  const Tensor before = call();
  Tensor result;
  long failed = 0;
  const long allocations = fail_at_each([&] { result = call(); }, 0, [&](long n) { return (failed = n) < most; });
  EXPECT_TRUE(same_bits(before, call()));
  set_num_threads(threads);
  EXPECT_GT(allocations, 0);
  return allocations;
}

Tensor text(const std::string& s) {
  return full({1}, static_cast<double>(std::hash<std::string>{}(s) % 1000003), Dtype::f64);
}

const Tensor& x() {
  static const Tensor t = arange(24).to(Dtype::f32).reshape({2, 3, 4}) * 0.1;
  return t;
}

TEST(CallMemory, OperationsOnTensors) {
  const Tensor square = arange(9).to(Dtype::f32).reshape({3, 3}), index = tensor<std::int64_t>({0, 2, 1}),
               condition = gt(square, 4);
  const std::vector<std::pair<const char*, std::function<Tensor()>>> calls = {
      {"zeros", [] { return zeros({4, 4}); }},
      {"arange", [] { return arange(0, 5, 0.5); }},
      {"linspace", [] { return linspace(0, 1, 7); }},
      {"one_hot", [&] { return one_hot(index); }},
      {"eye", [] { return eye(4); }},
      {"cat", [&] { return cat({square, square}, 1); }},
      {"stack", [&] { return stack({square, square}, 1); }},
      {"add", [&] { return square + square.t(); }},
      {"mul", [&] { return square * 2; }},
      {"pow", [&] { return pow(square, 3); }},
      {"maximum", [&] { return maximum(square, square.t()); }},
      {"where", [&] { return where(condition, square, 0.0); }},
      {"masked_fill", [&] { return masked_fill(square, condition, -1); }},
      {"tril", [&] { return tril(square); }},
      {"gelu", [] { return gelu(x()); }},
      {"exp", [] { return exp(x()); }},
      {"sum", [] { return sum(x(), {1}); }},
      {"mean", [] { return mean(x()); }},
      {"var", [] { return var(x(), {2}); }},
      {"norm", [] { return norm(x()); }},
      {"max", [] { return max(x(), 1).first; }},
      {"argmax", [] { return argmax(x(), 1); }},
      {"cumsum", [] { return cumsum(x(), 1); }},
      {"softmax", [] { return softmax(x(), -1); }},
      {"log_softmax", [] { return log_softmax(x(), 0); }},
      {"layer_norm", [] { return layer_norm(x(), {4}); }},
      {"rms_norm", [] { return rms_norm(x(), {4}); }},
      {"cross_entropy", [&] { return cross_entropy(square, index); }},
      {"matmul", [&] { return matmul(square, square); }},
      {"bmm", [] { return bmm(x(), x().transpose(1, 2)); }},
      {"linear", [&] { return linear(square, square, square[0]); }},
      {"einsum", [&] { return einsum("ij,kj->ik", {square, square}); }},
      {"embedding", [&] { return embedding(index, square); }},
      {"to", [&] { return square.to(Dtype::bf16); }},
      {"contiguous", [&] { return square.t().contiguous(); }},
      {"slice", [&] { return square.slice(0, 0, 2); }},
      {"print",
       [&] {
         std::ostringstream out;
         out << square;
         return text(out.str());
       }},
      {"to_vector", [&] { return tensor<double>(square.to_vector()); }}};
  for (const auto& [name, call] : calls) expect_steady(name, call);
}

TEST(CallMemory, RandomNumbersStayInTheirPlace) {
  Generator generator(3);
  const auto drawn = [&](const std::function<Tensor(Generator&)>& draw) {
    return expect_steady("random", [&] {
      generator.manual_seed(5);
      return draw(generator);
    });
  };
  drawn([](Generator& g) { return rand({30}, g); });
  drawn([](Generator& g) { return randn({30}, g); });
  drawn([](Generator& g) { return randperm(30, g); });
  drawn([](Generator& g) { return multinomial(ones({5}), 4, true, g); });
  drawn([](Generator& g) { return dropout(ones({5}), 0.5, true, g); });
}

TEST(CallMemory, Attention) {
  const auto numbers = [](std::uint64_t seed, Dims sizes) {
    Generator generator(seed);
    return randn(sizes, generator);
  };
  const Tensor q = numbers(1, {2, 4, 9, 8}), k = numbers(2, {2, 2, 9, 8}), v = numbers(3, {2, 2, 9, 8}),
               padding = ones({2, 9}, Dtype::boolean);
  const ScoreTable slopes(numbers(4, {4}));
  const ScoreExpression distance([&](auto s, auto, auto h, auto i, auto j) { return s - slopes(h) * (i - j); });
  const std::vector<std::pair<const char*, AttentionOptions>> options = {
      {"plain", {}},
      {"causal", {.mask = Mask::causal()}},
      {"window", {.mask = Mask::causal() & Mask::window(3, 0)}},
      {"padding", {.mask = Mask::key_padding(padding)}},
      {"alibi", {.mask = Mask::causal(), .bias = Bias::alibi(Bias::alibi_slopes(4))}},
      {"dense", {.bias = Bias::dense(numbers(5, {9, 9}))}},
      {"softcap", {.softcap = 5}},
      {"score_mod", {.score_mod = distance}},
      {"full", {.weights = Weights::full}},
      {"top_k", {.weights = Weights::top_k(2)}},
      {"rows", {.weights = Weights::rows(tensor<std::int64_t>({0, 4}))}},
      {"column_sums", {.weights = Weights::column_sums}},
      {"head_average", {.weights = Weights::head_average}},
      {"lengths", {.key_lengths = tensor<std::int64_t>({5, 9})}}};
  for (const auto& [name, given] : options)
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
      AttentionOptions o = given;
      if (!o.bias.empty() && dtype != Dtype::f32) continue;
      const Tensor a = q.to(dtype), b = k.to(dtype), c = v.to(dtype);
      if (std::string_view(name) == "score_mod" && dtype != Dtype::f32) continue;
      expect_steady(name, [&] {
        const AttentionResult result = attention(a, b, c, o);
        return result.weights.defined() ? result.weights : result.output;
      });
      expect_steady(name, [&] {
        AttentionOptions without = o;
        without.weights = Weights::none;
        const Tensor p = a.clone().requires_grad_(), r = b.clone().requires_grad_();
        return grad({sum(attention(p, r, c, without).output)}, {p, r})[0];
      });
    }
  expect_steady("sdpa", [&] { return scaled_dot_product_attention(q, q, q); });
  expect_steady("masks", [&] {
    return text(Mask::parse("causal(top_left) | prefix(2) & ~window(1, 2, bottom_right)").to_string());
  });
  expect_steady("picture", [&] { return text((Mask::causal(Align::top_left) | Mask::prefix(2)).print(5, 7)); });
}

TEST(CallMemory, Modules) {
  const nn::MultiheadAttention heads(8, 2);
  const nn::Linear up(8, 16);
  const Tensor rows = arange(48).to(Dtype::f32).reshape({2, 3, 8}) * 0.01;
  expect_steady("MultiheadAttention", [&] { return heads.forward(rows, rows, rows).output; });
  expect_steady("Linear", [&] { return up(rows); });
  expect_steady("state_dict", [&] { return up.state_dict().front().second; });
  expect_steady("load_state_dict", [&] { return up.load_state_dict(up.state_dict()), up.weight.detach(); });
  expect_steady("made", [] {
    manual_seed(3);
    return nn::MultiheadAttention(8, 2).state_dict().front().second;
  });
}

TEST(CallMemory, TextsAndTokenizers) {
  const std::string sample = "Life is short, eat dessert first. 人生苦短，先吃甜点。 Life is short!";
  for (const auto kind : {Tokenizer::Kind::characters, Tokenizer::Kind::words, Tokenizer::Kind::bpe}) {
    expect_steady("train", [&] {
      return full({1}, Tokenizer::train(sample, kind, kind == Tokenizer::Kind::bpe ? 270 : 0).size());
    });
    const Tokenizer tokenizer = Tokenizer::train(sample, kind, kind == Tokenizer::Kind::bpe ? 270 : 0);
    expect_steady("encode", [&] { return tensor<std::int64_t>(tokenizer.encode(sample)); });
    expect_steady("decode", [&] { return text(tokenizer.decode(tokenizer.encode(sample))); });
  }
  expect_steady("split", [&] { return full({1}, static_cast<double>(text::split(sample).size())); });
  expect_steady("explain", [&] { return explain("Life is short").step("weights").values; });
  const Explanation explanation = explain("Life is short");
  expect_steady("to_text", [&] { return text(to_text(explanation)); });
  expect_steady("to_svg", [&] { return text(to_svg(explanation)); });
}

TEST(CallMemory, Files) {
  const Folder folder;
  const std::vector<std::pair<std::string, Tensor>> tensors = {
      {"x", x()}, {"y", x().transpose(0, 2)}, {"b", x().to(Dtype::bf16)}};
  save_safetensors(folder / "x", tensors, {{"a", "b"}});
  save_npy(folder / "n", x());
  expect_steady("load_safetensors", [&] { return load_safetensors(folder / "x").at("y"); });
  expect_steady("save_safetensors", [&] {
    return save_safetensors(folder / "x", tensors, {{"a", "b"}}), load_safetensors(folder / "x").at("y");
  });
  expect_steady("safetensors_bytes", [&] { return parse_safetensors(safetensors_bytes(tensors)).at("y"); });
  expect_steady("load_npy", [&] { return load_npy(folder / "n"); });
  expect_steady("save_npy", [&] { return save_npy(folder / "n", x()), load_npy(folder / "n"); });
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_TRUE(entry.path().filename() == "x" || entry.path().filename() == "n") << entry.path();
}

/// A file is the one of before or the new one, whichever allocation of a save fails.
TEST(CallMemory, ASaveThatFailsLeavesTheFile) {
  for (const std::string what : {"safetensors", "npy"}) {
    const Folder folder;
    save_version(what, folder.path(), 1);
    long failed = 0;
    fail_at_each([&] { save_version(what, folder.path(), 2); }, 0,
                 [&](long n) {
                   failed = n;
                   const int version = version_in(what, folder.path());
                   EXPECT_TRUE(version == 1 || version == 2) << what << " " << n;
                   EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()),
                                           std::filesystem::directory_iterator()),
                             1);
                   return !::testing::Test::HasFailure();
                 });
    EXPECT_GT(failed, 5);
    EXPECT_EQ(version_in(what, folder.path()), 2) << what;
  }
}

TEST(CallMemory, ModelsAndTrainings) {
  const Folder folder;
  Generator generator(1);
  const LanguageModel model(tiny_llama(), Dtype::f32, &generator);
  const Tensor ids = tensor<std::int64_t>({1, 2, 3, 4, 5, 6}).reshape({2, 3});
  model.eval();
  expect_steady("forward", [&] { return model(ids).detach(); });
  expect_steady("loss", [&] { return model.loss(ids, ids).detach(); });
  expect_steady("made", [&] { return Generator(3), manual_seed(3), LanguageModel(tiny_gpt2())(ids).detach(); }, 400);
  expect_steady("generate", [&] { return tensor<std::int64_t>(generate(model, {{1, 2}}, {.tokens = 3})[0].tokens); });
}

/// Not load: a document of nlohmann's JSON needs memory to be destroyed, and ends the program where there is none.
TEST(CallMemory, Encoders) {
  const Folder folder;
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(golden_path(std::string("model/encoders/bert/") + name), folder / name);
  folder.write("tokenizer.json",
               R"({"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"life":1,"is":2,"##s":3}}})");
  folder.write("modules.json", R"([{"path":"","type":"sentence_transformers.models.Transformer"},
                                   {"path":"pooling","type":"sentence_transformers.models.Pooling"}])");
  std::filesystem::create_directory(folder / "pooling");
  folder.write("pooling/config.json", R"({"pooling_mode_max_tokens":true,"pooling_mode_cls_token":true})");
  const std::vector<std::string> texts = {"life is", "is life short"};
  const TextEncoder encoder = TextEncoder::load(folder.path());
  const Tensor ids = tensor<std::int64_t>({1, 2, 0, 3}), ends = tensor<std::int64_t>({0, 1, 4});
  expect_steady("embed", [&] { return encoder.embed(texts); });
  expect_steady("hidden", [&] { return encoder.hidden(ids, ends).detach(); });
  expect_steady("pooled", [&] { return encoder.pooled(encoder.hidden(ids, ends), ends).detach(); });
}

/// A conversation whose message found no memory is the one before it.
TEST(CallMemory, ConversationsAndTextsInSteps) {
  const LanguageModel model = chat_model(64);
  const Tokenizer tokenizer = chat_tokenizer();
  const ChatOptions options{.generate = {.tokens = 4}};
  expect_steady("template", [] { return text(ChatFormat::of_template(smollm_template, "t").user_begin); });
  const auto begun = [&] {
    Chat chat(model, tokenizer, ChatFormat::chatml(), options);
    chat.say("Hi");
    return chat;
  };
  Chat expected = begun();
  const std::vector<std::int64_t> before = expected.tokens(), answer = expected.say("the").tokens;
  Chat chat = begun();
  std::vector<std::int64_t> said;
  EXPECT_GT(fail_at_each([&] { said = chat.say("the").tokens; }, 0,
                         [&](long n) {
                           EXPECT_EQ(chat.tokens(), before) << n;
                           EXPECT_EQ(chat.left_out(), 0) << n;
                           return !::testing::Test::HasFailure();
                         }),
            100);
  EXPECT_EQ(said, answer);
  EXPECT_EQ(chat.tokens(), expected.tokens());

  const std::vector<std::vector<std::int64_t>> prompts = {tokenizer.encode("the"), tokenizer.encode("t")};
  expect_steady("TextGeneration", [&] {
    TextGeneration run(model, tokenizer, prompts, {.tokens = {.tokens = 3}});
    while (run.step()) {}
    const auto made = run.texts();
    return text(made[0].text + "|" + made[1].text);
  });
}

TEST(CallMemory, GgufFiles) {
  const Folder folder;
  const std::string bytes = GgufBytes()
                                .text("general.architecture", "llama")
                                .texts("names", {"a", "b"})
                                .tensor({.name = "x", .sizes = {2}, .data = std::string(8, '\0')})
                                .bytes();
  folder.write("m.gguf", bytes);
  expect_steady("parse", [&] { return GgufFile::parse(std::as_bytes(std::span(bytes))).tensor("x"); });
  expect_steady("open", [&] { return GgufFile::open(folder / "m.gguf").tensor("x"); });
  const GgufFile file = GgufFile::open(folder / "m.gguf");
  expect_steady("tensor", [&] { return file.tensor("x"); });
  expect_steady("keys", [&] { return text(file.keys().at(0)); });
  expect_steady("text", [&] { return text(file.text("general.architecture")); });
}

/// A step that finds no memory is none: it is not counted, and its loss is not kept.
TEST(CallMemory, AStepThatFailsIsNotCounted) {
  const TrainOptions options{.model = tiny_gpt2(), .steps = 4, .batch = 2, .eval_every = 2};
  const Trainer begun(ids_of_text(), options);
  const Folder folder;
  begun.save(folder.path());
  for (long n = 0; n < 3000; n += 1 + n / 40) {
    Trainer trainer = Trainer::resume(folder.path(), ids_of_text());
    allocations_left = n;
    try {
      trainer.advance();
    } catch (const std::bad_alloc&) {}
    const bool was_hit = allocations_left < 0;
    allocations_left = -1;
    EXPECT_LE(trainer.step(), 1) << n;
    EXPECT_EQ(trainer.losses().size(0), trainer.step()) << n;
    if (!was_hit) break;
  }
}

TEST(CallMemory, OptimizersChangeAllOrNothing) {
  const Tensor a = arange(6).to(Dtype::f32).requires_grad_(), b = arange(4).to(Dtype::f32).requires_grad_();
  optim::AdamW adamw({a, b});
  (sum(a * a) + sum(b)).backward();
  const Tensor before_a = a.detach().clone(), before_b = b.detach().clone();
  fail_at_each([&] { adamw.step(); }, 0,
               [&](long n) {
                 EXPECT_TRUE(same_bits(a.detach(), before_a) && same_bits(b.detach(), before_b)) << n;
                 return !::testing::Test::HasFailure();
               });
  EXPECT_FALSE(same_bits(a.detach(), before_a));
}

}  // namespace
}  // namespace attn::testing
