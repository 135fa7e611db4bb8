// src/kernels/ref/table.cc: fills the function table of this build of the reference code.
#include "kernels/ref/table.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

extern const Reference table;
const Reference table = {
#if defined(__FMA__)
    .build = "fma",
#else
    .build = "generic",
#endif
    .unary = unary,
    .slope = slope,
    .gemm = gemm,
    .decode_blocks = decode_blocks,
    .row = row,
    .layer_norm_row = layer_norm_row,
    .rms_norm_row = rms_norm_row,
    .norm_gradient_row = norm_gradient_row,
    .moments_row = moments_row,
    .attention = &attention_table,
    .gradient = &gradient_table,
    .bf16_gradient = {&bf16_gradient_tables[0], &bf16_gradient_tables[1]},
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
