// bench/peers/models.cc: tokens a second of attn's models: a training step, or decoding; one line of output for
// bench/peers/models.py.
#include <attn/autograd.h>
#include <attn/model.h>
#include <attn/ops.h>
#include <attn/optim.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

using namespace attn;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Calls step() for `seconds`, after three that do not count; the time of the median.
template <typename F>
double median_seconds(double seconds, F&& step) {
  for (int i = 0; i < 3; ++i) step();
  std::vector<double> times;
  for (const double end = now() + seconds; now() < end || times.size() < 3;) {
    const double begin = now();
    step();
    times.push_back(now() - begin);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double training(const std::string& size, Dtype dtype, double seconds) {
  const ModelConfig config = size == "nano" ? ModelConfig::nano(65) : ModelConfig::baby(65);
  const std::int64_t batch = size == "nano" ? 12 : 8;
  const LanguageModel model(config, dtype);
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-3, .betas = {0.9, 0.99}, .weight_decay = 0.1});
  const double step = median_seconds(seconds, [&] {
    const Tensor rows = randint(0, 65, {batch, config.context + 1});
    const Tensor loss = model.loss(rows.slice(1, 0, -1), rows.slice(1, 1));
    optimizer.zero_grad();
    loss.backward();
    optim::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
  });
  return static_cast<double>(batch * config.context) / step;
}

double decoding(Dtype dtype, double seconds) {
  const NoGrad no_grad;
  const LanguageModel model(ModelConfig::small(), dtype);
  model.eval();
  ModelCache cache(model.config, 1, dtype);
  Tensor next = zeros({1, 1}, Dtype::i64);
  return 1 / median_seconds(seconds, [&] {
           if (cache.length(0) >= 256) cache.truncate(0, 0);
           next = argmax(model.logits(model.hidden(next, cache)).select(1, -1), -1, true);
         });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  manual_seed(1);
  const Dtype dtype = dtype_from_name(argv[2]);
  const double seconds = std::stod(argv[3]);
  std::printf("%.1f\n",
              std::strcmp(argv[1], "decode") == 0 ? decoding(dtype, seconds) : training(argv[1], dtype, seconds));
}
