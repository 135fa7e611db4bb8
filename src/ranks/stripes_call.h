// src/ranks/stripes_call.h: what a rank checks, and compares with the others, before rows in stripes pass by.
#pragma once
#include <attn/attention_backward.h>

#include "attention/call/call.h"
#include "attention/schedule/call_part.h"
#include "ranks/failure.h"
#include "ranks/stripe_stream.h"

#include <string>

namespace attn {

/// A call of which this rank has the rows of its stripes.
struct StripesCall {
  Stripes stripes;
  std::int64_t own = 0;  // rows of this rank
  Call whole;            // the call of all rows; its q, k and v have no memory
  Tensor q, k, v;        // [B, H, own rows, D], adjacent rows
  std::string text;      // all that must be equal at every rank

  Dims rows(std::int64_t width) const { return {whole.problem.batch, whole.problem.q_heads, own, width}; }
  Dims numbers() const { return {whole.problem.batch, whole.problem.q_heads, own}; }
  /// Returns where this rank's rows are, for keys from `first_key` on.
  CallPart own_rows(const Ranks& ranks, std::int64_t first_key) const {
    return {.whole = &whole.problem,
            .first_row = ranks.rank() * Stripes::block,
            .row_block_step = stripes.step(),
            .first_key = first_key};
  }
  /// Returns the problem of this rank's rows without keys.
  kernels::AttentionProblem problem() const;
};

/// Throws the error that the complete call gives in one process, or one that says what stripes do not do. It sends no
/// message.
StripesCall check_stripes_call(const char* function, const Tensor& q, const Tensor& k, const Tensor& v,
                               std::int64_t length, const Ranks& ranks, const AttentionOptions& options);

/// Returns x [B, H, T, D] with adjacent rows: itself or a copy.
Tensor in_adjacent_rows(const Tensor& x);
/// Returns the planes of x, head after head, batch item after batch item.
std::vector<const void*> planes_of(const Tensor& x);
/// Points K and V of a problem at chunks of `rows` rows, [B][H][rows][columns].
void set_chunks(kernels::AttentionProblem& problem, const void* keys, const void* values, std::int64_t rows);

}  // namespace attn
