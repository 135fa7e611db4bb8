// bench/peers/beside.cc: an attention of attn behind C functions, so that it can run in Python's process, for
// beside.py.
#include <attn/attn.h>

#include <cstdint>

namespace {

struct Call {
  attn::Tensor q, k, v;
  attn::AttentionOptions options;
};

}  // namespace

extern "C" {

void* beside_make(int threads, std::int64_t heads, std::int64_t tokens, std::int64_t dim) {
  attn::set_num_threads(threads);
  const attn::Dims sizes{1, heads, tokens, dim};
  return new Call{attn::randn(sizes), attn::randn(sizes), attn::randn(sizes), {.out = attn::empty(sizes)}};
}

void beside_call(void* call) {
  const Call& c = *static_cast<Call*>(call);
  attn::attention(c.q, c.k, c.v, c.options);
}
}
