// tests/attention/c_test.cc: every field of the C header reaches the plain call, with its bits; mistakes have the plain
// call's statuses.
#include <attn/c.h>
#include <attn/plain.h>
#include <attn/runtime.h>

#include "attention/truth.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace attn::testing {
namespace {

constexpr std::int64_t batch = 2, heads = 4, groups = 2, rows = 9, keys = 21, dim = 12, width = 6;

/// Operands of a call, and places for its results.
struct Data {
  explicit Data(Dtype dtype)
      : q(normal({batch, heads, rows, dim}, 1, dtype)), k(normal({batch, groups, keys, dim}, 2, dtype)),
        v(normal({batch, groups, keys, width}, 3, dtype)), bias(normal({heads, keys}, 4, dtype)),
        sinks(normal({heads}, 5, Dtype::f32)), mask(gt(normal({rows, keys}, 6, Dtype::f32), -0.5)),
        doutput(normal({batch, heads, rows, width}, 7, dtype)), dlogsumexp(normal({batch, heads, rows}, 8, Dtype::f32)),
        lengths(tensor<std::int64_t>({7, 9})), key_lengths(tensor<std::int64_t>({21, 13})),
        key_start(tensor<std::int64_t>({2, 0})), query_start(tensor<std::int64_t>({12, 3})) {}
  Tensor q, k, v, bias, sinks, mask, doutput, dlogsumexp, lengths, key_lengths, key_start, query_start;
};

/// The results of one call, filled with what a call must replace.
struct Results {
  explicit Results(Dtype dtype)
      : output(full({batch, heads, rows, width}, 9.0, dtype)), logsumexp(full({batch, heads, rows}, 9.0, Dtype::f32)),
        max(logsumexp.clone()), sum(logsumexp.clone()), dq(full({batch, heads, rows, dim}, 9.0, dtype)),
        dk(full({batch, groups, keys, dim}, 9.0, dtype)), dv(full({batch, groups, keys, width}, 9.0, dtype)),
        dsinks(zeros({heads})), dbias(zeros({heads, keys})) {}
  Tensor output, logsumexp, max, sum, dq, dk, dv, dsinks, dbias;
  void expect_same(const Results& other) const {
    for (Tensor Results::* member : {&Results::output, &Results::logsumexp, &Results::max, &Results::sum, &Results::dq,
                                     &Results::dk, &Results::dv, &Results::dsinks, &Results::dbias})
      EXPECT_TRUE(bits_equal(this->*member, other.*member));
  }
};

/// The same sizes and pointers in a C call and in a plain one.
template <typename Call>
void fill(Call& call, const Data& in, const Results& out) {
  call.batch = batch, call.q_heads = heads, call.k_heads = call.v_heads = groups;
  call.q_rows = rows, call.k_rows = keys, call.dim = dim, call.value_dim = width;
  call.q = in.q.data(), call.k = in.k.data(), call.v = in.v.data();
  call.output = out.output.data(), call.logsumexp = out.logsumexp.data();
  call.max = out.max.data(), call.sum = out.sum.data();
}
template <typename Call>
void fill_backward(Call& call, const Data& in, const Results& out) {
  call.doutput = in.doutput.data(), call.dlogsumexp = in.dlogsumexp.data();
  call.dq = out.dq.data(), call.dk = out.dk.data(), call.dv = out.dv.data();
}

void expect_plain_bits(Dtype dtype, attn_element element, const std::function<void(attn_attention&, const Data&)>& c,
                       const std::function<void(plain::Attention&, const Data&)>& p) {
  const Data in(dtype);
  const Results ours(dtype), expected(dtype);
  attn_attention_backward call;
  ASSERT_EQ(attn_backward_init(&call, sizeof call), ATTN_OK);
  fill(call.forward, in, ours), fill_backward(call, in, ours);
  call.forward.element = element;
  c(call.forward, in);
  plain::AttentionBackward reference;
  fill(reference.forward, in, expected), fill_backward(reference, in, expected);
  reference.forward.element = static_cast<plain::Element>(element);
  p(reference.forward, in);
  if (call.forward.sinks) call.dsinks = ours.dsinks.data(), reference.dsinks = expected.dsinks.data();
  if (call.forward.bias) call.dbias = ours.dbias.data(), reference.dbias = expected.dbias.data();

  EXPECT_EQ(attn_workspace_bytes(&call.forward, nullptr), plain::workspace_bytes(reference.forward));
  std::vector<char> workspace(std::max(plain::workspace_bytes(reference.forward), plain::workspace_bytes(reference)));
  ASSERT_EQ(attn_forward(&call.forward, workspace.data(), workspace.size(), nullptr), ATTN_OK);
  ASSERT_EQ(plain::attention(reference.forward, workspace.data(), workspace.size()), plain::Status::ok);
  EXPECT_EQ(attn_backward_workspace_bytes(&call, nullptr), plain::workspace_bytes(reference));
  const plain::Status status = plain::attention_backward(reference, workspace.data(), workspace.size());
  EXPECT_EQ(attn_backward(&call, workspace.data(), workspace.size(), nullptr), static_cast<attn_status>(status));
  ours.expect_same(expected);
}

TEST(C, HasTheBitsOfThePlainCall) {
  const std::pair<Dtype, attn_element> types[] = {
      {Dtype::f32, ATTN_F32}, {Dtype::bf16, ATTN_BF16}, {Dtype::f16, ATTN_F16}};
  for (const auto& [dtype, element] : types) {
    const auto same = [&, dtype = dtype, element = element](const auto& set) {
      expect_plain_bits(dtype, element, set, set);
    };
    same([](auto&, const Data&) {});
    same([](auto& call, const Data&) { call.causal = true, call.top_left = true, call.scale = 0.4; });
    same([](auto& call, const Data&) { call.window_left = 5, call.window_right = 2, call.bottom_right = true; });
    same([](auto& call, const Data& in) { call.softcap = 3, call.temperature = 2, call.sinks = in.sinks.data(); });
    same([](auto& call, const Data& in) {
      call.mask = static_cast<const std::uint8_t*>(in.mask.data());
      call.mask_strides.row = keys, call.mask_strides.key = 1;
    });
    same([](auto& call, const Data& in) {
      call.bias = in.bias.data(), call.bias_strides.head = keys, call.bias_strides.key = 1;
      call.bias_element = call.element;
    });
    same([](auto& call, const Data& in) {
      call.query_lengths = in.lengths.template data<std::int64_t>();
      call.key_lengths = in.key_lengths.template data<std::int64_t>();
      call.key_start = in.key_start.template data<std::int64_t>();
      call.query_start = in.query_start.template data<std::int64_t>();
      call.causal = true;
    });
    same([](auto& call, const Data&) {  // the rows of heads beside each other
      call.q_strides = {rows * heads * dim, dim, heads * dim};
      call.k_strides = {keys * groups * dim, dim, groups * dim};
      call.v_strides = {keys * groups * width, width, groups * width};
      call.output_strides = {rows * heads * width, width, heads * width};
    });
  }
}

TEST(C, UsesTheCallersThreads) {
  const Data in(Dtype::f32);
  const Results ours(Dtype::f32), expected(Dtype::f32);
  attn_attention call;
  ASSERT_EQ(attn_attention_init(&call, sizeof call), ATTN_OK);
  fill(call, in, ours);
  std::int64_t ran = 0;
  const attn_executor executor = {
      [](void* context, std::int64_t parts, void (*part)(void*, std::int64_t), void* part_context) {
        for (std::int64_t n = 0; n < parts; ++n) part(part_context, n);
        *static_cast<std::int64_t*>(context) += parts;
      },
      &ran, 2};
  std::vector<char> workspace(attn_workspace_bytes(&call, &executor));
  ASSERT_EQ(attn_forward(&call, workspace.data(), workspace.size(), &executor), ATTN_OK);
  EXPECT_GT(ran, 0);
  plain::Attention reference;
  fill(reference, in, expected);
  ASSERT_EQ(plain::attention(reference, workspace.data(), workspace.size()), plain::Status::ok);
  ours.expect_same(expected);
}

TEST(C, SaysWhatIsWrong) {
  attn_attention call;
  EXPECT_EQ(attn_attention_init(nullptr, sizeof call), ATTN_BAD_STRUCT);
  EXPECT_EQ(attn_attention_init(&call, sizeof call - 8), ATTN_BAD_STRUCT);
  ASSERT_EQ(attn_attention_init(&call, sizeof call), ATTN_OK);
  EXPECT_EQ(attn_forward(nullptr, nullptr, 0, nullptr), ATTN_BAD_STRUCT);
  EXPECT_EQ(attn_backward(nullptr, nullptr, 0, nullptr), ATTN_BAD_STRUCT);
  EXPECT_EQ(attn_workspace_bytes(nullptr, nullptr), 0u);
  EXPECT_EQ(attn_backward_workspace_bytes(nullptr, nullptr), 0u);
  call.q_rows = -1;
  EXPECT_EQ(attn_forward(&call, nullptr, 0, nullptr), ATTN_NEGATIVE_SIZE);
  call.q_rows = 0, call.q_heads = 3, call.k_heads = 2;
  EXPECT_EQ(attn_forward(&call, nullptr, 0, nullptr), ATTN_HEADS_DO_NOT_DIVIDE);
  call.k_heads = 1;
  for (const attn_element wrong : {-1, 4, 256, 259}) {
    call.element = wrong;
    EXPECT_EQ(attn_forward(&call, nullptr, 0, nullptr), ATTN_BAD_ELEMENT) << wrong;
  }
  call.element = ATTN_F32, call.struct_size = 3;
  EXPECT_EQ(attn_forward(&call, nullptr, 0, nullptr), ATTN_BAD_STRUCT);
  for (attn_status status = -2; status < 20; ++status) EXPECT_NE(attn_status_text(status), nullptr);
  EXPECT_STREQ(attn_status_text(ATTN_HEADS_DO_NOT_DIVIDE), plain::text_of(plain::Status::heads_do_not_divide));
  EXPECT_EQ(attn_version(), version());
}

}  // namespace
}  // namespace attn::testing
