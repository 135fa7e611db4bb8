// bench/peers/encoders.cc: attn's side of bench/peers/encoders.py: computes a batch of ids or the vectors of lines, and
// prints one line of JSON.
#include <attn/autograd.h>
#include <attn/encoder.h>
#include <attn/ops.h>

#include "bench/peak.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

using namespace attn;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The multiply-adds of `texts` texts of `tokens` tokens, times two: products and attention.
double operations(const EncoderConfig& c, std::int64_t texts, std::int64_t tokens) {
  const double rows = static_cast<double>(texts * tokens), width = static_cast<double>(c.width);
  const double products = rows * width * (4 * width + 2 * static_cast<double>(c.mlp_width)),
               attention = 2 * rows * static_cast<double>(tokens) * width;
  return 2 * static_cast<double>(c.layers) * (products + attention);
}

}  // namespace

/// encoders FOLDER batch DTYPE TEXTS TOKENS REPEATS
/// encoders FOLDER lines DTYPE FILE REPEATS
int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const NoGrad no_grad;
  const std::string work = argv[2];
  const Dtype dtype = dtype_from_name(argv[3]);
  const TextEncoder encoder = TextEncoder::load(argv[1], dtype);
  std::vector<std::string> lines;
  Tensor ids, ends;
  double operations_once = 0;
  if (work == "batch") {
    const std::int64_t texts = std::atoi(argv[4]), tokens = std::atoi(argv[5]);
    ids = randint(0, encoder.config.vocab_size, {texts * tokens});
    ends = arange(0, texts * tokens + 1, tokens, Dtype::i64);
    operations_once = operations(encoder.config, texts, tokens);
  } else {
    std::ifstream file(argv[4]);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
  }
  std::string seconds, fractions;
  const bench::Limit limit = bench::limit_of(dtype);
  for (int left = std::atoi(argv[argc - 1]) + 1; left > 0; --left) {
    const double before = bench::sample_arithmetic(limit), begin = now();
    if (work == "batch") encoder.hidden(ids, ends);
    else encoder.embed(lines);
    const double taken = now() - begin, peak = std::max(before, bench::sample_arithmetic(limit));
    if (seconds.empty()) {  // the first call packs the weights
      seconds = fractions = " ";
      continue;
    }
    const auto add = [](std::string& to, double x) { to += (to == " " ? "" : ", ") + std::to_string(x); };
    add(seconds, taken);
    add(fractions, operations_once / taken / peak / 1e9);
  }
  std::printf("{\"seconds\": [%s], \"of_peak\": [%s]}\n", seconds.c_str(), fractions.c_str());
}
