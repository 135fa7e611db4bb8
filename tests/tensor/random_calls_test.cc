// tests/tensor/random_calls_test.cc: any call with any arguments ends with a result or an error of attn's, one line,
// and nothing else.
#include <attn/attn.h>

#include "support/allocation_limit.h"
#include "support/sanitized.h"
#include "tensor/random_arguments.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace attn::testing {
namespace {

using Call = std::function<void(Draw&)>;

const std::vector<std::pair<const char*, Call>> calls{
    {"zeros", [](Draw& d) { zeros(d.sizes(), d.dtype()); }},
    {"full", [](Draw& d) { full(d.sizes(), d.scalar(), d.dtype()); }},
    {"eye", [](Draw& d) { eye(d.size()); }},
    {"arange",
     [](Draw& d) {
       const std::int64_t n = d.whole(), m = d.size();
       if (m < 0 || m > 50) arange(n, n < 0 ? n + 5 : n - 5, m, d.dtype());
       else arange(m);
     }},
    {"arange far", [](Draw& d) { arange(d.whole(), d.whole(), std::int64_t{1} << (55 + d.below(8)), d.dtype()); }},
    {"linspace", [](Draw& d) { linspace(d.number(), d.number(), d.size(), d.dtype()); }},
    {"one_hot", [](Draw& d) { one_hot(d.tensor(), d.size()); }},
    {"rand", [](Draw& d) { rand(d.sizes(), d.dtype()); }},
    {"randint", [](Draw& d) { randint(d.whole(), d.whole(), d.sizes()); }},
    {"randperm", [](Draw& d) { randperm(d.size()); }},
    {"reshape", [](Draw& d) { d.tensor().reshape(d.sizes()); }},
    {"view", [](Draw& d) { d.tensor().view(d.sizes()); }},
    {"expand",
     [](Draw& d) {
       const Tensor x = d.tensor().expand(d.sizes());
       x.is_contiguous();
       x.unsqueeze(d.dim());
       x.to_string();
     }},
    {"permute", [](Draw& d) { d.tensor().permute(d.dims()); }},
    {"select", [](Draw& d) { d.tensor().select(d.dim(), d.whole()); }},
    {"slice",
     [](Draw& d) {
       const Tensor x = d.tensor(), y = x.slice(d.dim(), d.whole(), d.whole(), d.whole());
       if (y.requires_grad()) y.backward(ones_like(y));
     }},
    {"narrow", [](Draw& d) { d.tensor().narrow(d.dim(), d.whole(), d.whole()); }},
    {"squeeze", [](Draw& d) { d.tensor().squeeze(d.dim()); }},
    {"flatten", [](Draw& d) { d.tensor().flatten(d.dim(), d.dim()); }},
    {"split", [](Draw& d) { d.tensor().split(d.whole(), d.dim()); }},
    {"split sizes", [](Draw& d) { d.tensor().split(std::vector<std::int64_t>{d.whole(), d.whole()}, d.dim()); }},
    {"chunk",
     [](Draw& d) {
       const std::int64_t n = d.whole();
       d.tensor().chunk(n, d.dim());
     }},
    {"repeat", [](Draw& d) { d.tensor().repeat(d.sizes()); }},
    {"cat", [](Draw& d) { cat(d.tensors(), d.dim()); }},
    {"cat far",
     [](Draw& d) {
       const Tensor x = empty({0, std::numeric_limits<std::int64_t>::max() / 2});
       cat({x, x, x, d.tensor()}, 1);
     }},
    {"stack", [](Draw& d) { stack(d.tensors(), d.dim()); }},
    {"index_select", [](Draw& d) { d.tensor().index_select(d.dim(), d.tensor()); }},
    {"embedding", [](Draw& d) { embedding(d.tensor(), d.tensor()); }},
    {"add", [](Draw& d) { add(d.tensor(), d.tensor(), d.tensor()); }},
    {"arithmetic",
     [](Draw& d) {
       const Tensor a = d.tensor(), b = d.tensor();
       (void)(a * b - a / b);
       (void)pow(a, b);
       (void)maximum(a, b);
     }},
    {"numbers",
     [](Draw& d) {
       const Tensor a = d.tensor();
       (void)(a * d.scalar() + d.scalar());
       (void)pow(a, d.scalar());
     }},
    {"compare",
     [](Draw& d) {
       eq(d.tensor(), d.tensor());
       lt(d.tensor(), d.scalar());
     }},
    {"where", [](Draw& d) { where(d.tensor(), d.tensor(), d.tensor()); }},
    {"masked_fill", [](Draw& d) { masked_fill(d.tensor(), d.tensor(), d.scalar()); }},
    {"tril",
     [](Draw& d) {
       tril(d.tensor(), d.whole());
       triu(d.tensor(), d.whole());
     }},
    {"sum", [](Draw& d) { sum(d.tensor(), d.dims(), d.below(2) == 0); }},
    {"mean", [](Draw& d) { mean(d.tensor(), d.dims()); }},
    {"var", [](Draw& d) { var(d.tensor(), d.dims(), d.below(2) == 0); }},
    {"norm", [](Draw& d) { norm(d.tensor(), d.number(), d.dims()); }},
    {"max",
     [](Draw& d) {
       max(d.tensor(), d.dim());
       argmax(d.tensor());
       min(d.tensor());
     }},
    {"any",
     [](Draw& d) {
       any(d.tensor());
       all(d.tensor());
     }},
    {"cumsum", [](Draw& d) { cumsum(d.tensor(), d.dim()); }},
    {"softmax",
     [](Draw& d) {
       softmax(d.tensor(), d.dim());
       log_softmax(d.tensor(), d.dim());
     }},
    {"layer_norm", [](Draw& d) { layer_norm(d.tensor(), d.sizes(), d.tensor(), d.tensor(), d.number()); }},
    {"rms_norm", [](Draw& d) { rms_norm(d.tensor(), d.sizes(), d.tensor(), d.number()); }},
    {"cross_entropy",
     [](Draw& d) {
       cross_entropy(d.tensor(), d.tensor(), {.ignore_index = d.whole(), .label_smoothing = d.number()});
     }},
    {"matmul", [](Draw& d) { matmul(d.tensor(), d.tensor()); }},
    {"bmm", [](Draw& d) { bmm(d.tensor(), d.tensor()); }},
    {"linear", [](Draw& d) { linear(d.tensor(), d.tensor(), d.tensor()); }},
    {"einsum", [](Draw& d) { einsum(d.text(), d.tensors()); }},
    {"to",
     [](Draw& d) {
       const Tensor x = d.tensor().to(d.dtype());
       (void)x.item();
       (void)x.item_int();
     }},
    {"values",
     [](Draw& d) {
       const Tensor x = d.tensor();
       x.to_vector();
       x.to_int_vector();
     }},
    {"fill",
     [](Draw& d) {
       Tensor x = d.tensor();
       x.fill_(d.scalar());
     }},
    {"print",
     [](Draw& d) {
       to_string(d.tensor(), {.precision = static_cast<int>(d.whole()),
                              .threshold = d.whole(),
                              .edge_items = static_cast<int>(d.whole()),
                              .line_width = static_cast<int>(d.whole())});
     }},
    {"from_blob",
     [](Draw& d) {
       static float memory[8];
       Tensor::from_blob(memory, d.sizes(), Dtype::f32, d.dims()).is_contiguous();
     }},
    {"dropout", [](Draw& d) { dropout(d.tensor(), d.number()); }},
    {"multinomial", [](Draw& d) { multinomial(d.tensor(), d.size(), d.below(2) == 0); }},
    {"normal",
     [](Draw& d) {
       normal_(d.tensor(), d.number(), d.number());
       uniform_(d.tensor(), d.number(), d.number());
     }},
    {"mask",
     [](Draw& d) {
       const Mask mask = Mask::parse(d.text());
       mask.print(d.whole(), d.whole(), {}, d.whole(), d.whole());
       mask.dense(1, 1, d.size(), d.size());
     }},
    {"masks",
     [](Draw& d) {
       const Mask mask = Mask::window(d.whole(), d.whole(), Align::top_left) &
                         (Mask::prefix(d.whole()) | ~Mask::attend(d.tensor())) & Mask::documents(d.tensor()) &
                         Mask::blocks(d.tensor(), d.whole(), d.whole());
       mask.print(d.whole(), d.whole());
     }},
    {"score", [](Draw& d) { (void)ScoreExpression::parse(d.text(), {{d.text(), d.tensor()}}).to_string(); }},
    {"slopes", [](Draw& d) { Bias::alibi_slopes(d.size()); }},
    {"cache",
     [](Draw& d) {
       KvCache cache({.key_heads = d.size(),
                      .value_heads = d.size(),
                      .head_dim = d.size(),
                      .value_dim = d.size(),
                      .page_rows = d.whole(),
                      .pages = d.size(),
                      .dtype = d.dtype(),
                      .scale_group = d.whole()});
       cache.append(cache.create(), d.tensor(), d.tensor());
     }},
    {"attention",
     [](Draw& d) {
       const Tensor q = d.tensor();
       AttentionOptions o{.scale = d.number(),
                          .softcap = d.number(),
                          .temperature = d.number(),
                          .sinks = d.below(3) == 0 ? d.tensor() : Tensor(),
                          .key_lengths = d.below(3) == 0 ? d.tensor() : Tensor(),
                          .dropout_p = d.number()};
       if (d.below(2) == 0) o = {};
       if (d.below(3) == 0) o.weights = Weights::top_k(d.whole());
       attention(q, d.below(2) == 0 ? q : d.tensor(), d.below(2) == 0 ? q : d.tensor(), o);
     }},
    {"sdpa",
     [](Draw& d) {
       const Tensor q = d.tensor();
       scaled_dot_product_attention(
           q, q, q,
           {.attn_mask = d.tensor(), .dropout_p = d.number(), .is_causal = d.below(2) == 0, .scale = d.number()});
     }},
    {"modules",
     [](Draw& d) {
       nn::Linear(d.size(), d.size());
       nn::Embedding(d.size(), d.size(), {.padding_idx = d.whole()});
       nn::LayerNorm(d.sizes());
       nn::Dropout(d.number());
     }},
    {"heads", [](Draw& d) { nn::MultiheadAttention(d.below(4) == 0 ? d.whole() % 1000 : d.below(9), d.whole()); }},
    {"split text",
     [](Draw& d) {
       text::join(text::split(d.text()));
       text::truncate_to_width(d.text(), static_cast<int>(d.whole()));
       text::Vocabulary(text::split("a b")).token(d.whole());
     }},
    {"explain",
     [](Draw& d) {
       const std::string text = d.below(2) == 0 ? "a b c" : d.text();
       const auto small = [&] { return d.below(4) == 0 ? d.size() : d.below(3) + 1; };
       to_text(explain(text, {.heads = small(),
                              .dim = small(),
                              .dk = small(),
                              .dv = small(),
                              .softcap = d.below(4) == 0 ? d.number() : 0,
                              .temperature = d.below(4) == 0 ? d.number() : 1}),
               {.width = static_cast<int>(d.whole())});
     }},
    {"explanations",
     [](Draw& d) {
       Explanation made;
       made.batch = d.below(2) == 0;
       d.below(2) == 0 ? to_text(made) : d.below(2) == 0 ? to_json(made) : to_svg(made);
     }},
    {"verify",
     [](Draw& d) {
       verify({.line = "softmax f32 rows=" + std::to_string(d.whole()) + " N=" + std::to_string(d.whole())});
     }},
    {"safetensors",
     [](Draw& d) {
       const std::string bytes = d.text();
       parse_safetensors(std::as_bytes(std::span<const char>(bytes)));
       load_safetensors(d.text());
       load_npy(d.text());
     }},
    {"schedule",
     [](Draw& d) {
       optim::Schedule{.peak = d.number(), .last = d.number(), .warmup = d.whole(), .steps = d.whole()}(d.whole());
       optim::clip_grad_norm_(d.tensors(), d.number(), {.norm_type = d.number()});
     }},
    {"threads",
     [](Draw& d) {
       const int before = num_threads();
       try {
         set_num_threads(static_cast<int>(d.below(6) - 3));
       } catch (...) {
         set_num_threads(before);
         throw;
       }
       set_num_threads(before);
     }},
};

bool is_one_line(const std::string& text) {
  bool fine = !text.empty() && text.size() <= 1000 && !text::invalid_utf8(text);
  for (const char c : text) fine = fine && static_cast<unsigned char>(c) >= 0x20 && c != 0x7F;
  return fine;
}

void call_at_random(std::uint64_t seed) {
  Draw draw(seed);
  const auto& [name, call] = calls[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(calls.size())))];
  SCOPED_TRACE(std::string(name) + ", ATTN_TEST_SEED=" + std::to_string(seed) + " alone");
  try {
    call(draw);
  } catch (const ShapeError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(is_one_line(text.substr(0, text.find("\n  top_left")))) << text;
  } catch (const Error& error) {
    EXPECT_TRUE(is_one_line(error.what())) << error.what();
  } catch (const std::bad_alloc&) {
  } catch (const std::exception& error) { ADD_FAILURE() << "not attn's: " << error.what(); }
}

/// ATTN_TEST_SEED: where to begin, ATTN_TEST_CASES: how many.
std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const char* given = std::getenv(name);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

TEST(RandomCalls, EndWithAResultOrOneLine) {
  const std::uint64_t first = number_of("ATTN_TEST_SEED", std::random_device()()),
                      cases = number_of("ATTN_TEST_CASES", std::getenv("ATTN_TEST_FULL") && !sanitized ? 20000 : 1000);
  // Some calls rightly ask for more memory than a machine has: they are to fail, not the machine.
  // A sanitizer takes no such limit, so there are few calls under it, and large allocations fail.
  if (const rlimit memory{6ull << 30, RLIM_INFINITY}; !sanitized) setrlimit(RLIMIT_AS, &memory);
  else largest_allocation = 1u << 30;
  std::printf("ATTN_TEST_SEED=%llu ATTN_TEST_CASES=%llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(cases));
  for (std::uint64_t n = 0; n < cases && !HasFailure(); ++n) call_at_random(first + n);
  largest_allocation = SIZE_MAX;
}

}  // namespace
}  // namespace attn::testing
