// include/attn/verify.h: every kernel of this machine against the specification, bit by bit.
#pragma once
#include <attn/export.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace attn {

struct VerifyOptions {
  bool quick = false;  ///< the small table
  std::string
      line;  ///< one case instead of a table: "attention f32 B=2 Hq=3 Tq=17 Tk=33 D=8 mask=causal(bottom_right)"
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

/// One way to compute, on the cases it takes.
struct VerifyRow {
  std::string name;  // "reference generic", "avx512 strips", "avx512 spans", "library, 2 threads", ...
  std::int64_t cases = 0;
  std::int64_t different = 0;
  std::string digest;  // of its f32 and f64 results; the specification's stand in for the cases it does not take
};

struct VerifyReport {
  std::vector<VerifyRow> rows;
  std::int64_t cases = 0;
  std::string difference;  ///< the first: who, what, which element; empty when there is none
  std::string line;        ///< the line that repeats it
  /// Of all f32 and f64 results of the table, 16 hexadecimal digits: the same on every machine, target and thread count
  /// for one numerics version. Inputs are scaled integers; no function of the C library takes part.
  std::string digest;
  bool passed() const { return difference.empty(); }
};

/// Runs the cases on both builds of the specification, on every instruction set this processor has kernels for (whole
/// strips, heads together, span by span) and through the library's functions on 1, 2 and 3 threads. f32 and f64: the
/// same bits. bf16 and f16: the same bits whatever the cut, and the specification's f32 result within 4 roundings of
/// the largest value, or what these move it by. ValueError for a line that is not a case. Changes the number of threads
/// while it runs: not beside other calls.
ATTN_API VerifyReport verify(const VerifyOptions& options = {});

}  // namespace attn
