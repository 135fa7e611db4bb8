// bench/peers/gradients.cc: a forward and a backward pass of attention; milliseconds of the median, and the most
// memory, for bench/peers/gradients.py.
#include <attn/attn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>

using namespace attn;

namespace {

double now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// MiB by a line of /proc/self/status.
double memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::stod(line.substr(line.find(':') + 1)) / 1024;
  return NAN;
}

Tensor leaf(const Dims& sizes, double scale = 1) { return mul(randn(sizes), scale).requires_grad_(); }

struct Work {
  std::vector<Tensor> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> forward;
};

Work work_of(const std::string& name) {
  if (name == "additive") {
    const double scale = 1 / std::sqrt(256.0);
    return {{leaf({4, 512, 256}), leaf({4, 512, 256}), leaf({4, 512, 256}), leaf({256, 256}, scale),
             leaf({256, 256}, scale), leaf({256}, scale)},
            [](const auto& x) { return additive_attention(x[0], x[1], x[2], x[3], x[4], x[5]).output; }};
  }
  const Dims sizes{1, 16, 2048, 128};
  Work work{{leaf(sizes), leaf(sizes), leaf(sizes)}, [](const auto& x) { return attention(x[0], x[1], x[2]).output; }};
  if (name == "dropout")
    work.forward = [](const auto& x) { return attention(x[0], x[1], x[2], {.dropout_p = 0.1}).output; };
  if (name == "bias") {
    work.inputs.push_back(leaf({2048, 2048}));
    work.forward = [](const auto& x) { return attention(x[0], x[1], x[2], {.bias = Bias::dense(x[3])}).output; };
  }
  return work;
}

}  // namespace

int main(int count, char** words) {
  const std::string name = count > 1 ? words[1] : "";
  const double seconds = count > 2 ? std::stod(words[2]) : 1;
  const Work work = work_of(name);
  const Tensor incoming = randn(work.inputs[2].sizes());
  const auto step = [&] { return grad({work.forward(work.inputs)}, work.inputs, {.grad_outputs = {incoming}}); };
  const double before = memory("VmRSS");
  step();
  std::vector<double> times;
  for (const double end = now() + 1000 * seconds; now() < end || times.size() < 3;) {
    const double begin = now();
    step();
    times.push_back(now() - begin);
  }
  double results = static_cast<double>(incoming.numel());  // the output
  for (const Tensor& x : work.inputs) results += static_cast<double>(x.numel());
  std::sort(times.begin(), times.end());
  std::printf("%.3f %.1f\n", times[times.size() / 2], memory("VmHWM") - before - results * 4 / 1048576);
}
