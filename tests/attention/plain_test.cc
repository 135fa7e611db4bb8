// tests/attention/plain_test.cc: the plain entry has the bits of the tensor entry, allocates nothing, and says what is
// wrong.
#include <attn/plain.h>

#include "attention/inputs.h"
#include "runtime/memory.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <thread>

namespace attn::testing {
namespace {

constexpr std::int64_t batch = 2, heads = 4, groups = 2, rows = 70, keys = 130, dim = 12, width = 6;

Inputs inputs(Dtype dtype) {
  return {normal({batch, heads, rows, dim}, 1, dtype), normal({batch, groups, keys, dim}, 2, dtype),
          normal({batch, groups, keys, width}, 3, dtype)};
}

plain::Attention call_of(const Inputs& in, const Tensor& output, const Tensor& logsumexp, plain::Element element) {
  plain::Attention call;
  call.batch = batch, call.q_heads = heads, call.k_heads = call.v_heads = groups;
  call.q_rows = rows, call.k_rows = keys, call.dim = dim, call.value_dim = width;
  call.element = element;
  call.q = in.q.data(), call.k = in.k.data(), call.v = in.v.data();
  call.output = output.data(), call.logsumexp = logsumexp.data();
  return call;
}

/// A thread a part: more at a time than the workspace has slots.
void run_on_threads(void*, std::int64_t parts, void (*part)(void*, std::int64_t), void* part_context) {
  std::vector<std::thread> threads;
  for (std::int64_t n = 0; n < parts; ++n) threads.emplace_back(part, part_context, n);
  for (std::thread& thread : threads) thread.join();
}

void expect_bits(const Inputs& in, plain::Attention call, const AttentionOptions& options,
                 const plain::Executor& executor = {}) {
  const AttentionResult expected = attention(in.q, in.k, in.v, options);
  const Tensor output = full(expected.output.sizes(), 9.0, in.q.dtype()),
               logsumexp = full(expected.logsumexp.sizes(), 9.0, expected.logsumexp.dtype());
  call.output = output.data(), call.logsumexp = logsumexp.data();
  std::vector<char> workspace(plain::workspace_bytes(call, executor) + 1);
  const std::size_t before = runtime::allocated_bytes();
  runtime::reset_peak();
  ASSERT_EQ(plain::attention(call, workspace.data() + 1, workspace.size() - 1, executor), plain::Status::ok);
  EXPECT_EQ(runtime::peak_bytes(), before) << "nothing is allocated";
  EXPECT_TRUE(bits_equal(output, expected.output));
  EXPECT_TRUE(bits_equal(logsumexp, expected.logsumexp));
}

TEST(Plain, ScoresOfNoColumnsAreZero) {
  Inputs in = inputs(Dtype::bf16);
  in.q = in.q.narrow(3, 0, 0), in.k = in.k.narrow(3, 0, 0);
  plain::Attention call = call_of(in, in.q, in.q, plain::Element::bf16);
  call.dim = 0, call.q = call.k = nullptr;
  expect_bits(in, call, {});
}

TEST(Plain, HasTheBitsOfTheTensorEntry) {
  const std::pair<Dtype, plain::Element> types[] = {{Dtype::f32, plain::Element::f32},
                                                    {Dtype::f64, plain::Element::f64},
                                                    {Dtype::bf16, plain::Element::bf16},
                                                    {Dtype::f16, plain::Element::f16}};
  for (const auto& [dtype, element] : types) {
    const Inputs in = inputs(dtype);
    const plain::Attention call = call_of(in, in.q, in.q, element);
    expect_bits(in, call, {});
    plain::Attention causal = call;
    causal.causal = causal.bottom_right = true;
    causal.window_left = 20;
    causal.scale = 0.4;
    causal.temperature = 2;
    expect_bits(in, causal,
                {.scale = 0.4,
                 .mask = Mask::causal(Align::bottom_right) & Mask::window(20, -1, Align::bottom_right),
                 .temperature = 2});
  }
}

/// Large enough for its query tiles to prefetch what the next ones read, though nobody says which those are.
TEST(Plain, ACallThatExceedsTheCaches) {
  const Dims sizes{8, 4, 130, 64};
  const Inputs in{normal(sizes, 1), normal(sizes, 2), normal(sizes, 3)};
  plain::Attention call = call_of(in, in.q, in.q, plain::Element::f32);
  call.batch = 8, call.k_heads = call.v_heads = 4, call.q_rows = 130, call.dim = call.value_dim = 64;
  expect_bits(in, call, {});
}

TEST(Plain, EveryOptionByPointer) {
  const Inputs in = inputs(Dtype::f32);
  plain::Attention call = call_of(in, in.q, in.q, plain::Element::f32);
  const Tensor mask = gt(normal({rows, keys}, 4), 0), bias = normal({heads, 1, keys}, 5), sinks = normal({heads}, 6);
  const std::int64_t query_lengths[] = {70, 33}, key_lengths[] = {130, 100}, key_start[] = {0, 65},
                     query_start[] = {60, 2};
  call.mask = static_cast<const std::uint8_t*>(mask.data());
  call.mask_strides = {0, 0, keys, 1};
  call.bias = bias.data();
  call.bias_strides = {0, keys, 0, 1};
  call.sinks = sinks.data();
  call.softcap = 4;
  call.causal = true;
  call.query_lengths = query_lengths, call.key_lengths = key_lengths, call.key_start = key_start,
  call.query_start = query_start;
  const AttentionOptions options{.mask = Mask::causal(Align::top_left) & Mask::attend(mask),
                                 .bias = Bias::dense(bias),
                                 .softcap = 4,
                                 .sinks = sinks,
                                 .query_lengths = integers({70, 33}),
                                 .key_lengths = integers({130, 100}),
                                 .key_start = integers({0, 65}),
                                 .query_start = integers({60, 2})};
  expect_bits(in, call, options);
  expect_bits(in, call, options, {.run = run_on_threads, .context = nullptr, .threads = 2});
}

TEST(Plain, StridesAndASmallWorkspace) {
  const Inputs in = inputs(Dtype::f32);
  const Tensor q = in.q.transpose(1, 2).contiguous();  // [B, T, H, D]
  plain::Attention call = call_of(in, in.q, in.q, plain::Element::f32);
  call.q = q.data();
  call.q_strides = {heads * rows * dim, dim, heads * dim};
  expect_bits(in, call, {});
  const Tensor output = zeros({batch, heads, rows, width}), logsumexp = zeros({batch, heads, rows});
  call.output = output.data(), call.logsumexp = logsumexp.data();
  const plain::Executor one{.run = run_on_threads, .context = nullptr, .threads = 1};
  std::vector<char> workspace(plain::workspace_bytes(call, one));
  EXPECT_EQ(plain::attention(call, workspace.data(), workspace.size()), plain::Status::ok);
  EXPECT_TRUE(bits_equal(output, attention(in.q, in.k, in.v).output));
}

TEST(Plain, TheWorkspaceIsBoundedWhateverTheRows) {
  const Inputs in = inputs(Dtype::f32);
  const plain::Executor one{.run = run_on_threads, .context = nullptr, .threads = 1};
  const auto bytes = [&](plain::Element element, std::int64_t q_rows, std::int64_t k_rows) {
    plain::Attention call = call_of(in, in.q, in.q, element);
    call.q_rows = q_rows, call.k_rows = k_rows, call.dim = call.value_dim = 64;
    return plain::workspace_bytes(call, one);
  };
  for (const plain::Element element : {plain::Element::f32, plain::Element::f64})
    for (const std::int64_t count : {1, 1000, 100000}) EXPECT_EQ(bytes(element, count, count), bytes(element, 1, 1));
  EXPECT_LT(bytes(plain::Element::bf16, 4096, 1 << 30), 2400000u);
  EXPECT_LT(bytes(plain::Element::f16, 4096, 1 << 30), 640000u);
}

TEST(Plain, SaysWhatIsWrongAndWritesNothing) {
  const Inputs in = inputs(Dtype::f32);
  const Tensor output = full({batch, heads, rows, width}, 9.0), logsumexp = zeros({batch, heads, rows});
  const plain::Attention good = call_of(in, output, logsumexp, plain::Element::f32);
  std::vector<char> workspace(plain::workspace_bytes(good));
  const auto status = [&](auto&& change) {
    plain::Attention call = good;
    change(call);
    return plain::attention(call, workspace.data(), workspace.size());
  };
  const std::int64_t lengths[] = {131, 0};
  EXPECT_EQ(status([](auto& c) { c.dim = -1; }), plain::Status::negative_size);
  EXPECT_EQ(status([](auto& c) { c.v_heads = 3; }), plain::Status::heads_do_not_divide);
  EXPECT_EQ(status([](auto& c) { c.k = nullptr; }), plain::Status::null_pointer);
  EXPECT_EQ(status([](auto& c) { c.temperature = 0; }), plain::Status::bad_value);
  EXPECT_EQ(status([](auto& c) { c.window_left = -2; }), plain::Status::bad_value);
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double wrong : {nan, inf, -inf, 1e300}) {  // the last is infinite in f32
    EXPECT_EQ(status([&](auto& c) { c.scale = wrong; }), plain::Status::bad_value) << wrong;
    EXPECT_EQ(status([&](auto& c) { c.temperature = wrong; }), plain::Status::bad_value) << wrong;
    EXPECT_EQ(status([&](auto& c) { c.softcap = wrong; }), plain::Status::bad_value) << wrong;
  }
  EXPECT_EQ(status([](auto& c) { c.element = static_cast<plain::Element>(4); }), plain::Status::element);
  EXPECT_EQ(status([](auto& c) { c.bias = c.q, c.bias_element = static_cast<plain::Element>(4); }),
            plain::Status::element);
  EXPECT_EQ(status([&](auto& c) { c.key_lengths = lengths; }), plain::Status::bad_length);
  EXPECT_EQ(plain::attention(good, workspace.data(), 100), plain::Status::small_workspace);
  EXPECT_EQ(plain::attention(good, nullptr, 0), plain::Status::small_workspace);
  EXPECT_TRUE(same_bits(output, full({batch, heads, rows, width}, 9.0)));
  EXPECT_STREQ(plain::text_of(plain::Status::heads_do_not_divide),
               "plain::attention: k_heads and v_heads must each divide q_heads");
  EXPECT_EQ(status([](auto& c) { c.batch = 0; }), plain::Status::ok);
  // what was left out of a call
  for (std::int64_t plain::Attention::* size :
       {&plain::Attention::q_rows, &plain::Attention::k_rows, &plain::Attention::dim, &plain::Attention::value_dim})
    EXPECT_EQ(status([&](auto& c) { c.*size = 0; }), plain::Status::size_left_out);
  EXPECT_EQ(status([](auto& c) { c.k_rows = 0, c.k = c.v = nullptr; }), plain::Status::ok) << "no keys, said twice";
  EXPECT_TRUE(same_bits(output, zeros({batch, heads, rows, width})));
  for (plain::Strides plain::Attention::* strides : {&plain::Attention::q_strides, &plain::Attention::k_strides,
                                                     &plain::Attention::v_strides, &plain::Attention::output_strides}) {
    EXPECT_EQ(status([&](auto& c) { c.*strides = {.row = 64}; }), plain::Status::stride_left_out);
    EXPECT_EQ(status([&](auto& c) { c.*strides = {.head = 64, .row = 64}; }), plain::Status::stride_left_out);
    EXPECT_EQ(status([&](auto& c) { c.*strides = {.batch = 64, .row = 64}; }), plain::Status::stride_left_out);
    EXPECT_EQ(status([&](auto& c) { c.*strides = {.batch = 64, .head = 64}; }), plain::Status::stride_left_out);
    EXPECT_EQ(status([&](auto& c) { c.*strides = {.batch = 90000, .head = 20000, .row = width - 1}; }),
              plain::Status::short_stride);
    EXPECT_EQ(status([&](auto& c) { c.*strides = {.batch = 90000, .head = width - 1, .row = 64}; }),
              plain::Status::short_stride);
    EXPECT_EQ(status([&](auto& c) { c.*strides = {.batch = 1 - width, .head = 20000, .row = 64}; }),
              plain::Status::short_stride);
  }
  // where rows stand
  for (const auto by_position :
       {+[](plain::Attention& c) { c.causal = true; }, +[](plain::Attention& c) { c.window_left = 3; },
        +[](plain::Attention& c) { c.window_right = 3; }}) {
    EXPECT_EQ(status(by_position), plain::Status::alignment);
    EXPECT_EQ(status([&](auto& c) { by_position(c), c.bottom_right = true; }), plain::Status::ok);
    EXPECT_EQ(status([&](auto& c) { by_position(c), c.top_left = true; }), plain::Status::ok);
    EXPECT_EQ(status([&](auto& c) { by_position(c), c.k_rows = rows; }), plain::Status::ok);
  }
  EXPECT_EQ(status([](auto& c) { c.top_left = c.bottom_right = true; }), plain::Status::alignment);
  for (int n = 1; n <= static_cast<int>(plain::Status::alignment); ++n)
    EXPECT_EQ(std::string(plain::text_of(static_cast<plain::Status>(n))).find("unknown"), std::string::npos) << n;
}

TEST(Plain, TopLeftAsItIsSaid) {
  const Inputs in = inputs(Dtype::f32);
  plain::Attention call = call_of(in, in.q, in.q, plain::Element::f32);
  call.causal = call.top_left = true;
  expect_bits(in, call, {.mask = Mask::causal(Align::top_left)});
}

/// Without strides a mask or bias is row-major, as everything else; {.key = 1} is one row for all.
TEST(Plain, MasksAndBiasesWithoutStridesAreRowMajor) {
  const Inputs in = inputs(Dtype::f32);
  const Tensor mask = gt(normal({batch, heads, rows, keys}, 4), 0), bias = normal({batch, heads, rows, keys}, 5);
  plain::Attention call = call_of(in, in.q, in.q, plain::Element::f32);
  call.mask = static_cast<const std::uint8_t*>(mask.data());
  call.bias = bias.data();
  expect_bits(in, call, {.mask = Mask::attend(mask), .bias = Bias::dense(bias)});
  call.mask_strides = call.bias_strides = {.key = 1};
  expect_bits(in, call, {.mask = Mask::attend(mask[0][0][0]), .bias = Bias::dense(bias[0][0][0])});
  call.mask_strides = call.bias_strides = {.row = keys};
  expect_bits(in, call, {.mask = Mask::attend(mask[0][0]), .bias = Bias::dense(bias[0][0])});
  call.bias_strides = {.row = keys, .key = 0};
  expect_bits(in, call, {.mask = Mask::attend(mask[0][0]), .bias = Bias::dense(bias[0][0].narrow(1, 0, 1))});
}

}  // namespace
}  // namespace attn::testing
