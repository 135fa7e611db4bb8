// tests/attention/plain_pieces_test.cc: plain calls whose keys or rows come in pieces have the bits of one call.
#include <attn/ops.h>
#include <attn/plain.h>

#include "attention/inputs.h"
#include "runtime/cpu.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <limits>

namespace attn::testing {
namespace {

using plain::Status;

plain::Element element_of(Dtype dtype) {
  return dtype == Dtype::f64    ? plain::Element::f64
         : dtype == Dtype::bf16 ? plain::Element::bf16
         : dtype == Dtype::f16  ? plain::Element::f16
                                : plain::Element::f32;
}

struct Sizes {
  std::int64_t rows, keys, heads = 2, k_heads = 2, v_heads = 2, dim = 20, width = 12;
};

/// Tensors of a call, and what the whole call makes of them.
struct Case {
  static constexpr std::int64_t batch = 2;
  Dtype dtype, computed;
  Sizes s;
  Tensor q, k, v, doutput, sinks, bias;
  std::vector<std::uint8_t> mask;
  Tensor output, logsumexp, max, sum, dq, dk, dv, dsinks;
  std::vector<std::int64_t> key_lengths;
  plain::Attention options;  // without sizes and pointers to tensors
  bool with_bias = false, with_mask = false;

  Case(Dtype type, const Sizes& sizes)
      : dtype(type), computed(type == Dtype::f64 ? Dtype::f64 : Dtype::f32), s(sizes),
        q(normal({batch, s.heads, s.rows, s.dim}, 1, dtype)), k(normal({batch, s.k_heads, s.keys, s.dim}, 2, dtype)),
        v(normal({batch, s.v_heads, s.keys, s.width}, 3, dtype)),
        doutput(normal({batch, s.heads, s.rows, s.width}, 4, dtype)), sinks(normal({s.heads}, 5, computed)),
        bias(normal({s.heads, s.rows, s.keys}, 6, computed)), mask(static_cast<std::size_t>(s.rows * s.keys)) {
    for (std::size_t n = 0; n < mask.size(); ++n) mask[n] = n * 2654435761U >> 7 & 1U;
  }
  Tensor rows_like(std::int64_t width, Dtype type) const {
    return full(width == 0 ? Dims{batch, s.heads, s.rows} : Dims{batch, s.heads, s.rows, width}, 9, type);
  }

