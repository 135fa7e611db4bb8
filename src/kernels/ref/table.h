// src/kernels/ref/table.h: declares the functions of one build of the reference code.
#pragma once
#include "kernels/attention/backward_problem.h"
#include "kernels/attention/reference.h"
#include "kernels/attention/tangent_problem.h"
#include "kernels/reference.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

void unary(Unary op, Element element, const void* x, void* y, std::int64_t n) noexcept;
void slope(Slope op, Element element, const void* dy, const void* x, void* y, std::int64_t n) noexcept;
void gemm(const GemmProblem& problem, std::int64_t begin, std::int64_t end) noexcept;
void decode_blocks(BlockFormat format, const void* blocks, std::int64_t count, float* to) noexcept;
void row(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride,
         std::int64_t n) noexcept;
void layer_norm_row(Element element, const void* x, const void* weight, const void* bias, double eps, void* y,
                    std::int64_t n) noexcept;
void rms_norm_row(Element element, const void* x, const void* weight, double eps, void* y, std::int64_t n) noexcept;
void norm_gradient_row(const NormGradientRow& row) noexcept;
void moments_row(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* mean,
                 void* deviations) noexcept;
extern const AttentionReference attention_table;
extern const GradientKernel gradient_table;
extern const GradientKernel bf16_gradient_tables[2];
extern const RecurrentKernels recurrent_kernels;
extern const TangentKernel tangent_kernel;
extern const GradientKernel gradient_tangent_kernel;

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
