// src/attention/schedule/vector_kernels.cc: decides which calls the vector kernels accept; computes padding rows and
// recomputes rows with NaN.
#include "attention/schedule/vector_kernels.h"

#include "attention/schedule/reference_rows.h"
#include "kernels/attention/reference.h"
#include "runtime/cpu.h"
#include "runtime/once.h"

#include <algorithm>

namespace attn {
namespace {

using kernels::AttentionProblem;
using kernels::Element;
using kernels::ForwardKernel;
using kernels::Task;

const kernels::AttentionTarget* target() {
  constinit static runtime::Once<const kernels::AttentionTarget*> here;
  return here.get([] { return kernels::attention_target(runtime::target().c_str()); });
}

template <Element E>
const ForwardKernel& forward_kernel() {
  return E == Element::f64 ? target()->f64 : E == Element::bf16 ? target()->bf16 : target()->f32;
}

/// Returns whether the kernel can read rows of K or V, either directly or by widening them. The only 8-bit type that a
/// bf16 kernel accepts is int8 with one scale per row, which it applies after the product.
template <Element E>
bool reads(const kernels::KvRows& rows, std::int64_t columns) {
  const Element stored = rows.element;
  if (stored == E) return true;
  if (kernels::bytes_of(stored) == 1)
    return rows.interleave_width != 0 &&
           (E != Element::bf16 || (kernels::is_int8(stored) && rows.scale_group >= columns));
  return E == Element::f32 && kernels::bytes_of(stored) == 2;
}

/// Returns whether there is a bf16 kernel for this processor.
bool multiplies_bf16() { return target()->bf16.rows > 0 && runtime::cpu().avx512_bf16; }

template <Element E>
Answer ask(const AttentionProblem& problem);
/// Returns whether the kernel computes a call of this element type: its own type directly; the f32 kernel also f16, and
/// bf16 calls that the bf16 kernel does not take, by widening Q and rounding the output.
template <Element E>
bool is_of(const AttentionProblem& problem) {
  if (problem.element == E) return true;
  if (E != Element::f32 || problem.element == Element::f64) return false;
  return problem.element == Element::f16 || !multiplies_bf16() || ask<Element::bf16>(problem) != Answer::takes;
}

template <Element E>
Answer ask(const AttentionProblem& problem) {
  if (!is_of<E>(problem)) return Answer::other_dtype;
  if (!reads<E>(problem.k, problem.dim) || !reads<E>(problem.v, problem.value_dim)) return Answer::other_storage;
  if (problem.score == kernels::ScoreOp::additive && E == Element::bf16) return Answer::additive_score;
  if (E != Element::f64 && !problem.score_mod.fits_f32) return Answer::far_positions;
  return Answer::takes;
}

template <Element E>
std::size_t scratch_bytes(const AttentionProblem& problem) {
  return std::max(forward_kernel<E>().scratch_bytes(problem), kernels::attention_reference().scratch_bytes(problem));
}

/// Returns the part of the tile that has valid rows.
Task existing(const AttentionProblem& problem, Task tile) {
  tile.rows = std::clamp<std::int64_t>(problem.rows_end(tile) - tile.row, 0, tile.rows);
  return tile;
}

/// Computes padding rows by the reference code. Their weights are not written, because nothing reads them.
void empty_rows(const AttentionProblem& problem, const Task& tile, std::int64_t existing_rows, void* scratch) {
  if (existing_rows == tile.rows) return;
  for (std::int64_t n = 0; n < tile.heads; ++n) {
    Task padding = tile.with_rows(tile.head + n, tile.row + existing_rows, tile.rows - existing_rows);
    padding.lane_row = nullptr;
    kernels::attention_reference().rows(problem, padding, scratch);
  }
}

/// Recomputes a tile in which a row has a NaN, with masked pairs left out (kernels/attention/mask/masked_values.h).
void recompute(const ForwardKernel& forward, const AttentionProblem& problem, const Task& tile, void* scratch) {
  forward.nan_safe_rows != nullptr ? forward.nan_safe_rows(problem, tile, scratch)
                                   : reference_rows(problem, tile, scratch);
}

template <Element E>
void rows(const AttentionProblem& problem, const Task& tile, void* scratch) {
  const Task here = existing(problem, tile);
  if (here.rows > 0 && !forward_kernel<E>().attend(problem, here, scratch))
    recompute(forward_kernel<E>(), problem, here, scratch);
  empty_rows(problem, tile, here.rows, scratch);
}

template <Element E>
AttentionKernel kernel(const char* name) {
  return {.name = name,
          .computes = E,
          .query_tile_rows = forward_kernel<E>().rows,
          .task_tiles = forward_kernel<E>().task_tiles,
          .ask = ask<E>,
          .scratch_bytes = scratch_bytes<E>,
          .rows = rows<E>,
          .vector_kernel = &forward_kernel<E>()};
}

struct Names {
  const char *f32, *f64, *bf16;
};
Names names_of(const std::string& target_name) {
  if (target_name == "amx") return {"avx512_f32", "avx512_f64", "amx_bf16"};
  if (target_name == "avx512") return {"avx512_f32", "avx512_f64", "avx512_bf16"};
  if (target_name == "avx2") return {"avx2_f32", "avx2_f64", ""};
  return {"neon_f32", "neon_f64", ""};
}

}  // namespace

std::vector<AttentionKernel> vector_kernels() {
  if (target() == nullptr) return {};
  const Names names = names_of(runtime::target());
  std::vector<AttentionKernel> kernels{kernel<Element::f32>(names.f32), kernel<Element::f64>(names.f64)};
  if (multiplies_bf16()) kernels.push_back(kernel<Element::bf16>(names.bf16));
  return kernels;
}

kernels::Element int8_form(Dtype dtype, std::int64_t dim, std::int64_t value_dim, std::int64_t group) {
  if (dtype != Dtype::bf16 || target() == nullptr || !multiplies_bf16()) return Element::i8;
  const auto form = forward_kernel<Element::bf16>().int8_form;
  return form == nullptr ? Element::i8 : form(dim, value_dim, group);
}

void merge_query_tile(const ForwardKernel& forward, const AttentionProblem& problem, const Task& tile,
                      const void* partials, std::int64_t splits, void* scratch) {
  const Task here = existing(problem, tile);
  if (here.rows > 0 && !forward.attend_merge(problem, here, partials, splits, scratch))
    recompute(forward, problem, here, scratch);
  empty_rows(problem, tile, here.rows, scratch);
}

}  // namespace attn
