// tests/consumer/model.cc: what a stranger's program does with attn::model: a small model that learns one line by
// heart.
#include <attn/model.h>
#include <attn/optim.h>

#include <cstdio>

int main() {
  attn::manual_seed(1);
  const attn::LanguageModel model({.vocab_size = 11, .context = 8, .layers = 1, .heads = 2, .width = 16});
  attn::optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
  const attn::Tensor line = attn::randint(0, 11, {1, 9});
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    const attn::Tensor loss = model.loss(line.slice(1, 0, -1), line.slice(1, 1));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    last = loss.item();
    if (step == 0) first = last;
  }
  std::printf("loss %.3f, then %.3f\n", first, last);
  return last < first / 10 ? 0 : 1;
}