  plain::Attention call() const {
    plain::Attention c = options;
    c.batch = batch, c.q_heads = s.heads, c.k_heads = s.k_heads, c.v_heads = s.v_heads;
    c.q_rows = s.rows, c.k_rows = s.keys, c.dim = s.dim, c.value_dim = s.width, c.element = element_of(dtype);
    c.q = q.data(), c.k = k.data(), c.v = v.data();
    if (with_bias) {
      c.bias = bias.data(), c.bias_element = element_of(computed);
      c.bias_strides = {0, s.rows * s.keys, s.keys, 1};
    }
    if (with_mask) c.mask = mask.data(), c.mask_strides = {0, 0, s.keys, 1};
    if (!key_lengths.empty()) c.key_lengths = key_lengths.data();
    return c;
  }
  void forward_results(plain::Attention& c, Tensor& out, Tensor& lse, Tensor& m, Tensor& l) const {
    out = rows_like(s.width, dtype), lse = rows_like(0, computed), m = rows_like(0, computed),
    l = rows_like(0, computed);
    c.output = out.data(), c.logsumexp = lse.data(), c.max = m.data(), c.sum = l.data();
  }
};

template <typename Call>
Status run(const Call& call) {
  std::vector<char> workspace(plain::workspace_bytes(call) + 1);
  if constexpr (requires { call.forward; })
    return plain::attention_backward(call, workspace.data() + 1, workspace.size() - 1);
  else return plain::attention(call, workspace.data() + 1, workspace.size() - 1);
}

/// A call with the keys from `begin` to before `end` of c. `lengths` keeps its key lengths.
plain::Attention keys_of(const Case& c, plain::Attention call, std::int64_t begin, std::int64_t end,
                         std::vector<std::int64_t>& lengths) {
  const auto at = [&](const Tensor& x, std::int64_t element) {
    return static_cast<const char*>(x.data()) + element * static_cast<std::int64_t>(size_of(x.dtype()));
  };
  call.k_strides = {c.s.k_heads * c.s.keys * c.s.dim, c.s.keys * c.s.dim, c.s.dim};
  call.v_strides = {c.s.v_heads * c.s.keys * c.s.width, c.s.keys * c.s.width, c.s.width};
  call.k = begin < end ? at(c.k, begin * c.s.dim) : nullptr;
  call.v = begin < end ? at(c.v, begin * c.s.width) : nullptr;
  call.k_rows = end - begin, call.first_key = begin;
  if (c.with_bias) call.bias = at(c.bias, begin);
  if (c.with_mask) call.mask += begin;
  lengths.clear();
  for (const std::int64_t n : c.key_lengths) lengths.push_back(std::clamp<std::int64_t>(n - begin, 0, end - begin));
  if (!lengths.empty()) call.key_lengths = lengths.data();
  return call;
}

using Cuts = std::vector<std::int64_t>;  // where pieces begin, and the end

void expect_forward_in_pieces(Case& c, const Cuts& cuts) {
  plain::Attention call = c.call();
  Tensor out, lse, m, l;
  c.forward_results(call, out, lse, m, l);
  const Tensor totals[] = {c.rows_like(0, c.computed), c.rows_like(0, c.computed), c.rows_like(c.s.width, c.computed)};
  call.totals = {totals[0].data(), totals[1].data(), totals[2].data()};
  std::vector<std::int64_t> lengths;
  for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
    plain::Attention piece = keys_of(c, call, cuts[n], cuts[n + 1], lengths);
    piece.begins = n == 0, piece.ends = n + 2 == cuts.size();
    if (!piece.ends) piece.logsumexp = nullptr;
    ASSERT_EQ(run(piece), Status::ok);
  }
  EXPECT_TRUE(bits_equal(out, c.output));
  EXPECT_TRUE(bits_equal(lse, c.logsumexp));
  EXPECT_TRUE(bits_equal(m, c.max));
  EXPECT_TRUE(bits_equal(l, c.sum));
}

plain::AttentionBackward backward_of(const Case& c) {
  plain::AttentionBackward call;
  call.forward = c.call();
  call.forward.output = c.output.data(), call.forward.max = c.max.data(), call.forward.sum = c.sum.data();
  call.doutput = c.doutput.data();
  return call;
}

void make_whole(Case& c) {
  plain::Attention call = c.call();
  c.forward_results(call, c.output, c.logsumexp, c.max, c.sum);
  ASSERT_EQ(run(call), Status::ok);
  if (c.dtype == Dtype::f16 || (c.dtype == Dtype::bf16 && !runtime::cpu().avx512_bf16)) return;
  plain::AttentionBackward back = backward_of(c);
  c.dq = full(c.q.sizes(), 9, c.dtype), c.dk = full(c.k.sizes(), 9, c.dtype), c.dv = full(c.v.sizes(), 9, c.dtype);
  c.dsinks = full({c.s.heads}, 9, c.computed);
  back.dq = c.dq.data(), back.dk = c.dk.data(), back.dv = c.dv.data();
  if (c.options.sinks != nullptr) back.dsinks = c.dsinks.data();
  ASSERT_EQ(run(back), Status::ok);
}

/// Both passes of the backward pass. `rows`: where the pieces of rows begin, for the keys.
void expect_backward_in_pieces(const Case& c, const Cuts& cuts, const Cuts& rows) {
  plain::AttentionBackward back = backward_of(c);
  const Tensor dq = full(c.q.sizes(), 9, c.dtype), totals = full(c.q.sizes(), 9, c.computed),
               delta = c.rows_like(0, c.computed), dsinks = full({c.s.heads}, 9, c.computed);
  back.dq = dq.data(), back.dq_totals = totals.data(), back.delta = delta.data();
  if (c.options.sinks != nullptr) back.dsinks = dsinks.data();
  std::vector<std::int64_t> lengths;
  for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
    plain::AttentionBackward piece = back;
    piece.forward = keys_of(c, back.forward, cuts[n], cuts[n + 1], lengths);
    piece.forward.begins = n == 0, piece.forward.ends = n + 2 == cuts.size();
    ASSERT_EQ(run(piece), Status::ok);
  }
  EXPECT_TRUE(bits_equal(dq, c.dq));
  EXPECT_TRUE(bits_equal(dsinks, c.dsinks));

