// tests/model/model_memory_test.cc: an allocation fails, at each place in turn: what is called throws that, and nothing
// else.
#include <attn/generate.h>
#include <attn/ops.h>
#include <attn/train.h>

#include "model/tiny_models.h"
#include "support/failing_memory.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

/// A model in training mode is back in it afterwards, which needs no memory.
TEST(ModelMemory, GeneratingFails) {
  const LanguageModel model(tiny_llama());
  const auto generated = [&] {
    generate(model, {{1, 2, 3}, {4}}, {.tokens = 3, .sample = {.top_k = 5, .top_p = 0.9, .repetition_penalty = 1.2}});
  };
  generated();
  EXPECT_GT(fail_at_each(generated), 100);
  EXPECT_TRUE(model.is_training());
}

/// What a call that failed had put into the first layers is gone: the next one gives the numbers of a cache that saw
/// none of it.
TEST(ModelMemory, DecodingFails) {
  const LanguageModel model(tiny_llama());
  model.eval();
  const Tensor text = tensor<std::int64_t>({1, 2, 3}).unsqueeze(0), next = tensor<std::int64_t>({4}).unsqueeze(0);
  ModelCache whole(model.config, 1), failed(model.config, 1);
  for (ModelCache* cache : {&whole, &failed}) model.hidden(text, *cache);
  const Tensor expected = model.hidden(next, whole);
  long at = 0;
  for (;; ++at) {
    allocations_left = at;
    bool threw = false;
    try {
      model.hidden(next, failed);
    } catch (const std::bad_alloc&) { threw = true; }
    allocations_left = -1;
    if (!threw) break;
    ASSERT_EQ(failed.length(0), 3);
    ASSERT_TRUE(bits_equal(model.hidden(next, failed), expected)) << at;
    failed.truncate(0, 3);
  }
  EXPECT_GT(at, 50);
}

TEST(ModelMemory, ReorderingFails) {
  const LanguageModel model(tiny_llama());
  model.eval();
  const Tensor text = tensor<std::int64_t>({1, 2, 3, 4, 5, 6}).reshape({2, 3}),
               next = tensor<std::int64_t>({7, 8}).unsqueeze(1);
  ModelCache cache(model.config, 2);
  model.hidden(text, cache);
  const Tensor expected = model.hidden(next, cache);
  long at = 0;
  for (;; ++at) {
    for (std::int64_t i = 0; i < 2; ++i) cache.truncate(i, 3);
    allocations_left = at;
    bool threw = false;
    try {
      cache.reorder({0, 1});
    } catch (const std::bad_alloc&) { threw = true; }
    allocations_left = -1;
    ASSERT_TRUE(bits_equal(model.hidden(next, cache), expected)) << at;
    if (!threw) break;
  }
  EXPECT_GT(at, 3);
}

/// The file is whole: no error speaks of it.
TEST(ModelMemory, ResumingFails) {
  const Folder folder;
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(i * i % 13);
  Trainer trainer(ids, {.model = tiny_llama(), .steps = 4, .batch = 2, .warmup = 1, .eval_every = 2});
  trainer.advance();
  trainer.save(folder.path());
  const auto resumed = [&] { Trainer::resume(folder.path(), ids); };
  resumed();
  constexpr long many = 1000000;
  allocations_left = many;
  resumed();
  const long all = many - allocations_left;
  allocations_left = -1;
  // Not the first nine tenths: the JSON library's destructors need memory.
  EXPECT_EQ(fail_at_each(resumed, all - all / 10), all);
}

}  // namespace
}  // namespace attn::testing
