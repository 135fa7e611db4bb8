// src/kernels/relative/relative_product.h: computes relative products for a query tile, and their gradients for a step
// of the backward pass.
#pragma once
#include "kernels/reference.h"
#include "kernels/relative/kept_sums.h"
#include "kernels/relative_problem.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// Returns the bytes of scratch that the functions below need for tiles of up to `rows` rows; they are told how many
/// there are.
std::size_t relative_scratch_bytes(const RelativeProduct& product, const AttentionProblem& problem, std::int64_t rows,
                                   bool backward);
/// Returns the bytes of the sums of a step that other steps add to as well.
std::size_t relative_kept_bytes(const RelativeProduct& product, const AttentionProblem& problem);

/// Computes the product of every row of the tile and every existing key, visible or not: pairs[lane][j - keys_begin],
/// the lanes `stride` elements apart.
void relative_values(const RelativeProduct& product, const AttentionProblem& problem, const Task& tile, void* pairs,
                     std::int64_t stride, void* scratch, std::size_t bytes);

/// Adds the gradients of a step.
void relative_gradients(const RelativeProduct& product, const RelativeStep& step, const RelativeGradient& to,
                        KeptSums& kept, void* scratch, std::size_t bytes);
/// Waits for the turn of the step and adds the sums that are kept.
void add_kept(const AttentionProblem& problem, KeptSums& kept);

/// Returns the definition of a build of the reference code.
const RelativeReference& relative_reference(const Reference& build) noexcept;

}  // namespace attn::kernels
