// src/attention/sequences.cc: finds the sequences of a call, from cumulative lengths or from document ids.
#include "attention/sequences.h"

#include <unordered_map>

namespace attn {
namespace {

using kernels::Sequence;

/// The range of keys in which one document id occurs.
struct Run {
  std::int64_t begin = 0, end = 0;
  bool whole = true;  // no other id occurs in the range
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

/// Returns whether the row of `next` can join `sequence`, because it sees the same keys.
bool same_keys(const Sequence& sequence, const Sequence& next) {
  return sequence.batch == next.batch && sequence.keys_begin == next.keys_begin && sequence.keys_end == next.keys_end &&
         sequence.inside == next.inside;
}

}  // namespace

std::vector<Sequence> packed_sequences(const PackedLengths& packed, const Tensor& query_start) {
  std::vector<Sequence> sequences;
  sequences.reserve(packed.q.size());
  for (std::size_t s = 0; s + 1 < packed.q.size(); ++s) {
    Sequence sequence{
        .rows_begin = packed.q[s], .rows_end = packed.q[s + 1], .keys_begin = packed.k[s], .keys_end = packed.k[s + 1]};
    sequence.item = static_cast<std::int64_t>(s);
    const std::int64_t longer = (sequence.keys_end - sequence.keys_begin) - (sequence.rows_end - sequence.rows_begin);
    const std::int64_t starts[] = {0, longer};
    for (int bottom_right = 0; bottom_right < 2; ++bottom_right)
      sequence.row_offset[bottom_right] =
          (query_start.defined() ? query_start.data<std::int64_t>()[s] : starts[bottom_right]) - sequence.rows_begin;
    sequences.push_back(sequence);
  }
  return sequences;
}

std::vector<Sequence> document_sequences(const kernels::MaskNode& ids, const kernels::AttentionProblem& problem) {
  std::vector<Sequence> sequences;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const kernels::Task item{.batch = b};
    const std::int64_t begin = problem.keys_begin(item), end = problem.keys_end(item);
    const auto runs = runs_of_keys(ids.key_ids + b * ids.key_ids_stride, begin, end);
    for (std::int64_t i = 0; i < problem.q_rows; ++i) {
      // starts as the sequence of a row that sees no key
      Sequence sequence{
          .batch = b, .rows_begin = i, .rows_end = i + 1, .keys_begin = begin, .keys_end = begin, .item = b};
      const auto found =
          i < problem.rows_end(item) ? runs.find(ids.query_ids[b * ids.query_ids_stride + i]) : runs.end();
      if (found != runs.end()) {
        sequence.inside = found->second.whole;
        sequence.keys_begin = sequence.inside ? found->second.begin : begin;
        sequence.keys_end = sequence.inside ? found->second.end : end;
      }
      sequence.first_position = sequence.keys_begin - begin;
      for (const bool bottom_right : {false, true})
        sequence.row_offset[bottom_right] = problem.row_offset(item, bottom_right);
      if (!sequences.empty() && same_keys(sequences.back(), sequence)) sequences.back().rows_end = sequence.rows_end;
      else sequences.push_back(sequence);
    }
  }
  return sequences;
}

}  // namespace attn
