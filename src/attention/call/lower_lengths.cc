// src/attention/call/lower_lengths.cc: checks the lengths of a call value by value, resolves alignments, and computes
// the strides of dense operands.
#include "runtime/format.h"

#include "attention/lower.h"
#include "runtime/enum_value.h"

#include <algorithm>

namespace attn {
namespace {

Tensor checked(const ScoreShape& shape, const char* name, const Tensor& values, std::int64_t least, std::int64_t most,
               const char* of_what) {
  if (!values.defined()) return {};
  if (!is_integral(values.dtype()))
    throw DtypeError(
        runtime::format("{}: {} is {}; it must be i64 or i32", shape.function, name, name_of(values.dtype())));
  if (values.dim() != 1 || values.size(0) != shape.items())
    throw ShapeError(runtime::format("{}: {} has shape {}; it must be [{}], one for each {}", shape.function, name,
                                     to_string(values.sizes()), shape.items(), shape.item()));
  const Tensor lengths = values.to(Dtype::i64).contiguous();
  for (std::int64_t b = 0; b < shape.items(); ++b) {
    const std::int64_t value = lengths.data<std::int64_t>()[b];
    if (value < least || value > most)
      throw ValueError(runtime::format("{}: {}[{}] is {}; it must be from {} to {}{}", shape.function, name, b, value,
                                       least, most, of_what));
  }
  return lengths;
}

const std::int64_t* pointer(const Tensor& lengths) {
  return lengths.defined() ? lengths.data<std::int64_t>() : nullptr;
}

/// Returns the indices that a picture draws: all if there are at most 8, otherwise the first four and the last three,
/// with -1 for the gap.
std::vector<std::int64_t> shown(std::int64_t count) {
  std::vector<std::int64_t> all;
  for (std::int64_t n = 0; n < count; ++n) {
    if (count <= 8 || n < 4 || n >= count - 3) all.push_back(n);
    else if (n == 4) all.push_back(-1);
  }
  return all;
}

/// Draws a window in both alignments, side by side: the row at position p sees the keys at p - left ... p + right.
std::string both_pictures(std::int64_t q_rows, std::int64_t k_rows, std::int64_t left, std::int64_t right) {
  const std::vector<std::int64_t> keys = shown(k_rows);
  const std::size_t width = std::max<std::size_t>(12, 2 * keys.size() + 2);
  const auto row = [&](std::int64_t p) {
    std::string line;
    for (const std::int64_t j : keys)
      line += j < 0 ? "… " : (left < 0 || j >= p - left) && (right < 0 || j <= p + right) ? "■ " : "· ";
    return line;
  };
  std::string picture = "\n  top_left" + std::string(width - 8, ' ') + "bottom_right";
  for (const std::int64_t i : shown(q_rows)) {
    const std::string second = i < 0 ? "" : row(i + k_rows - q_rows);
    picture += i < 0
                   ? "\n  …"
                   : "\n  " + row(i) + std::string(width - 2 * keys.size(), ' ') + second.substr(0, second.size() - 1);
  }
  return picture;
}

/// Returns the number of rows and keys of the call, or of the first packed sequence in which they differ.
std::pair<std::int64_t, std::int64_t> uneven(const ScoreShape& shape) {
  if (shape.packed == nullptr) return {shape.q_rows, shape.k_rows};
  const auto& [q, k] = *shape.packed;
  for (std::size_t s = 0; s + 1 < q.size(); ++s)
    if (q[s + 1] - q[s] != k[s + 1] - k[s]) return {q[s + 1] - q[s], k[s + 1] - k[s]};
  return {0, 0};
}

/// Checks that the values ascend from 0 to `total`, and returns them.
std::vector<std::int64_t> cumulative(const ScoreShape& shape, const char* name, const Tensor& values,
                                     std::int64_t total, const char* of_what) {
  if (!is_integral(values.dtype()))
    throw DtypeError(
        runtime::format("{}: {} is {}; it must be i32 or i64", shape.function, name, name_of(values.dtype())));
  if (values.dim() != 1 || values.size(0) < 1)
    throw ShapeError(runtime::format("{}: {} has shape {}; it must be [N + 1] for N sequences", shape.function, name,
                                     to_string(values.sizes())));
  std::vector<std::int64_t> starts = values.to_int_vector();
  for (std::size_t s = 0; s + 1 < starts.size(); ++s)
    if (starts[s + 1] < starts[s])
      throw ValueError(runtime::format("{}: {}[{}] is {}, below {}[{}] = {}; it must not descend", shape.function, name,
                                       s + 1, starts[s + 1], name, s, starts[s]));
  if (starts.front() != 0)
    throw ValueError(runtime::format("{}: {}[0] is {}; it must be 0", shape.function, name, starts.front()));
  if (starts.back() != total)
    throw ValueError(runtime::format("{}: {} ends with {}; it must end with {}, the number of {}", shape.function, name,
                                     starts.back(), total, of_what));
  return starts;
}

}  // namespace

PackedLengths lower_packed(const ScoreShape& shape, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k) {
  if (!cu_seqlens_q.defined())
    throw ValueError(runtime::format("{}: cu_seqlens_k is given without cu_seqlens_q", shape.function));
  PackedLengths packed{.q = cumulative(shape, "cu_seqlens_q", cu_seqlens_q, shape.q_rows, "rows of q"), .k = {}};
  if (!cu_seqlens_k.defined() && shape.q_rows != shape.k_rows)
    throw ValueError(runtime::format(
        "{}: cu_seqlens_k is not given; it may be left out where q and k have as many rows, here {} and {}",
        shape.function, shape.q_rows, shape.k_rows));
  packed.k =
      cu_seqlens_k.defined() ? cumulative(shape, "cu_seqlens_k", cu_seqlens_k, shape.k_rows, "rows of k") : packed.q;
  if (packed.k.size() != packed.q.size())
    throw ShapeError(runtime::format("{}: cu_seqlens_k has shape {}; it must be {} as cu_seqlens_q", shape.function,
                                     to_string(cu_seqlens_k.sizes()), to_string(cu_seqlens_q.sizes())));
  return packed;
}

Lengths lower_lengths(const Lengths& lengths, const ScoreShape& shape) {
  constexpr std::int64_t far = std::int64_t{1} << 40;
  Lengths lowered;
  lowered.query_lengths =
      checked(shape, "query_lengths", lengths.query_lengths, 0, shape.q_rows, ", the number of rows");
  lowered.key_lengths = checked(shape, "key_lengths", lengths.key_lengths, 0, shape.k_rows, ", the number of keys");
  lowered.key_start = checked(shape, "key_start", lengths.key_start, 0, shape.k_rows, ", the number of keys");
  lowered.query_start = checked(shape, "query_start", lengths.query_start, -far, far, "");
  return lowered;
}

void describe_scores(const ScoreShape& shape, const Lengths& lowered, kernels::AttentionProblem& problem) {
  problem.batch = shape.batch;
  problem.q_heads = shape.heads;
  problem.q_rows = shape.q_rows;
  problem.k_rows = shape.k_rows;
  problem.query_lengths = pointer(lowered.query_lengths);
  problem.key_lengths = pointer(lowered.key_lengths);
  problem.key_start = pointer(lowered.key_start);
  problem.query_start = pointer(lowered.query_start);
}

bool is_bottom_right(Align align, const std::string& what, const ScoreShape& shape, const Lengths& lengths,
                     std::int64_t left, std::int64_t right) {
  runtime::check_enum(align, Align::bottom_right, "{}: the alignment of {}", shape.function, what);
  if (align == Align::top_left && shape.rows_at_end)
    throw ValueError(
        runtime::format("{}: {} is top_left; rows over a cache stand at the end of their sequence: leave the alignment "
                        "out, or give query_start",
                        shape.function, what));
  if (align == Align::unset && !lengths.query_start.defined()) {
    const auto [q_rows, k_rows] = uneven(shape);
    if (q_rows != k_rows)
      throw ShapeError(
          runtime::format("{}: {} does not say how {} rows stand against {} keys; it needs an alignment, "
                          "top_left or bottom_right{}",
                          shape.function, what, q_rows, k_rows,
                          what == "causal"   ? ", as in causal(bottom_right)"
                          : what == "window" ? runtime::format(", as in window({}, {}, bottom_right)", left, right)
                                             : ""),
          both_pictures(q_rows, k_rows, left, right));
  }
  return align == Align::bottom_right;
}

kernels::Broadcast4 broadcast_to_scores(const ScoreShape& shape, const std::string& what, const Tensor& x) {
  const Tensor aligned = shape.rank == 3 && x.dim() == 3 && !shape.packed ? x.unsqueeze(1) : x;
  const Dims scores = shape.sizes();
  kernels::Broadcast4 result{.data = aligned.data()};
  for (int d = 0; d < aligned.dim(); ++d) {
    const int to = 4 - aligned.dim() + d;
    if (aligned.size(d) != 1 && aligned.size(d) != scores[to]) {
      Dims shown = scores;  // the sizes in the rank that the caller used
      if (shape.rank < 4) shown.erase(shape.packed ? 0 : 1);
      if (shape.rank < 3) shown.erase(0);
      throw ShapeError(runtime::format("{}: {} has shape {}; it must broadcast to the scores {}", shape.function, what,
                                       to_string(x.sizes()), to_string(shown)));
    }
    result.stride[to] = aligned.size(d) == 1 ? 0 : aligned.stride(d);
  }
  return result;
}

}  // namespace attn
