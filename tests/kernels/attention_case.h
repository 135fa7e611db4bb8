// tests/kernels/attention_case.h: random attention problems with all of their memory, and their results by the
// specification.
#pragma once
#include "kernels/attention/reference.h"
#include "kernels/element.h"
#include "runtime/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace attn::kernels {

using Random = std::mt19937;

inline std::int64_t pick(Random& random, std::initializer_list<std::int64_t> values) {
  return values.begin()[random() % values.size()];
}

/// A problem with all of its memory.
template <typename T>
struct Case {
  AttentionProblem p;
  Task task;  // the state that all tasks share; its row is the first of each head
  std::vector<T> q, k, v, w, out, lse, sum, max, bias, slopes, table, sinks;
  std::vector<std::uint8_t> dense, keep;
  std::vector<std::int64_t> q_lengths, k_lengths, k_start, q_start, ids;
  std::vector<std::int32_t> buckets;
  std::vector<std::int8_t> k_numbers, v_numbers;
  std::vector<std::uint16_t> k_halves, v_halves;
  std::vector<std::int32_t> pages;
  std::vector<float> k_scales, v_scales;
  std::vector<MaskNode> nodes;
  std::vector<BiasTerm> terms;
  Sequence sequence;

  static std::vector<T> normal(std::int64_t count, Random& random, double scale = 1) {
    std::normal_distribution<double> value(0, scale);
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& x : values) x = static_cast<T>(value(random));
    return values;
  }

  explicit Case(Random& random) {
    p.batch = pick(random, {1, 2});
    const std::int64_t group = pick(random, {1, 1, 2, 4});
    p.k_heads = p.v_heads = pick(random, {1, 2});
    p.q_heads = group * p.k_heads;
    p.q_rows = pick(random, {1, 2, 15, 16, 17, 63, 64, 65, 130});
    p.k_rows = pick(random, {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 200, 1023, 1024, 1025, 2049});
    p.dim = pick(random, {1, 8, 24, 28, 64, 80});
    p.value_dim = random() % 2 ? p.dim : pick(random, {1, 5, 32, 72});
    p.element = sizeof(T) == 4 ? Element::f32 : Element::f64;
    p.k.element = p.v.element = p.element;
    const std::int64_t q_gap = p.dim + pick(random, {0, 3}), k_gap = p.dim + pick(random, {0, 5}),
                       v_gap = p.value_dim + pick(random, {0, 1});
    q = normal(p.batch * p.q_heads * p.q_rows * q_gap, random, 2);
    k = normal(p.batch * p.k_heads * p.k_rows * k_gap, random);
    v = normal(p.batch * p.v_heads * p.k_rows * v_gap, random);
    p.q = q.data();
    p.q_stride[2] = q_gap;
    p.q_stride[1] = p.q_rows * q_gap;
    p.q_stride[0] = p.q_heads * p.q_stride[1];
    p.k.base = k.data();
    p.k.row_stride = k_gap;
    p.k_stride[1] = p.k_rows * k_gap;
    p.k_stride[0] = p.k_heads * p.k_stride[1];
    p.v.base = v.data();
    p.v.row_stride = v_gap;
    p.v_stride[1] = p.k_rows * v_gap;
    p.v_stride[0] = p.v_heads * p.v_stride[1];
    p.scale = 1 / std::sqrt(static_cast<double>(p.dim));
    outputs();
    lengths(random);
    mask(random);
    around_the_softmax(random);
    dropout(random);
  }

  void outputs() {
    out.assign(static_cast<std::size_t>(p.batch * p.q_heads * p.q_rows * p.value_dim), T(77));
    p.out_stride[2] = p.value_dim;
    p.out_stride[1] = p.q_rows * p.value_dim;
    p.out_stride[0] = p.q_heads * p.out_stride[1];
    p.out = out.data();
    for (auto* array : {&lse, &sum, &max})
      array->assign(static_cast<std::size_t>(p.batch * p.q_heads * p.q_rows), T(55));
    p.logsumexp = lse.data();
    p.sum = sum.data();
    p.max = max.data();
  }

  void lengths(Random& random) {
    const auto draw = [&](std::vector<std::int64_t>& values, const std::int64_t*& pointer, std::int64_t low,
                          std::int64_t high) {
      for (std::int64_t b = 0; b < p.batch; ++b)
        values.push_back(low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1)));
      pointer = values.data();
    };
    if (random() % 4 == 0) draw(q_lengths, p.query_lengths, 0, p.q_rows);
    if (random() % 3 == 0) draw(k_lengths, p.key_lengths, p.k_rows / 2, p.k_rows);
    if (random() % 3 == 0) draw(k_start, p.key_start, 0, p.k_rows / 2);
    if (random() % 4 == 0) draw(q_start, p.query_start, 0, p.k_rows);
  }

  void mask(Random& random) {
    if (random() % 3 == 0) return;
    const int leaves = 1 + static_cast<int>(random() % 3);
    for (int n = 0; n < leaves; ++n) {
      MaskNode node;
      node.bottom_right = random() % 2;
      switch (random() % 5) {
        case 0: node.op = MaskOp::causal; break;
        case 1:
          node.op = MaskOp::window;
          node.left = pick(random, {-1, 0, 3, 100});
          node.right = pick(random, {-1, 0, 5, 70});
          break;
        case 2:
          node.op = MaskOp::prefix;
          node.n = pick(random, {0, 1, 40, 64, 500});
          break;
        case 3:
          node.op = MaskOp::documents;
          if (ids.empty())
            for (std::int64_t t = 0; t < p.q_rows + p.k_rows; ++t)
              ids.push_back(static_cast<std::int64_t>(random() % 3));
          node.query_ids = ids.data();
          node.key_ids = ids.data() + p.q_rows;
          break;
        default:
          node.op = MaskOp::dense;
          node.value = random() % 2;
          if (dense.empty())
            for (std::int64_t t = 0; t < p.q_rows * p.k_rows; ++t) dense.push_back(random() % 2);
          node.dense.data = dense.data();
          node.dense.stride[2] = random() % 3 == 0 ? 0 : p.k_rows;
          node.dense.stride[3] = random() % 5 == 0 ? 0 : 1;
      }
      nodes.push_back(node);
      if (random() % 3 == 0) nodes.emplace_back().op = MaskOp::op_not;
      if (n > 0) nodes.emplace_back().op = random() % 2 ? MaskOp::op_and : MaskOp::op_or;
    }
    p.mask = {nodes.data(), static_cast<int>(nodes.size())};
  }

  void around_the_softmax(Random& random) {
    if (random() % 4 == 0) p.softcap = 1.5;
    if (random() % 4 == 0) p.temperature = 0.7;
    if (random() % 4 == 0) {
      sinks = normal(p.q_heads, random);
      p.sinks = sinks.data();
    }
    if (random() % 4 == 0) {
      bias = normal(p.q_heads * p.q_rows * p.k_rows, random);
      if (random() % 2) bias[bias.size() / 2] = -INFINITY;
      BiasTerm term;
      term.element = p.element;
      term.dense.data = bias.data();
      term.dense.stride[1] = p.q_rows * p.k_rows;
      term.dense.stride[2] = p.k_rows;
      term.dense.stride[3] = 1;
      terms.push_back(term);
    }
    if (random() % 4 == 0) {
      slopes = normal(p.q_heads, random, 0.1);
      BiasTerm term;
      term.op = BiasOp::slope;
      term.element = p.element;
      term.values = slopes.data();
      term.bottom_right = random() % 2 == 0;
      terms.push_back(term);
    }
    if (random() % 4 == 0) {
      for (int distance = 0; distance <= 20; ++distance) buckets.push_back(distance / 4);
      table = normal(12 * p.q_heads, random);
      BiasTerm term;
      term.op = BiasOp::table;
      term.element = p.element;
      term.values = table.data();
      term.bucket_stride = p.q_heads;
      term.buckets = 12;
      term.max_distance = 20;
      term.bidirectional = random() % 2 == 0;
      term.bucket_of = buckets.data();
      terms.push_back(term);
    }
    p.bias = terms.data();
    p.bias_count = static_cast<int>(terms.size());
  }

  /// By counter, with keys and rows that begin anywhere in a sequence, or by bytes.
  void dropout(Random& random) {
    if (random() % 3 != 0) return;
    p.keep_scale = 1.25;
    if (random() % 3 == 0) {
      for (std::int64_t t = 0; t < p.q_rows * p.k_rows; ++t) keep.push_back(random() % 5 != 0);
      task.keep = keep.data();
      task.keep_stride = p.k_rows;
      return;
    }
    p.drop_seed = (std::uint64_t{random()} << 32) + random();
    p.drop_least = random() % 2 ? 858993460u : static_cast<std::uint32_t>(random());
    if (p.batch > 1 || random() % 2) return;
    sequence.rows_begin = p.q_rows / 3;
    sequence.rows_end = p.q_rows;
    sequence.keys_begin = p.k_rows / 4;
    sequence.keys_end = p.k_rows;
    sequence.item = 5;
    sequence.first_position = pick(random, {0, 1, 2, 3, 64, 1000});
    sequence.row_offset[0] = pick(random, {-sequence.rows_begin, 0, 77});
    sequence.row_offset[1] = sequence.row_offset[0] + 3;
    task.sequence = &sequence;
    task.row = sequence.rows_begin;
  }

  /// w . tanh(q + k), elements from tiny to beyond what one f32 exponential holds: all of a side, or a few of its rows.
  void make_additive(Random& random) {
    p.score = ScoreOp::additive;
    p.dim -= pick(random, {0, 0, 1}) * (p.dim > 1);  // strides stay: odd and even numbers of channels
    w = normal(p.dim, random);
    p.additive_w = w.data();
    for (std::vector<T>* side : {&q, &k}) {
      constexpr double scales[] = {0.001, 0.1, 1, 4, 100};
      const T scale = static_cast<T>(scales[random() % 5]), outlier = static_cast<T>(scales[random() % 5]);
      const std::size_t every = random() % 3 == 0 ? 1000 : side->size();
      for (std::size_t i = 0; i < side->size(); ++i) (*side)[i] *= i % every == every - 1 ? outlier : scale;
    }
  }

  /// Keys and values of 8 bits, in either form.
  void make_8_bits(Random& random) {
    const Element form = random() % 2 ? Element::i8 : Element::sign_magnitude8;
    const std::int64_t kept_rows = (p.k_rows + KvRows::group_rows - 1) / KvRows::group_rows * KvRows::group_rows;
    const auto store = [&](KvRows& rows, std::int64_t* stride, std::int64_t heads, std::int64_t columns, int piece,
                           std::vector<std::int8_t>& numbers, std::vector<float>& scales) {
      const std::int64_t group = pick(random, {columns, columns, columns + 3, 4, 16, 5}),
                         groups = (columns + group - 1) / group;
      numbers.resize(static_cast<std::size_t>(p.batch * heads * kept_rows * columns));
      for (std::int8_t& x : numbers) {
        x = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
        if (form == Element::sign_magnitude8) x = other_form(x);
      }
      for (std::int64_t n = 0; n < p.batch * heads * kept_rows * groups; ++n)
        scales.push_back(0.0002F * static_cast<float>(1 + random() % 100));
      rows = {.base = numbers.data(),
              .row_stride = columns,
              .scales = scales.data(),
              .scale_stride = groups,
              .scale_head_stride = kept_rows * groups,
              .scale_batch_stride = heads * kept_rows * groups,
              .scale_group = static_cast<int>(group),
              .interleave_width = piece,
              .element = form};
      stride[1] = kept_rows * columns;
      stride[0] = heads * stride[1];
    };
    store(p.k, p.k_stride, p.k_heads, p.dim, KvRows::k_interleave_width, k_numbers, k_scales);
    store(p.v, p.v_stride, p.v_heads, p.value_dim, KvRows::line, v_numbers, v_scales);
  }

  /// Keys and values of f16 or bf16, denormals too: rows at an odd or even stride, or in pages of 1 to 64 rows.
  void make_16_bits(Random& random) {
    const bool f16 = random() % 2, paged = random() % 2;
    const int shift = static_cast<int>(random() % 7);
    const std::int64_t page_rows = std::int64_t{1} << shift, own_pages = (p.k_rows + page_rows - 1) / page_rows;
    for (std::int64_t n = 0; paged && n < p.batch * own_pages; ++n) pages.push_back(static_cast<std::int32_t>(n));
    std::shuffle(pages.begin(), pages.end(), random);
    const auto store = [&](KvRows& rows, std::int64_t* stride, std::int64_t heads, std::int64_t columns,
                           std::vector<std::uint16_t>& halves) {
      const std::int64_t gap = columns + pick(random, {0, 1, 2});
      halves.resize(static_cast<std::size_t>(p.batch * heads * own_pages * page_rows * gap));
      for (std::uint16_t& x : halves)
        x = static_cast<std::uint16_t>(random() % 2 << 15 | (f16 ? random() % 17 << 10 | random() % 1024
                                                                 : (100 + random() % 29) << 7 | random() % 128));
      rows = {.base = halves.data(), .row_stride = gap, .element = f16 ? Element::f16 : Element::bf16};
      stride[1] = (paged ? page_rows : own_pages * page_rows) * gap;
      stride[0] = paged ? 0 : heads * stride[1];
      if (!paged) return;
      rows.pages = pages.data();
      rows.pages_stride = own_pages;
      rows.page_shift = shift;
      rows.page_stride = heads * stride[1];
    };
    store(p.k, p.k_stride, p.k_heads, p.dim, k_halves);
    store(p.v, p.v_stride, p.v_heads, p.value_dim, v_halves);
  }

  std::string line() const {
    return ::testing::PrintToString(std::vector<std::int64_t>{p.batch, p.q_heads, p.k_heads, p.q_rows, p.k_rows, p.dim,
                                                              p.value_dim, p.mask.count, p.bias_count});
  }
};

inline std::vector<std::byte>& aligned(std::vector<std::byte>& memory, std::size_t bytes) {
  memory.resize(bytes + 64);
  return memory;
}
inline void* start(std::vector<std::byte>& memory) {
  return memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
}

/// Computes the rows of every batch item and head, from task.row on.
template <typename T>
void by_specification(const AttentionProblem& p, Task task) {
  std::vector<std::byte> memory;
  aligned(memory, attention_reference().scratch_bytes(p));
  for (task.batch = 0; task.batch < p.batch; ++task.batch)
    for (std::int64_t h = 0; h < p.q_heads; ++h)
      attention_reference().rows(p, task.with_rows(h, task.row, p.q_rows - task.row), start(memory));
}

/// The targets whose kernels are compared with the specification.
inline std::vector<std::string> vector_targets() {
  std::vector<std::string> names = runtime::targets();
  names.pop_back();  // scalar: the specification itself
  return names;
}
}  // namespace attn::kernels
