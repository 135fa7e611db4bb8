// tests/attention/plain_backward_test.cc: the plain entry of the backward pass has the bits of the tape, allocates
// nothing, says what is wrong.
#include <attn/autograd.h>
#include <attn/plain.h>

#include "attention/truth.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace attn::testing {
namespace {

/// A call of both entries on the same tensors.
struct Both {
  Dtype dtype = Dtype::f32;
  std::int64_t batch = 2, heads = 4, groups = 2, rows = 130, keys = 150;
  bool one_bias = false;  // for all heads
  Tensor q = normal({batch, heads, rows, 12}, 1, dtype), k = normal({batch, groups, keys, 12}, 2, dtype),
         v = normal({batch, groups, keys, 6}, 3, dtype);
  Dtype computed = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  Tensor doutput = normal({batch, heads, rows, 6}, 4, dtype), dlogsumexp = normal({batch, heads, rows}, 5, computed);
  Tensor sinks = normal({heads}, 6, computed), bias = normal({one_bias ? 1 : heads, 1, keys}, 7, computed);

  Tensor output = zeros({batch, heads, rows, 6}, dtype), max = zeros({batch, heads, rows}, computed),
         sum = zeros({batch, heads, rows}, computed);
  Tensor dq = full(q.sizes(), 9, dtype), dk = full(k.sizes(), 9, dtype), dv = full(v.sizes(), 9, dtype),
         dsinks = full({heads}, 9, computed), dbias = zeros(bias.sizes(), computed);

