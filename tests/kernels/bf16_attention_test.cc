// tests/kernels/bf16_attention_test.cc: bf16 attention of this processor's targets against plain loops in the order of
// docs/numerics.md section 3.8.
#define ATTN_REF_NAMESPACE ref_of_bf16_attention_test
#include "kernels/element.h"
#include "kernels/attention/dispatch.h"
#include "kernels/ref/bf16_pairs.h"
#include "runtime/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace attn::kernels::ref_of_bf16_attention_test {
namespace {

using Rows = std::vector<std::vector<float>>;

float flushed(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }
float step(float x, float y, float sum) { return flushed(std::fma(flushed(x), flushed(y), flushed(sum))); }

/// sum of x(i) y(i) from `begin` on; by tiles: units of 32, even and odd items apart.
template <typename X, typename Y>
float dot(bool tiles, std::int64_t begin, std::int64_t end, const X& x, const Y& y) {
  float sum = 0;
  const auto product = [&](std::int64_t i, float a) { return i < end ? step(x(i), y(i), a) : a; };
  if (!tiles) {
    for (std::int64_t i = begin; i < end; i += 2) sum = product(i, product(i + 1, sum));
    return sum;
  }
  for (std::int64_t unit = begin; unit < end; unit += 32) {
    float even = 0, odd = 0;
    for (std::int64_t i = unit; i < unit + 32; i += 2) {
      even = product(i, even);
      odd = product(i + 1, odd);
    }
    sum = flushed(sum + flushed(even + odd));
  }
  return sum;
}

struct Attended {
  float maximum, sum;  // as they are saved for the backward pass
  std::vector<std::uint16_t> out;
};

/// Keys and values; of 8 bits: whole numbers, and a scale a row.
struct Keys {
  Rows k, v;
  std::vector<float> k_scale, v_scale;
};

/// One row over the keys that it sees, first ... last - 1, in blocks of 256 and spans of 1,024.
Attended attend(bool tiles, const std::vector<float>& q, const Keys& keys, float scale, std::int64_t first,
                std::int64_t last) {
  const auto& [k, v, k_scale, v_scale] = keys;
  const auto columns = v[0].size();
  float m_all = -infinity<float>(), l_all = 0;
  std::vector<float> o_all(columns, 0.0f);
  bool any = false;
  for (std::int64_t span = 0; span < last; span += 1024) {
    float m = -infinity<float>(), l = 0;
    std::vector<float> o(columns, 0.0f);
    bool fresh = true;
    for (std::int64_t block = span; block < std::min<std::int64_t>(span + 1024, last); block += 256) {
      const std::int64_t begin = std::max(block, first), end = std::min(block + 256, last);
      if (begin >= end) continue;
      std::vector<float> s(256, -infinity<float>()), p(256, 0.0f);
      float maximum = m;
      for (std::int64_t j = begin; j < end; ++j) {
        const auto& key = k[static_cast<std::size_t>(j)];
        const auto at = [](const std::vector<float>& row) {
          return [&row](std::int64_t d) { return row[static_cast<std::size_t>(d)]; };
        };
        float product = dot(tiles, 0, static_cast<std::int64_t>(q.size()), at(key), at(q));
        if (!k_scale.empty()) product *= k_scale[static_cast<std::size_t>(j)];
        s[static_cast<std::size_t>(j - block)] = product * scale;
        maximum = std::max(maximum, s[static_cast<std::size_t>(j - block)]);
      }
      const float alpha = fresh ? 0 : exp2((m - maximum) * Constants<float>::log2e);
      float sum = 0;
      for (std::size_t j = 0; j < 256; j += 2) {
        float weight[2] = {0, 0};
        for (const std::size_t n : {j, j + 1}) {
          if (s[n] == -infinity<float>()) continue;
          weight[n - j] = bf16_weight(s[n], maximum);
          p[n] = rounded_to_bf16(weight[n - j]);
        }
        sum = (sum + p[j + 1]) + p[j];
        for (const std::size_t n : {j, j + 1})
          if (!v_scale.empty() && p[n] != 0)
            p[n] = rounded_to_bf16(weight[n - j] * v_scale[static_cast<std::size_t>(block) + n]);
      }
      l = std::fma(l, alpha, sum);
      for (std::size_t c = 0; c < columns; ++c) {
        const float add = dot(
            tiles, 0, 256, [&](std::int64_t j) { return p[static_cast<std::size_t>(j)]; },
            [&](std::int64_t j) {
              return block + j < static_cast<std::int64_t>(v.size()) ? v[static_cast<std::size_t>(block + j)][c] : 0.0f;
            });
        o[c] = fresh ? add : std::fma(o[c], alpha, add);
      }
      m = maximum;
      fresh = false;
    }
    if (fresh) continue;
    if (!any) {
      m_all = m, l_all = l, o_all = o, any = true;
      continue;
    }
    const float maximum = std::max(m_all, m), a = exp2((m_all - maximum) * Constants<float>::log2e),
                b = exp2((m - maximum) * Constants<float>::log2e);
    m_all = maximum;
    l_all = std::fma(l_all, a, l * b);
    for (std::size_t c = 0; c < columns; ++c) o_all[c] = std::fma(o_all[c], a, o[c] * b);
  }
  Attended result{m_all, l_all, {}};
  for (const float o : o_all) result.out.push_back(bf16_of_f32(std::fma(o, 1 / l_all, 0.0f)));
  return result;
}

struct Shape {
  // left: keys before its own that a row sees, under a causal mask; -1: no mask
  std::int64_t q_rows, k_rows, dim, value_dim, left;
};

/// Rows of numbers as kernels read them: in the form that `rows` names, in whole groups, `piece` elements at a time
/// (KvRows).
std::vector<std::int8_t> in_groups(const Rows& values, KvRows rows) {
  constexpr std::int64_t group = KvRows::group_rows;
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::int8_t> numbers(static_cast<std::size_t>((count + group - 1) / group * group * rows.row_stride), 99);
  for (std::int64_t j = 0; j < count; ++j)
    for (std::int64_t d = 0; d < rows.row_stride; ++d) {
      const auto number = static_cast<std::int8_t>(values[static_cast<std::size_t>(j)][static_cast<std::size_t>(d)]);
      numbers[static_cast<std::size_t>(rows.offset(j) + rows.element_offset(j, d))] =
          rows.element == Element::sign_magnitude8 ? other_form(number) : number;
    }
  return numbers;
}

struct Aligned {
  void* data;
  explicit Aligned(std::size_t bytes) : data(::operator new(bytes, std::align_val_t{64})) {}
  ~Aligned() { ::operator delete(data, std::align_val_t{64}); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
};

class Bf16Attention : public ::testing::TestWithParam<std::string> {};

void has_the_order(const std::string& name, Element stored) {
  const bool bytes = is_int8(stored);
  const AttentionTarget& target = *attention_target(name.c_str());
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto draw_bytes = [&](std::int64_t rows, std::int64_t columns, std::vector<float>& scales) {
    Rows values;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<float> row;
      for (std::int64_t c = 0; c < columns; ++c)
        row.push_back(static_cast<float>(static_cast<int>(random() % 255) - 127));
      values.push_back(row);
      scales.push_back(0.002F * static_cast<float>(1 + random() % 1000) / 100);
    }
    // of rows that are not there
    while (scales.size() % KvRows::group_rows != 0) scales.push_back(std::numeric_limits<float>::quiet_NaN());
    return values;
  };
  const auto draw = [&](std::int64_t rows, std::int64_t columns, std::vector<std::uint16_t>& words) {
    Rows values;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<float> row;
      for (std::int64_t c = 0; c < columns; ++c) {
        words.push_back(bf16_of_f32(normal(random)));
        row.push_back(bf16_to_f32(words.back()));
      }
      values.push_back(row);
    }
    return values;
  };
  for (const Shape& shape :
       {Shape{70, 300, 64, 64, -1}, Shape{64, 256, 80, 48, -1}, Shape{3, 1300, 128, 128, -1}, Shape{1, 45, 33, 7, -1},
        Shape{130, 130, 24, 100, 1000}, Shape{300, 300, 40, 17, 50}, Shape{9, 2100, 65, 33, -1},
        Shape{8, 8, 1, 1, 1000}, Shape{1, 1301, 128, 128, -1}, Shape{4, 523, 64, 80, 300}, Shape{7, 301, 16, 208, 290},
        Shape{5, 77, 48, 64, -1}, Shape{3, 90, 20, 120, -1}, Shape{1, 200, 100, 83, 50}, Shape{2, 1100, 36, 40, -1}}) {
    const std::string what = "Tq=" + std::to_string(shape.q_rows) + " Tk=" + std::to_string(shape.k_rows) +
                             " D=" + std::to_string(shape.dim) + " Dv=" + std::to_string(shape.value_dim);
    std::vector<std::uint16_t> q, k, v, out(static_cast<std::size_t>(shape.q_rows * shape.value_dim));
    std::vector<std::int8_t> k_numbers, v_numbers;
    const Rows q_rows = draw(shape.q_rows, shape.dim, q);
    Keys keys;
    keys.k = bytes ? draw_bytes(shape.k_rows, shape.dim, keys.k_scale) : draw(shape.k_rows, shape.dim, k);
    keys.v = bytes ? draw_bytes(shape.k_rows, shape.value_dim, keys.v_scale) : draw(shape.k_rows, shape.value_dim, v);
    AttentionProblem p;
    p.batch = p.q_heads = p.k_heads = p.v_heads = 1;
    p.q_rows = shape.q_rows;
    p.k_rows = shape.k_rows;
    p.dim = shape.dim;
    p.value_dim = shape.value_dim;
    p.element = Element::bf16;
    std::vector<float> maximum(static_cast<std::size_t>(shape.q_rows)), sum(maximum);
    p.max = maximum.data();
    p.sum = sum.data();
    p.q = q.data();
    p.out = out.data();
    p.k.base = k.data();
    p.v.base = v.data();
    p.k.element = p.v.element = stored;
    p.k.row_stride = shape.dim;
    p.v.row_stride = shape.value_dim;
    if (bytes) {
      p.k.interleave_width = KvRows::k_interleave_width;
      p.v.interleave_width = KvRows::line;
      k_numbers = in_groups(keys.k, p.k);
      v_numbers = in_groups(keys.v, p.v);
      p.k.base = k_numbers.data();
      p.v.base = v_numbers.data();
      p.k.scales = keys.k_scale.data();
      p.v.scales = keys.v_scale.data();
      p.k.scale_stride = p.v.scale_stride = 1;
      p.k.scale_group = static_cast<int>(shape.dim);
      p.v.scale_group = static_cast<int>(shape.value_dim);
    }
    p.q_stride[2] = shape.dim;
    p.out_stride[2] = shape.value_dim;
    p.scale = 1 / std::sqrt(static_cast<double>(shape.dim));
    MaskNode window;
    window.op = MaskOp::window;
    window.left = shape.left;
    window.right = 0;
    if (shape.left >= 0) p.mask = {&window, 1};
    const ForwardKernel& kernel = target.bf16;
    const Aligned scratch(kernel.scratch_bytes(p));
    for (const bool split : {false, true}) {  // whole strips, or their spans and then what those left
      std::fill(out.begin(), out.end(), std::uint16_t{0xFFFF});
      for (std::int64_t row = 0; row < shape.q_rows; row += kernel.rows) {
        const Task map{0, 0, 1, row, std::min<std::int64_t>(kernel.rows, shape.q_rows - row)};
        if (!split) {
          EXPECT_TRUE(kernel.attend(p, map, scratch.data));
          continue;
        }
        const std::int64_t splits = (shape.k_rows + 1023) / 1024;
        const Aligned partials(static_cast<std::size_t>(splits) * kernel.partial_bytes(p, map));
        kernel.attend_splits(p, map, 0, splits, partials.data, scratch.data);
        EXPECT_TRUE(kernel.attend_merge(p, map, partials.data, splits, scratch.data));
      }
      for (std::int64_t i = 0; i < shape.q_rows; ++i) {
        const std::string place = what + (split ? " by spans" : "") + " row " + std::to_string(i);
        const std::int64_t first = shape.left < 0 ? 0 : std::max<std::int64_t>(0, i - shape.left),
                           last = shape.left < 0 ? shape.k_rows : i + 1;
        const Attended expected =
            attend(name == "amx", q_rows[static_cast<std::size_t>(i)], keys, static_cast<float>(p.scale), first, last);
        ASSERT_EQ(maximum[static_cast<std::size_t>(i)], expected.maximum) << place;
        ASSERT_EQ(sum[static_cast<std::size_t>(i)], expected.sum) << place;
        for (std::int64_t c = 0; c < shape.value_dim; ++c)
          ASSERT_EQ(out[static_cast<std::size_t>(i * shape.value_dim + c)], expected.out[static_cast<std::size_t>(c)])
              << place << " column " << c;
      }
    }
  }
}

