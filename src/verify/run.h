// src/verify/run.h: the ways to compute a case: the specification, each instruction set's kernels, the library's
// functions.
#pragma once
#include "kernels/reference.h"
#include "verify/inputs.h"
#include "verify/results.h"

#include <functional>
#include <string>
#include <vector>

namespace attn::cases {

/// One way to compute; no results: it does not take the case.
struct Way {
  std::string name;
  std::string target;  // 16-bit results have the same bits within one target
  std::function<Results(const Case&, const Inputs&)> run;
};

/// The specification as this processor runs it. f32 and f64.
Results by_specification(const Case& c, const Inputs& in);
/// Its two builds, each on its own.
std::vector<Way> specification_ways();
/// Of one instruction set: strips, heads together, span by span; matrix products; rows and elementary functions.
std::vector<Way> target_ways(const std::string& target);
/// The library's own functions on so many threads.
Way library_way(int threads);

/// matmul's inputs, times each other, into y; bf16 by the processor's pairs.
kernels::GemmProblem gemm_problem(const Inputs& in, const Tensor& y);
/// The library's function of an op along rows or element by element, into `out` where it is defined.
Tensor row_result(const Case& c, const Inputs& in, const Tensor& out);

/// All of this machine.
std::vector<Way> all_ways();

}  // namespace attn::cases