  plain::AttentionBackward call() const {
    plain::AttentionBackward call;
    plain::Attention& f = call.forward;
    f.batch = batch, f.q_heads = heads, f.k_heads = f.v_heads = groups, f.q_rows = rows, f.k_rows = keys, f.dim = 12,
    f.value_dim = 6;
    f.element = dtype == Dtype::f64    ? plain::Element::f64
                : dtype == Dtype::bf16 ? plain::Element::bf16
                                       : plain::Element::f32;
    f.q = q.data(), f.k = k.data(), f.v = v.data(), f.output = output.data(), f.max = max.data(), f.sum = sum.data();
    f.causal = f.bottom_right = true;
    f.softcap = 3;
    f.sinks = sinks.data();
    f.bias = bias.data(), f.bias_element = dtype == Dtype::f64 ? plain::Element::f64 : plain::Element::f32,
    f.bias_strides = {0, one_bias ? 0 : keys, 0, 1};
    call.doutput = doutput.data(), call.dlogsumexp = dlogsumexp.data();
    call.dq = dq.data(), call.dk = dk.data(), call.dv = dv.data(), call.dsinks = dsinks.data(),
    call.dbias = dbias.data();
    return call;
  }
};

void expect_bits(const Both& b, const plain::Executor& executor = {}) {
  const plain::AttentionBackward call = b.call();
  const std::size_t bytes = std::max(plain::workspace_bytes(call, executor),
                                     plain::workspace_bytes(call.forward, executor)),
                    behind = 4 << 20;
  std::vector<char> workspace(1 + bytes + behind, 'x');
  ASSERT_EQ(plain::attention(call.forward, workspace.data() + 1, bytes, executor), plain::Status::ok);
  const std::size_t before = runtime::allocated_bytes();
  runtime::reset_peak();
  ASSERT_EQ(plain::attention_backward(call, workspace.data() + 1, bytes, executor), plain::Status::ok);
  EXPECT_EQ(runtime::peak_bytes(), before) << "nothing is allocated";
  EXPECT_EQ(std::count(workspace.end() - behind, workspace.end(), 'x'), static_cast<std::ptrdiff_t>(behind))
      << "nothing is written behind the workspace";

  std::vector<Tensor> inputs;
  for (const Tensor& x : {b.q, b.k, b.v, b.sinks, b.bias}) inputs.push_back(x.detach().requires_grad_());
  AttentionOptions options{.mask = Mask::causal(Align::bottom_right), .bias = Bias::dense(inputs[4])};
  options.softcap = 3;
  options.sinks = inputs[3];
  const AttentionResult r = attention(inputs[0], inputs[1], inputs[2], options);
  backward({r.output, r.logsumexp}, {b.doutput, b.dlogsumexp});
  const Tensor ours[] = {b.dq, b.dk, b.dv, b.dsinks, b.dbias};
  for (std::size_t n = 0; n < inputs.size(); ++n) EXPECT_TRUE(bits_equal(ours[n], inputs[n].grad())) << n;
}

/// A thread a part: more at a time than the workspace has slots.
void run_on_threads(void*, std::int64_t parts, void (*part)(void*, std::int64_t), void* part_context) {
  std::vector<std::thread> threads;
  for (std::int64_t n = 0; n < parts; ++n) threads.emplace_back(part, part_context, n);
  for (std::thread& thread : threads) thread.join();
}
void run_backwards(void*, std::int64_t parts, void (*part)(void*, std::int64_t), void* part_context) {
  while (parts-- > 0) part(part_context, parts);
}

TEST(PlainBackward, HasTheBitsOfTheTape) {
  expect_bits({});
  expect_bits({.dtype = Dtype::f64});
  expect_bits({.batch = 1, .heads = 1, .groups = 1, .rows = 400, .keys = 300});
}

bool has_bf16_dot() { return runtime::vectors_of(runtime::target()) == "avx512" && runtime::cpu().avx512_bf16; }

TEST(PlainBackward, OfBf16HasTheBitsOfTheTapeToo) {
  if (!has_bf16_dot()) GTEST_SKIP() << "the processor has no bf16 dot product";
  expect_bits({.dtype = Dtype::bf16});
  expect_bits({.dtype = Dtype::bf16, .batch = 1, .heads = 1, .groups = 1, .rows = 400, .keys = 300});  // a wave
  // a wave of many units, for the bias
  expect_bits({.dtype = Dtype::bf16, .batch = 6, .heads = 8, .groups = 4, .one_bias = true});
  expect_bits({.dtype = Dtype::bf16, .batch = 1, .heads = 1, .groups = 1, .rows = 400, .keys = 300},
              {.run = run_on_threads, .context = nullptr, .threads = 3});
}

TEST(PlainBackward, RunsOnTheCallersThreadsInAnyOrder) {
  for (const auto run : {run_on_threads, run_backwards}) {
    expect_bits({}, {.run = run, .context = nullptr, .threads = 3});
    // a wave
    expect_bits({.batch = 1, .heads = 1, .groups = 1, .rows = 400, .keys = 300},
                {.run = run, .context = nullptr, .threads = 3});
  }
}

TEST(PlainBackward, SaysWhatIsWrong) {
  const Both b;
  std::vector<char> workspace(plain::workspace_bytes(b.call()));
  const auto status = [&](auto&& change) {
    plain::AttentionBackward call = b.call();
    change(call);
    return plain::attention_backward(call, workspace.data(), workspace.size());
  };
  EXPECT_EQ(status([](auto& c) { c.forward.max = nullptr; }), plain::Status::null_saved);
  EXPECT_EQ(status([](auto& c) { c.forward.bias = nullptr; }), plain::Status::null_saved);
  EXPECT_EQ(status([](auto& c) { c.forward.element = plain::Element::f16; }), plain::Status::element);
  EXPECT_EQ(status([](auto& c) { c.forward.dim = -1; }), plain::Status::negative_size);
  EXPECT_EQ(status([](auto& c) { c.forward.value_dim = 0; }), plain::Status::size_left_out);
  for (plain::Strides plain::AttentionBackward::* strides :
       {&plain::AttentionBackward::doutput_strides, &plain::AttentionBackward::dq_strides,
        &plain::AttentionBackward::dk_strides, &plain::AttentionBackward::dv_strides}) {
    EXPECT_EQ(status([&](auto& c) { c.*strides = {.row = 64}; }), plain::Status::stride_left_out);
    EXPECT_EQ(status([&](auto& c) { c.*strides = {.batch = 90000, .head = 20000, .row = 5}; }),
              plain::Status::short_stride);
  }
  EXPECT_EQ(plain::attention_backward(b.call(), workspace.data(), 1000), plain::Status::small_workspace);
  EXPECT_EQ(plain::attention_backward(b.call(), nullptr, 0), plain::Status::small_workspace);
  EXPECT_TRUE(bits_equal(b.dq, full(b.q.sizes(), 9)));
}

}  // namespace
}  // namespace attn::testing
