// src/kernels/x86/bf16_target.h: defines the compiler target of code with AVX512-BF16 dot products, in one spelling for
// GCC and clang.
#pragma once
#include <hwy/highway.h>

#define ATTN_BF16_TARGET HWY_TARGET_STR ",avx512bf16"
/// Replaces HWY_BEFORE_NAMESPACE.
#define ATTN_BEFORE_BF16_NAMESPACE() HWY_PUSH_ATTRIBUTES(ATTN_BF16_TARGET) static_assert(true, "for the semicolon")
/// Replaces HWY_ATTR for lambdas.
#define ATTN_BF16_ATTR __attribute__((target(ATTN_BF16_TARGET)))