TEST_P(Bf16Attention, HasTheOrderOfItsTarget) { has_the_order(GetParam(), Element::bf16); }
TEST_P(Bf16Attention, MultipliesNumbersOfEightBitsByTheirScalesAfterwards) {
  has_the_order(GetParam(), Element::sign_magnitude8);
  has_the_order(GetParam(), Element::i8);
}

/// What registers multiply is kept as they look it up, and nothing else: the other form would be turned into it for
/// each call.
TEST(Bf16Bytes, AreKeptInTheFormThatFewRowsRead) {
  const AttentionTarget* const target = attention_target("avx512");
  if (target == nullptr || !runtime::cpu().avx512_bf16) GTEST_SKIP() << "no product of bf16";
  const auto form = target->bf16.int8_form;
  ASSERT_NE(form, nullptr);
  Element looked_up = Element::i8;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vbmi") != 0) looked_up = Element::sign_magnitude8;
#endif
  EXPECT_EQ(form(64, 64, 64), looked_up);
  EXPECT_EQ(form(128, 80, 128), looked_up);
  EXPECT_EQ(form(64, 128, 64), Element::i8);  // two scales a row of values
  EXPECT_EQ(form(33, 64, 64), Element::i8);
  EXPECT_EQ(form(64, 72, 72), Element::i8);
  EXPECT_EQ(target->f32.int8_form, nullptr);
  EXPECT_EQ(attention_target("amx")->bf16.int8_form, nullptr);
}