  // the keys: all rows at once, of all heads, for each piece of keys
  const Tensor dk = full(c.k.sizes(), 9, c.dtype), dv = full(c.v.sizes(), 9, c.dtype);
  const auto at = [](const Tensor& x, std::int64_t element) {
    return static_cast<char*>(x.data()) + element * static_cast<std::int64_t>(size_of(x.dtype()));
  };
  for (std::size_t n = 0; n + 1 < cuts.size() && c.s.keys > 0; ++n) {
    if (cuts[n] == cuts[n + 1]) continue;
    plain::AttentionBackward piece = backward_of(c);
    piece.forward = keys_of(c, piece.forward, cuts[n], cuts[n + 1], lengths);
    piece.delta = delta.data();
    piece.dk = at(dk, cuts[n] * c.s.dim), piece.dv = at(dv, cuts[n] * c.s.width);
    piece.dk_strides = piece.forward.k_strides, piece.dv_strides = piece.forward.v_strides;
    std::vector<char> kept(plain::key_totals_bytes(piece) +
                           1);  // in f32 and f64 a pointer to no bytes, as malloc(0) gives
    piece.key_totals = kept.data();
    ASSERT_EQ(run(piece), Status::ok);
  }
  EXPECT_TRUE(bits_equal(dk, c.dk));
  EXPECT_TRUE(bits_equal(dv, c.dv));

  // rows in pieces, head by head of each group
  if (c.s.k_heads != c.s.v_heads || c.with_bias || c.with_mask) return;
  const std::int64_t groups = c.s.k_heads, each = c.s.heads / groups;
  std::vector<char> kept;
  const Tensor rk = full(c.k.sizes(), 9, c.dtype), rv = full(c.v.sizes(), 9, c.dtype);
  for (std::int64_t h = 0; h < each; ++h)
    for (std::size_t n = 0; n + 1 < rows.size(); ++n) {
      const auto part = [&](const Tensor& x) {
        Dims sizes = x.sizes();
        const Tensor apart = x.reshape(x.dim() == 4 ? Dims{Case::batch, groups, each, c.s.rows, sizes[3]}
                                                    : Dims{Case::batch, groups, each, c.s.rows});
        return apart.select(2, h).narrow(2, rows[n], rows[n + 1] - rows[n]).contiguous();
      };
      const Tensor q = part(c.q), out = part(c.output), dout = part(c.doutput), m = part(c.max), l = part(c.sum),
                   d = part(delta);
      std::vector<std::int64_t> start(Case::batch, rows[n]);
      if (c.options.query_start != nullptr)
        for (std::size_t b = 0; b < start.size(); ++b) start[b] += c.options.query_start[b];
      plain::AttentionBackward piece = backward_of(c);
      plain::Attention& f = piece.forward;
      f.q_heads = groups, f.q_rows = rows[n + 1] - rows[n], f.query_start = start.data(), f.top_left = false;
      f.q = q.data(), f.output = nullptr, f.max = m.data(), f.sum = l.data(), f.sinks = nullptr;
      f.begins = h == 0 && n == 0, f.ends = h + 1 == each && n + 2 == rows.size();
      piece.doutput = dout.data(), piece.delta = d.data(), piece.dk = rk.data(), piece.dv = rv.data();
      if (kept.empty()) kept.resize(plain::key_totals_bytes(piece) + 1);
      if (kept.size() > 1) piece.key_totals = kept.data() + 1;
      ASSERT_EQ(run(piece), Status::ok);
    }
  EXPECT_TRUE(bits_equal(rk, c.dk));
  EXPECT_TRUE(bits_equal(rv, c.dv));
}

void expect_pieces(Case& c) {
  make_whole(c);
  std::vector<Cuts> all{{0, c.s.keys}};
  for (std::int64_t span = 1024; span < c.s.keys; span += 1024) all.push_back({0, span, c.s.keys});
  if (c.s.keys > 2048) all.push_back({0, 1024, 2048, c.s.keys});
  if (c.s.keys % 1024 == 0) all.push_back({0, c.s.keys, c.s.keys});  // the last piece has no keys
  const Cuts rows = c.s.rows > 128 ? Cuts{0, 64, 128, c.s.rows} : Cuts{0, c.s.rows};
  for (const Cuts& cuts : all) {
    SCOPED_TRACE(::testing::PrintToString(cuts));
    expect_forward_in_pieces(c, cuts);
    if (c.dq.defined()) expect_backward_in_pieces(c, cuts, rows);
  }
}

