// src/verify/inputs.cc: makes q, k, v, masks, biases, lengths, matrices and rows from integers of a fixed generator.
#include "verify/inputs.h"

#include <attn/ops.h>

#include "runtime/parallel.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace attn::cases {
namespace {

/// Computes splitmix64 of a counter, so that each element is independent of the others. Source: Steele, Lea, Flood
/// 2014.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
std::uint64_t word(std::uint64_t seed, std::int64_t i) {
  return mixed(mixed(seed) + static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15u);
}

template <typename T, int bits>
void fill(const Tensor& x, std::uint64_t seed, double width) {
  T* const to = x.data<T>();
  const double step = width / static_cast<double>(std::int64_t{1} << (bits - 1));
  constexpr std::int64_t part = 1 << 16;
  const std::int64_t count = x.numel();
  runtime::parallel_for((count + part - 1) / part, [&](std::int64_t p) {
    for (std::int64_t i = p * part; i < std::min(count, (p + 1) * part); ++i) {
      const auto integer = static_cast<std::int64_t>(word(seed, i) >> (64 - bits)) - (std::int64_t{1} << (bits - 1));
      const double value = static_cast<double>(integer) * step;
      if constexpr (sizeof(T) == 2) to[i] = T(static_cast<float>(value));
      else to[i] = static_cast<T>(value);
    }
  });
}

/// Returns one number for each batch item.
template <typename F>
Tensor of_batch(std::int64_t batch, F&& value) {
  Tensor result = empty({batch}, Dtype::i64);
  for (std::int64_t b = 0; b < batch; ++b) result.data<std::int64_t>()[b] = value(b);
  return result;
}

/// Returns the cumulative sums, from 0, of B lengths from longest / 32 to `longest`; the first length is `longest`.
Tensor cumulated(std::int64_t batch, std::int64_t longest) {
  const std::int64_t shortest = longest / 32;
  std::int64_t total = 0;
  return of_batch(batch + 1, [&](std::int64_t b) {
    const std::int64_t end = total;
    total +=
        b == 0 ? longest
               : shortest + static_cast<std::int64_t>(word(1, b) % static_cast<std::uint64_t>(longest - shortest + 1));
    return end;
  });
}

/// Returns [B, H, T, D], in memory in this order or as [B, T, H, D]. Packed: [1, H, total, D], in memory as [total, H,
/// D].
Tensor operand(const Case& c, std::int64_t heads, std::int64_t rows, std::int64_t dim, std::uint64_t seed) {
  if (c.lengths == "packed") {
    const auto total = static_cast<std::int64_t>(cumulated(c.batch, rows).select(0, -1).item());
    return integers({1, total, heads, dim}, c.dtype, seed).transpose(1, 2);
  }
  if (c.layout == "turned") return integers({c.batch, rows, heads, dim}, c.dtype, seed).transpose(1, 2);
  return integers({c.batch, heads, rows, dim}, c.dtype, seed);
}

void set_lengths(const Case& c, AttentionOptions& options) {
  if (c.lengths == "packed") {
    options.cu_seqlens_q = cumulated(c.batch, c.q_rows);
    options.cu_seqlens_k = cumulated(c.batch, c.k_rows);
  }
  const bool all = c.lengths == "all";
  if (all || c.lengths == "keys")
    options.key_lengths = of_batch(c.batch, [&](std::int64_t b) { return c.k_rows - b * c.k_rows / (2 * c.batch); });
  if (all || c.lengths == "rows")
    options.query_lengths = of_batch(c.batch, [&](std::int64_t b) { return c.q_rows - b * c.q_rows / c.batch; });
  if (all || c.lengths == "starts")
    options.key_start =
        of_batch(c.batch, [&](std::int64_t b) { return b * c.k_rows / (4 * c.batch) + (c.k_rows > 1 ? b % 2 : 0); });
}

constexpr std::int64_t farthest = 128;  // largest distance of the relative bias

/// Returns whether no row of a dense mask attends to key j.
bool never_seen(std::int64_t j) { return j % 11 == 5; }

/// Reads blocks(rows, keys, n) at the beginning of a mask, then & and an expression, or nothing.
Mask blocks_of(const Case& c, std::uint64_t seed) {
  std::int64_t sizes[3];  // rows of a block, keys of a block, blocks that a block of rows sees
  std::size_t at = c.mask.find('(');
  for (std::int64_t& size : sizes) {
    const char* const end = c.mask.data() + c.mask.size();
    const auto [stop, error] = std::from_chars(c.mask.data() + at + 1, end, size);
    if (error != std::errc() || stop == end || size < 1 || size > 1 << 24 || *stop != (&size == sizes + 2 ? ')' : ','))
      throw ValueError("case: mask=" + c.mask + " is not understood; it must begin as blocks(64,64,16)");
    at = static_cast<std::size_t>(stop - c.mask.data());
  }
  const auto blocks = [](std::int64_t rows, std::int64_t size) { return (rows + size - 1) / size; };
  const std::int64_t lists = blocks(c.q_rows, sizes[0]), keys = blocks(c.k_rows, sizes[1]);
  if (static_cast<double>(c.k_heads * lists) * static_cast<double>(sizes[2]) > 0x1p30)
    throw ValueError("case: mask=" + c.mask + " makes more than 2^30 indices");
  Tensor indices = empty({1, c.k_heads, lists, sizes[2]}, Dtype::i64);
  std::int64_t* to = indices.data<std::int64_t>();
  // entry n of a list: block first + 7 n, modulo the number of blocks; n at or above it: -1 or `first`, alternately
  for (std::int64_t list = 0; list < c.k_heads * lists; ++list) {
    const auto first = static_cast<std::int64_t>(word(seed, list) % static_cast<std::uint64_t>(keys));
    for (std::int64_t n = 0; n < sizes[2]; ++n, ++to) *to = n < keys ? (first + n * 7) % keys : n % 2 ? -1 : first;
  }
  const Mask mask = Mask::blocks(indices, sizes[0], sizes[1]);
  if (at + 1 == c.mask.size()) return mask;
  if (c.mask[at + 1] != '&') throw ValueError("case: mask=" + c.mask + " is not understood; & joins blocks with more");
  return mask & Mask::parse(c.mask.substr(at + 2));
}

Mask mask_of(const Case& c, std::uint64_t seed) {
  if (c.mask == "none") return {};
  if (c.mask == "bool") {
    Tensor allowed = empty({c.q_rows, c.k_rows}, Dtype::boolean);
    for (std::int64_t n = 0; n < allowed.numel(); ++n)
      allowed.data<bool>()[n] = word(seed, n) % 4 != 0 && !never_seen(n % c.k_rows);
    return Mask::attend(allowed);
  }
  if (c.mask.starts_with("blocks(")) return blocks_of(c, seed);
  if (c.mask == "documents") {
    if (c.q_rows != c.k_rows) throw ValueError("case: mask=documents needs Tq = Tk");
    Tensor ids = empty({c.k_rows}, Dtype::i64);
    for (std::int64_t j = 0; j < c.k_rows; ++j) ids.data<std::int64_t>()[j] = j / 13;
    return Mask::documents(ids) & Mask::causal();
  }
  return Mask::parse(c.mask);
}

Bias products_of(const Case& c, const std::string& bias, std::uint64_t seed) {
  const auto product = [&](const RelativeIndex& index, bool of_keys, std::uint64_t own) {
    return Bias::relative_product(integers({c.q_heads, index.rows(), c.dim}, c.dtype, own), index,
                                  {.of_keys = of_keys, .align = Align::bottom_right});
  };
  if (bias == "relative_keys") return product(RelativeIndex::distance(16, 16), false, seed);
  if (bias == "conformer") return product(RelativeIndex::distance(c.k_rows - 1, c.k_rows - 1), false, seed);
  if (bias == "disentangled")
    return product(RelativeIndex::log_buckets(32, farthest), false, seed) +
           product(RelativeIndex::log_buckets(32, farthest), true, seed + 100);
  return product(RelativeIndex::picture_rows(c.k_rows / 8 + 1, 8), false, seed) +
         product(RelativeIndex::picture_columns(8), false, seed + 100);
}

Bias bias_of(const Case& c, const std::string& bias, std::uint64_t seed) {
  const Dtype dtype = c.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  if (bias == "dense") return Bias::dense(integers({c.q_heads, c.q_rows, c.k_rows}, dtype, seed));
  if (bias == "pairs") return Bias::dense(integers({c.q_rows, c.k_rows}, dtype, seed));
  if (bias == "item") return Bias::dense(integers({c.batch, 1, c.q_rows, c.k_rows}, dtype, seed));
  if (bias == "key") {
    Tensor values = integers({c.batch, 1, 1, c.k_rows}, dtype, seed);
    for (std::int64_t b = 0; b < c.batch; ++b)
      values.select(0, b).slice(2, c.k_rows - c.k_rows / 8).fill_(-std::numeric_limits<double>::infinity());
    return Bias::dense(values);
  }
  if (bias == "alibi" || bias == "alibi_symmetric") {
    Tensor slopes = attn::full({c.q_heads}, 1, dtype);
    for (std::int64_t h = 0; h < c.q_heads; ++h) slopes.select(0, h).fill_(1.0 / static_cast<double>(2 * h + 4));
    return Bias::alibi(slopes, Align::bottom_right, bias != "alibi");
  }
  if (bias == "relative")
    return Bias::relative(integers({32, c.q_heads}, dtype, seed), true, farthest, Align::bottom_right);
  return c.has_relative_products() ? products_of(c, bias, seed) : Bias();
}

/// Returns T5's bucket of a distance: 32 buckets in both directions up to 128. With d = |distance|: d below 8, from
/// there 8 + floor(2 log2(d / 8)), at most 15; 16 more for a positive distance.
std::int64_t bucket_of(std::int64_t distance) {
  const std::int64_t d = std::abs(distance);
  std::int64_t bucket = d;
  if (d >= 8)
    for (bucket = 8; bucket < 15 && d * d >= std::int64_t{64} << (bucket - 7);) ++bucket;
  return bucket + (distance > 0 ? 16 : 0);
}

/// Returns the score expression with the tensors that it may name; the biases alibi and relative use the same tensors.
ScoreExpression expression_of(const Case& c, const std::string& expression, std::uint64_t seed) {
  if (expression == "none") return {};
  const Bias alibi = bias_of(c, "alibi", seed), relative = bias_of(c, "relative", seed);
  Tensor bucket = empty({2 * farthest + 1}, Dtype::i64);
  for (std::int64_t d = -farthest; d <= farthest; ++d) bucket.data<std::int64_t>()[d + farthest] = bucket_of(d);
  return ScoreExpression::parse(
      expression, {{"slope", alibi.terms()[0].values}, {"table", relative.terms()[0].values}, {"bucket", bucket}});
}

/// Writes NaN to the keys and values that the lengths or the dense mask hide from every row.
void poison(const Case& c, const Inputs& in) {
  if (c.hidden != "nan") return;
  const auto length = [](const Tensor& of, std::int64_t b, std::int64_t otherwise) {
    return of.defined() ? of.data<std::int64_t>()[b] : otherwise;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (const Tensor& x : {in.k.select(0, b), in.v.select(0, b)}) {
      x.slice(1, 0, length(in.options.key_start, b, 0)).fill_(nan);
      x.slice(1, length(in.options.key_lengths, b, c.k_rows), c.k_rows).fill_(nan);
      for (std::int64_t j = 0; c.mask == "bool" && j < c.k_rows; ++j)
        if (never_seen(j)) x.select(1, j).fill_(nan);
    }
}

Score score_of(const Case& c, std::uint64_t seed) {
  // With many columns the values are smaller, so that the scores after one or two products are a few units, as in a
  // model. With larger scores, 16-bit results would be only noise.
  const bool general = c.score == "general";
  const double width = c.dim < (general ? 32 : 128) ? 2 : general ? 0x1p-6 : 0.25;
  const auto drawn = [&](const Dims& sizes, std::uint64_t more) {
    return integers(sizes, c.dtype, seed + more, width);
  };
  if (c.score == "general") return Score::general(drawn({c.dim, c.dim}, 0));
  if (c.score == "additive")
    return Score::additive(drawn({c.channels, c.dim}, 0), drawn({c.channels, c.dim}, 1),
                           integers({c.channels}, c.dtype, seed + 2));
  return {};
}

Weights weights_of(const Case& c) {
  if (c.weights == "full") return Weights::full;
  if (c.weights == "head_average") return Weights::head_average;
  if (c.weights == "column_sums") return Weights::column_sums;
  if (c.weights == "top_k") return Weights::top_k(std::min<std::int64_t>(4, c.k_rows));
  if (c.weights != "rows") return Weights::none;
  return Weights::rows(of_batch((c.q_rows + 4) / 5, [&](std::int64_t n) { return c.q_rows - 1 - 5 * n; }));
}

/// Puts K and V into a cache. The query rows are the last cached positions; with int8, k and v become what the cache
/// returns.
void put_into_cache(const Case& c, Inputs& in) {
  if (c.lengths != "none" && c.lengths != "keys") throw ValueError("case: with a cache lengths are none or keys");
  if (c.is_backward()) throw ValueError("case: a cache has no gradient");
  if (!in.options.key_lengths.defined())
    in.options.key_lengths = of_batch(c.batch, [&](std::int64_t) { return c.k_rows; });
  const std::int64_t* lengths = in.options.key_lengths.data<std::int64_t>();
  in.options.query_start = of_batch(c.batch, [&](std::int64_t b) { return lengths[b] - c.q_rows; });
  in.cached = cached_rows(c, in);
  if (c.storage == "same") return;
  const KvCache::Rows rows = in.cached->cache.gather(in.cached->sequences, c.dtype);
  in.k = rows.k;
  in.v = rows.v;
}

/// The direction of forward mode.
void set_tangents(const Case& c, std::uint64_t seed, Inputs& in) {
  in.tangents.q = operand(c, c.q_heads, c.q_rows, c.dim, seed + 11);
  in.tangents.k = operand(c, c.k_heads, c.k_rows, c.dim, seed + 12);
  in.tangents.v = operand(c, c.v_heads, c.k_rows, c.value_dim, seed + 13);
  if (in.options.sinks.defined())
    in.tangents.sinks = integers(in.options.sinks.sizes(), in.options.sinks.dtype(), seed + 14);
  for (const Bias::Term& term : in.options.bias.terms())
    in.tangents.bias.push_back(integers(term.values.sizes(), term.values.dtype(), seed + 15));
  if (c.is_backward_tangent()) in.doutput_tangent = operand(c, c.q_heads, c.q_rows, c.value_dim, seed + 16);
}

void attention_inputs(const Case& c, std::uint64_t seed, Inputs& in) {
  const bool dense = c.mask == "bool" || c.mask == "documents" || c.mask.starts_with("blocks(") || c.bias == "dense" ||
                     c.bias == "pairs" || c.bias == "item" || c.bias == "key";
  if (c.lengths == "packed" && (dense || c.hidden == "nan"))
    throw ValueError("case: lengths=packed has no dense mask or bias and hides no keys");
  in.q = operand(c, c.q_heads, c.q_rows, c.dim, seed + 1);
  in.k = operand(c, c.k_heads, c.k_rows, c.dim, seed + 2);
  in.v =
      c.values == "in_keys" ? in.k.narrow(3, 0, c.value_dim) : operand(c, c.v_heads, c.k_rows, c.value_dim, seed + 3);
  in.options.score = score_of(c, seed + 8);
  in.options.mask = mask_of(c, seed + 4);
  in.options.bias = bias_of(c, c.bias, seed + 5);
  in.options.score_mod = expression_of(c, c.score_mod, seed + 5);
  in.options.weight_mod = expression_of(c, c.weight_mod, seed + 5);
  in.options.normalizer = Normalizer::parse(c.normalizer);
  if (c.scale != 0) in.options.scale = c.scale;
  in.options.softcap = c.softcap;
  in.options.temperature = c.temperature;
  if (c.is_backward() && c.score == "additive" && size_of(c.dtype) == 2)
    throw ValueError("case: the gradient of additive scores is of f32 or f64; 16 bits are widened before it");
  in.options.dropout_p = c.dropout;
  in.options.dropout_seed = seed + 7;
  if (c.sinks != 0) in.options.sinks = integers({c.q_heads}, c.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32, seed + 6);
  if (c.is_backward() || c.is_backward_tangent()) in.doutput = operand(c, c.q_heads, c.q_rows, c.value_dim, seed + 7);
  in.options.weights = weights_of(c);
  if (c.is_jvp()) set_tangents(c, seed, in);
  set_lengths(c, in.options);
  if (c.is_cached()) put_into_cache(c, in);
  else if (c.storage != "same") throw ValueError("case: storage=int8 needs a cache");
  poison(c, in);
}

/// q, k, v, recurrent and doutput of linear attention; x, weight and bias of the convolution.
void recurrent_inputs(const Case& c, std::uint64_t seed, Inputs& in) {
  if (c.op == "causal_conv") {
    in.x = c.layout == "turned" ? integers({c.batch, c.q_rows, c.n}, c.dtype, seed + 1).transpose(1, 2)
                                : integers({c.batch, c.n, c.q_rows}, c.dtype, seed + 1);
    in.weight = integers({c.n, c.k}, c.dtype, seed + 2);
    in.bias = integers({c.n}, c.dtype, seed + 3);
    return;
  }
  const auto rows_of = [&](std::int64_t heads, std::int64_t dim, std::uint64_t of) {
    return c.layout == "turned" ? integers({c.batch, c.q_rows, heads, dim}, c.dtype, of).transpose(1, 2)
                                : integers({c.batch, heads, c.q_rows, dim}, c.dtype, of);
  };
  in.q = rows_of(c.q_heads, c.dim, seed + 1);
  in.k = rows_of(c.q_heads, c.dim, seed + 2);
  in.v = rows_of(c.v_heads, c.value_dim, seed + 3);
  Dims sizes{c.batch, c.v_heads, c.q_rows};
  in.recurrent.l2norm = c.delta != 0;  // without it the states of long sequences grow
  if (c.delta != 0) in.recurrent.beta = add(integers(sizes, c.dtype, seed + 5, 0.5), 0.5);
  if (c.gate == "channel") sizes.push_back(c.dim);
  if (c.gate != "none") in.recurrent.g = sub(integers(sizes, c.dtype, seed + 4, 0.5), 0.5);
  if (c.is_recurrent_backward()) in.doutput = rows_of(c.v_heads, c.value_dim, seed + 6);
}

}  // namespace

Tensor integers(const Dims& sizes, Dtype dtype, std::uint64_t seed, double width) {
  Tensor x = empty(sizes, dtype);
  switch (dtype) {
    case Dtype::f64: fill<double, 41>(x, seed, width); break;
    case Dtype::bf16: fill<bfloat16, 8>(x, seed, width); break;
    case Dtype::f16: fill<float16, 8>(x, seed, width); break;
    default: fill<float, 21>(x, seed, width);
  }
  return x;
}

Inputs make_inputs(const Case& c, std::uint64_t seed) {
  Inputs in;
  if (c.is_recurrent()) {
    recurrent_inputs(c, seed, in);
  } else if (c.is_attention()) {
    attention_inputs(c, seed, in);
  } else if (c.op == "matmul") {
    if (c.bias_row != 0 && c.layout != "nt")
      throw ValueError("case: addend=1 needs layout=nt, as a linear layer has it");
    in.a = c.layout == "tn" ? integers({c.k, c.m}, c.dtype, seed + 1).transpose(0, 1)
                            : integers({c.m, c.k}, c.dtype, seed + 1);
    if (c.blocks != "none") {
      if (c.layout != "nt" || c.dtype != Dtype::f32 || c.packed != 0)
        throw ValueError("case: blocks need f32 and layout=nt, as a linear layer has it, and are not packed");
      in.blocks = random_blocks(c.blocks, c.n, c.k, seed + 2);
      in.b = in.blocks->decoded.transpose(0, 1);
    } else {
      in.b = c.layout == "nt" ? integers({c.n, c.k}, c.dtype, seed + 2).transpose(0, 1)
                              : integers({c.k, c.n}, c.dtype, seed + 2);
    }
    if (c.bias_row != 0) in.addend = integers({c.n}, c.dtype, seed + 3);
  } else {
    in.x = integers({c.rows, c.n}, c.dtype, seed + 1, c.op.ends_with("_norm") || c.op == "sum" ? 2 : 16);
    if (c.op == "log") in.x = abs(in.x);
    if (c.op.ends_with("_norm")) in.weight = integers({c.n}, c.dtype, seed + 2);
    if (c.op == "layer_norm") in.bias = integers({c.n}, c.dtype, seed + 3);
  }
  return in;
}

Inputs widened(const Inputs& inputs) {
  Inputs wide = inputs;
  for (Tensor Inputs::* x : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::doutput, &Inputs::a, &Inputs::b,
                             &Inputs::addend, &Inputs::x, &Inputs::weight, &Inputs::bias})
    if ((wide.*x).defined()) wide.*x = (inputs.*x).to(Dtype::f32);
  for (Tensor* x : {&wide.recurrent.g, &wide.recurrent.beta, &wide.doutput_tangent, &wide.tangents.q, &wide.tangents.k,
                    &wide.tangents.v})
    if (x->defined()) *x = x->to(Dtype::f32);
  for (Tensor& x : wide.tangents.bias) x = x.to(Dtype::f32);
  if (inputs.cached && inputs.cached->cache.options().storage != KvStorage::same) {
    // gathered as f32, so that rows are not rounded to 16 bits
    const KvCache::Rows rows = inputs.cached->cache.gather(inputs.cached->sequences, Dtype::f32);
    wide.k = rows.k;
    wide.v = rows.v;
  }
  Score& score = wide.options.score;
  for (Tensor* x : {&score.w_q, &score.w_k, &score.w})
    if (x->defined()) *x = x->to(Dtype::f32);
  return wide;
}

}  // namespace attn::cases
