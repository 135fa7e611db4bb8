// src/attention/parts.cc: the parts of a call that stand alone, from cumulative lengths and from ids.
#include "attention/parts.h"

#include <unordered_map>

namespace attn {
namespace {

using kernels::Part;

/// Keys of one id.
struct Run {
  std::int64_t begin = 0, end = 0;
  bool whole = true;  // side by side
};

std::unordered_map<std::int64_t, Run> runs_of_keys(const std::int64_t* ids, std::int64_t begin, std::int64_t end) {
  std::unordered_map<std::int64_t, Run> runs;
  for (std::int64_t j = begin; j < end; ++j) {
    Run& run = runs.try_emplace(ids[j], Run{j, j}).first->second;
    run.whole = run.whole && run.end == j;
    run.end = j + 1;
  }
  return runs;
}

/// Whether a row that sees the keys of `next` can go with the part before it.
bool same_keys(const Part& part, const Part& next) {
  return part.batch == next.batch && part.keys_begin == next.keys_begin && part.keys_end == next.keys_end &&
         part.inside == next.inside;
}

}  // namespace

std::vector<Part> packed_parts(const PackedLengths& packed, const Tensor& query_start) {
  std::vector<Part> parts;
  parts.reserve(packed.q.size());
  for (std::size_t s = 0; s + 1 < packed.q.size(); ++s) {
    Part part{
        .rows_begin = packed.q[s], .rows_end = packed.q[s + 1], .keys_begin = packed.k[s], .keys_end = packed.k[s + 1]};
    part.item = static_cast<std::int64_t>(s);
    const std::int64_t longer = (part.keys_end - part.keys_begin) - (part.rows_end - part.rows_begin);
    const std::int64_t starts[] = {0, longer};
    for (int bottom_right = 0; bottom_right < 2; ++bottom_right)
      part.row_offset[bottom_right] =
          (query_start.defined() ? query_start.data<std::int64_t>()[s] : starts[bottom_right]) - part.rows_begin;
    parts.push_back(part);
  }
  return parts;
}

std::vector<Part> document_parts(const kernels::MaskNode& ids, const kernels::AttentionProblem& problem) {
  std::vector<Part> parts;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t begin = problem.keys_begin(b), end = problem.keys_end(b);
    const auto runs = runs_of_keys(ids.key_ids + b * ids.key_ids_stride, begin, end);
    for (std::int64_t i = 0; i < problem.q_rows; ++i) {
      // sees nothing
      Part part{.batch = b, .rows_begin = i, .rows_end = i + 1, .keys_begin = begin, .keys_end = begin, .item = b};
      const auto found = i < problem.rows_end(b) ? runs.find(ids.query_ids[b * ids.query_ids_stride + i]) : runs.end();
      if (found != runs.end()) {
        part.inside = found->second.whole;
        part.keys_begin = part.inside ? found->second.begin : begin;
        part.keys_end = part.inside ? found->second.end : end;
      }
      part.first_position = part.keys_begin - begin;
      for (const bool bottom_right : {false, true}) part.row_offset[bottom_right] = problem.row_offset(b, bottom_right);
      if (!parts.empty() && same_keys(parts.back(), part)) parts.back().rows_end = part.rows_end;
      else parts.push_back(part);
    }
  }
  return parts;
}

kernels::AttentionProblem problem_of(const Call& call, const kernels::AttentionProblem& problem, const Part* part) {
  kernels::AttentionProblem result = problem;
  result.part = part;
  if (part != nullptr && part->inside) result.mask.nodes = call.program.inside.data();
  return result;
}

}  // namespace attn
