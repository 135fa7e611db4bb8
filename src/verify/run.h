// src/verify/run.h: declares the ways to compute a case: the reference code, the kernels of each instruction set, the
// library's functions.
#pragma once
#include "kernels/reference.h"
#include "verify/inputs.h"
#include "verify/results.h"

#include <functional>
#include <string>
#include <vector>

namespace attn::cases {

/// One way to compute. If it returns no results, it does not support the case.
struct Way {
  std::string name;
  std::string target;  // 16-bit results have the same bits within one target
  std::function<Results(const Case&, const Inputs&)> run;
};

/// Computes a case with the reference code, in the build for this processor; f32 and f64 only.
Results by_specification(const Case& c, const Inputs& in);
/// Returns the builds of the reference code that this processor can run (generic, fma) as separate ways.
std::vector<Way> specification_ways();
/// Returns the ways of one instruction set. Attention: query tiles, heads together, key splits; the backward pass and
/// its bf16 reference code. Then matrix products, and rows and elementary functions.
std::vector<Way> target_ways(const std::string& target);
/// Returns the library's own functions on `threads` threads.
Way library_way(int threads);

/// Returns the problem of multiplying matmul's inputs into y; bf16 inputs are multiplied as bf16, by the processor's
/// dot product of pairs or its tiles.
kernels::GemmProblem gemm_problem(const Inputs& in, const Tensor& y);
/// Calls the library's row or elementwise function of an operation; writes to `out` if it is defined.
Tensor row_result(const Case& c, const Inputs& in, const Tensor& out);

/// Returns all ways of this machine.
std::vector<Way> all_ways();

}  // namespace attn::cases