/// Tile registers leave a row's columns in whole vectors from the first on. What merges that needs no tile: it runs
/// wherever bf16 has a product.
TEST(Bf16Tiles, SpansOverBytesAreMergedColumnByColumn) {
  const AttentionTarget* const target = attention_target("amx");
  if (target == nullptr || !runtime::cpu().avx512_bf16) GTEST_SKIP() << "no product of bf16";
  for (const std::int64_t width : {40, 64, 83, 120}) {
    AttentionProblem p;
    p.batch = p.q_heads = p.k_heads = p.v_heads = p.q_rows = 1;
    p.k_rows = 1100;
    p.dim = 64;
    p.value_dim = width;
    p.element = Element::bf16;
    const std::vector<std::int8_t> bytes(static_cast<std::size_t>(1104 * 128));
    const std::vector<float> scales(1104, 1);
    for (KvRows* rows : {&p.k, &p.v}) {
      rows->base = bytes.data();
      rows->scales = scales.data();
      rows->element = Element::i8;
      rows->row_stride = rows == &p.k ? p.dim : width;
      rows->interleave_width = rows == &p.k ? KvRows::k_interleave_width : KvRows::line;
      rows->scale_stride = 1;
      rows->scale_group = static_cast<int>(rows->row_stride);
    }
    std::vector<std::uint16_t> out(static_cast<std::size_t>(width));
    p.out = out.data();
    p.out_stride[2] = width;
    const ForwardKernel& kernel = target->bf16;
    const Task map{0, 0, 1, 0, 1};
    constexpr int splits = 2, lanes_of_sums = 16;
    const std::size_t of_split = kernel.partial_bytes(p, map);
    const Aligned partials(splits * of_split), scratch(kernel.scratch_bytes(p));
    for (int span = 0; span < splits; ++span) {
      auto* const partial =
          reinterpret_cast<float*>(static_cast<char*>(partials.data) + static_cast<std::size_t>(span) * of_split);
      std::fill(partial, partial + of_split / sizeof(float), 0.0F);
      partial[lanes_of_sums] = 1;  // each key weighs the same
      for (std::int64_t c = 0; c < width; ++c) partial[2 * lanes_of_sums + c] = static_cast<float>(c);
    }
    ASSERT_TRUE(kernel.attend_merge(p, map, partials.data, splits, scratch.data));
    for (std::int64_t c = 0; c < width; ++c)
      EXPECT_EQ(bf16_to_f32(out[static_cast<std::size_t>(c)]), static_cast<float>(c)) << "Dv=" << width;
  }
}

/// Targets that multiply bf16 themselves.
std::vector<std::string> bf16_targets() {
  std::vector<std::string> names;
  for (const std::string& name : runtime::targets())
    if (const AttentionTarget* target = attention_target(name.c_str());
        target != nullptr && target->bf16.rows > 0 && runtime::cpu().avx512_bf16)
      names.push_back(name);
  return names;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bf16Attention);
INSTANTIATE_TEST_SUITE_P(Targets, Bf16Attention, ::testing::ValuesIn(bf16_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace attn::kernels::ref_of_bf16_attention_test