const std::pair<const char*, std::function<void(Case&)>> variants[] = {
    {"full", [](Case&) {}},
    {"causal, sinks", [](Case& c) { c.options.causal = c.options.top_left = true, c.options.sinks = c.sinks.data(); }},
    {"window",
     [](Case& c) {
       static const std::int64_t start[] = {1500, 40};
       c.options.window_left = 700, c.options.window_right = 20, c.options.query_start = start;
     }},
    {"bias, softcap",
     [](Case& c) {
       c.with_bias = true, c.options.softcap = 3, c.options.scale = 0.3, c.options.sinks = c.sinks.data();
     }},
    {"mask, temperature", [](Case& c) { c.with_mask = true, c.options.temperature = 1.7; }},
    {"lengths", [](Case& c) { c.key_lengths = {c.s.keys, c.s.keys / 3}; }},
};

void expect_all_variants(Dtype dtype, const Sizes& sizes) {
  for (const auto& [name, change] : variants) {
    SCOPED_TRACE(name);
    Case c(dtype, sizes);
    change(c);
    expect_pieces(c);
  }
}

TEST(PlainPieces, KeysAndRowsInPiecesHaveTheBitsOfOneCall) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    SCOPED_TRACE(name_of(dtype));
    expect_all_variants(dtype, {.rows = 150, .keys = 3000});
    expect_all_variants(dtype, {.rows = 5, .keys = 2048, .heads = 4, .k_heads = 2, .v_heads = 1, .width = 40});
  }
}

TEST(LongPlainPieces, OfAllSizes) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const std::int64_t keys : {1, 63, 64, 1023, 1024, 1025, 4096, 5000})
      for (const std::int64_t rows : {1, 8, 9, 64, 65, 400})
        for (const std::int64_t group : {1, 2, 4}) {
          SCOPED_TRACE(::testing::Message() << name_of(dtype) << " " << rows << " x " << keys << ", " << group);
          expect_all_variants(dtype, {.rows = rows,
                                      .keys = keys,
                                      .heads = 4,
                                      .k_heads = 4 / group,
                                      .v_heads = 4 / group,
                                      .dim = 33,
                                      .width = 64});
        }
}

TEST(PlainPieces, NumbersThatAreNotFiniteStayWhereTheyAre) {
  constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    Case c(dtype, {.rows = 150, .keys = 2100, .heads = 4, .k_heads = 2, .v_heads = 2});
    c.options.causal = c.options.top_left = true;
    for (const std::int64_t key : {30, 140, 149, 1500, 2099}) {  // of some rows, of the last row, of none
      c.k.narrow(2, key, 1).narrow(1, 0, 1).fill_(key == 140 ? nan : infinity);
      c.v.narrow(2, key, 1).narrow(1, 1, 1).fill_(key == 30 ? infinity : nan);
    }
    expect_pieces(c);
    Case rows(dtype, {.rows = 150, .keys = 2100});
    rows.options.causal = rows.options.top_left = true;
    rows.q.narrow(2, 70, 1).fill_(infinity);
    rows.doutput.narrow(2, 100, 1).fill_(nan);
    expect_pieces(rows);
  }
}

TEST(PlainPieces, BlocksOfRowsThatAreApart) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    Case c(dtype, {.rows = 330, .keys = 1100});
    c.options.window_left = 90, c.options.window_right = 0, c.options.top_left = true;
    make_whole(c);
    for (std::int64_t first = 0; first < 3; ++first) {
      std::vector<Tensor> q, expected;
      for (std::int64_t row = 64 * first; row < c.s.rows; row += 192) {
        q.push_back(c.q.narrow(2, row, std::min<std::int64_t>(64, c.s.rows - row)));
        expected.push_back(c.output.narrow(2, row, std::min<std::int64_t>(64, c.s.rows - row)));
      }
      const Tensor own = cat(q, 2).contiguous(), rows = cat(expected, 2).contiguous();
      const Tensor out = full(rows.sizes(), 9, dtype);
      const std::vector<std::int64_t> start(Case::batch, 64 * first);
      plain::Attention call = c.call();
      call.q = own.data(), call.q_rows = own.size(2), call.output = out.data();
      call.query_start = start.data(), call.top_left = false, call.row_block_step = 192;
      ASSERT_EQ(run(call), Status::ok);
      EXPECT_TRUE(bits_equal(out, rows)) << name_of(dtype) << " " << first;
    }
  }
}

