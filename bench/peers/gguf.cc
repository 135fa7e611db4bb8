// bench/peers/gguf.cc: attn's side of bench/peers/gguf.py: loads a GGUF file, computes a prompt or says the next
// tokens, and prints one line of JSON.
#include <attn/autograd.h>
#include <attn/generate.h>
#include <attn/ops.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace attn;

namespace {

using Ids = std::vector<std::int64_t>;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A line of /proc/self/status, in bytes.
long long memory(const std::string& name) {
  std::istringstream status(content_of("/proc/self/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  return 0;
}

std::string list(const std::vector<double>& numbers) {
  std::string text;
  for (const double x : numbers) text += (text.empty() ? "" : ", ") + std::to_string(x);
  return "[" + text + "]";
}

/// The likeliest token after `ids`, which the cache then holds.
std::int64_t next_of(const LanguageModel& model, ModelCache& cache, const Ids& ids) {
  const Tensor hidden = model.hidden(tensor<std::int64_t>(ids).unsqueeze(0), cache);
  return static_cast<std::int64_t>(argmax(model.logits(hidden.select(1, -1)), -1).item());
}

}  // namespace

/// gguf FILE ids TEXT: the ids of a text.
/// gguf FILE WORK DTYPE IDS COUNT REPEATS: load, prompt or next, from a file of ids.
int main(int argc, char** argv) {
  const std::string file = argv[1], work = argv[2];
  if (work == "ids") {
    for (const std::int64_t id : Tokenizer::load(file).encode(content_of(argv[3]), true))
      std::printf("%lld\n", static_cast<long long>(id));
    return 0;
  }
  if (argc != 7) return 2;
  std::ifstream lines(argv[4]);
  const Ids ids{std::istream_iterator<std::int64_t>(lines), {}};
  const auto count = std::stoul(argv[5]), repeats = std::stoul(argv[6]);
  const long long before = memory("VmRSS");
  const double begin = now();
  const NoGrad no_grad;
  const Tokenizer tokenizer = Tokenizer::load(file);
  const LanguageModel model = LanguageModel::load(file, dtype_from_name(argv[3]));
  ModelCache cache(model.config, 1, model.dtype());
  next_of(model, cache, Ids(ids.begin(), ids.begin() + 8));
  const double first = now() - begin;

  std::vector<double> seconds;
  for (std::size_t n = 0; n < repeats && work == "prompt"; ++n) {
    cache.truncate(0, 0);
    const double start = now();
    generate(model, {Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count))},
             {.tokens = 1, .sample = {.temperature = 0}, .end_tokens = Ids{}, .model_cache = &cache});
    seconds.push_back(now() - start);
  }
  for (std::size_t n = 0; n < repeats && work == "next"; ++n) {  // from the first of the new tokens to the last
    std::vector<double> times;
    generate(model, {Ids(ids.begin(), ids.begin() + 16)},
             {.tokens = static_cast<std::int64_t>(count) + 1,
              .sample = {.temperature = 0},
              .end_tokens = Ids{},
              .on_token = [&](std::size_t, std::int64_t) {
                times.push_back(now());
                return true;
              }});
    seconds.push_back(times.back() - times.front());
  }
  std::printf("{\"first\": %.4f, \"seconds\": %s, \"memory\": %lld}\n", first, list(seconds).c_str(),
              memory("VmHWM") - before);
}
