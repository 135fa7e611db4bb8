// fuzz/call.cc: runs random calls of attention: the bits must be the same on three threads, for one batch item alone,
// and with or without weights.
#include "call.h"

using namespace attn;
using namespace attn::fuzz;

static Tensor item(const Tensor& x, std::int64_t b) { return x.defined() && x.size(0) > 1 ? x.slice(0, b, b + 1) : x; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  RandomCall call;
  if (!answers([&] { call = random_call(in); })) return 0;
  AttentionResult one, three;
  const auto attend = [&] { return attention(call.q, call.k, call.v, call.options); };
  if (!answers([&] { one = attend(); })) return 0;
  set_num_threads(3), answers([&] { three = attend(); });
  set_num_threads(1);
  check(same_bits(one.output, three.output) && same_bits(one.logsumexp, three.logsumexp),
        "other bits on three threads");
  check(!one.weights.defined() || same_bits(one.weights, three.weights), "other weights on three threads");
  AttentionOptions plain = call.options;
  plain.weights = Weights::none;
  check(same_bits(one.output, attention(call.q, call.k, call.v, plain).output), "other bits without weights");

  const std::string mask = plain.mask.to_string();
  const bool over_batch = mask.find("tensor") != std::string::npos || mask.find("[") != std::string::npos ||
                          plain.dropout_p > 0 || !plain.score_mod.empty() || !plain.bias.empty();
  if (!over_batch) {
    const std::int64_t b = call.q.size(0) - 1;
    for (Tensor* lengths : {&plain.query_lengths, &plain.key_lengths, &plain.key_start, &plain.query_start})
      *lengths = item(*lengths, b);
    check(same_bits(item(one.output, b), attention(item(call.q, b), item(call.k, b), item(call.v, b), plain).output),
          "other bits for an item alone");
  }
  const auto leaf = [](const Tensor& x) { return x.clone().requires_grad_(); };
  answers([&] { attention(leaf(call.q), leaf(call.k), leaf(call.v), call.options).output.sum().backward(); });
  return 0;
}