TEST(PlainPieces, MistakesHaveAStatus) {
  Case c(Dtype::f32, {.rows = 70, .keys = 2048});
  make_whole(c);
  plain::Attention call = c.call();
  Tensor out, lse, m, l;
  c.forward_results(call, out, lse, m, l);
  const Tensor total = c.rows_like(c.s.width, Dtype::f32);
  const auto status = [&](const std::function<void(plain::Attention&)>& change) {
    plain::Attention changed = call;
    changed.totals = {lse.data(), m.data(), total.data()};
    changed.ends = false;
    change(changed);
    return run(changed);
  };
  EXPECT_EQ(status([](plain::Attention&) {}), Status::ok);
  EXPECT_EQ(status([](plain::Attention& a) { a.totals.sum = nullptr; }), Status::totals_left_out);
  EXPECT_EQ(status([](plain::Attention& a) { a.totals = {}; }), Status::totals_left_out);
  EXPECT_EQ(status([](plain::Attention& a) { a.ends = true, a.totals.max = nullptr; }), Status::totals_left_out);
  EXPECT_EQ(status([](plain::Attention& a) { a.k_rows = 2000; }), Status::piece);
  EXPECT_EQ(status([](plain::Attention& a) { a.begins = false, a.first_key = 1000; }), Status::piece);
  EXPECT_EQ(status([](plain::Attention& a) { a.first_key = 1024; }), Status::piece);
  EXPECT_EQ(status([](plain::Attention& a) { a.begins = false, a.first_key = -1024; }), Status::piece);
  EXPECT_EQ(status([](plain::Attention& a) { a.row_block_step = 100; }), Status::piece);
  EXPECT_EQ(status([](plain::Attention& a) { a.row_block_step = 0; }), Status::piece);
  EXPECT_EQ(status([](plain::Attention& a) { a.q_rows = std::int64_t{1} << 40, a.row_block_step = 1 << 20; }),
            Status::piece);
  EXPECT_EQ(status([](plain::Attention& a) { a.causal = a.bottom_right = true; }), Status::piece);
  EXPECT_EQ(status([](plain::Attention& a) { a.causal = true; }), Status::alignment);
  const std::int64_t start[] = {0, 1};
  EXPECT_EQ(status([&](plain::Attention& a) { a.key_start = start; }), Status::piece);

  plain::AttentionBackward back = backward_of(c);
  const Tensor delta = c.rows_like(0, Dtype::f32), dq = full(c.q.sizes(), 9, Dtype::f32), dk = full(c.k.sizes(), 9);
  const auto back_status = [&](const std::function<void(plain::AttentionBackward&)>& change) {
    plain::AttentionBackward changed = back;
    changed.dq = dq.data(), changed.dq_totals = dq.data(), changed.delta = delta.data();
    changed.forward.ends = false;
    change(changed);
    return run(changed);
  };
  EXPECT_EQ(back_status([](plain::AttentionBackward&) {}), Status::ok);
  EXPECT_EQ(back_status([](plain::AttentionBackward& b) { b.dq_totals = nullptr; }), Status::totals_left_out);
  EXPECT_EQ(back_status([](plain::AttentionBackward& b) { b.delta = nullptr; }), Status::totals_left_out);
  EXPECT_EQ(back_status([&](plain::AttentionBackward& b) { b.dk = dk.data(); }), Status::piece);
  EXPECT_EQ(back_status([&](plain::AttentionBackward& b) { b.dq = nullptr; }), Status::piece);
  EXPECT_EQ(back_status([&](plain::AttentionBackward& b) {
              b.dq = nullptr, b.dk = dk.data(), b.delta = nullptr, b.forward.ends = true;
            }),
            Status::totals_left_out);
  const auto later_rows = [&](bool begins, bool top_left, const std::int64_t* query_start) {
    return back_status([&](plain::AttentionBackward& b) {
      b.dq = nullptr, b.dq_totals = nullptr, b.dk = dk.data();
      b.forward.causal = true, b.forward.top_left = top_left, b.forward.query_start = query_start;
      b.forward.begins = begins, b.forward.ends = !begins;
    });
  };
  EXPECT_EQ(later_rows(false, true, nullptr), Status::alignment);  // would be rows 0 ...
  EXPECT_EQ(later_rows(false, false, nullptr), Status::alignment);
  EXPECT_EQ(later_rows(true, true, nullptr), Status::ok);
  EXPECT_EQ(later_rows(false, false, start), Status::ok);
}

}  // namespace
}  // namespace attn::testing
