// include/attn/verify.h: compares every kernel that this machine can run with the reference code, bit by bit.
#pragma once
#include <attn/export.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace attn {

struct VerifyOptions {
  bool quick = false;  ///< the small table of cases
  std::string
      line;  ///< one case instead of a table: "attention f32 B=2 Hq=3 Tq=17 Tk=33 D=8 mask=causal(bottom_right)"
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

/// One way to compute the cases (attention, its backward pass, products, row operations), and how many it computed.
struct VerifyRow {
  std::string name;  // "reference generic", "avx512 query tiles", "avx512 key splits", "library, 2 threads", ...
  std::int64_t cases = 0;
  std::int64_t different = 0;
  // The digest of all f32 and f64 results of this row. A case that the row cannot compute counts with the reference
  // code's result.
  std::string digest;
};

struct VerifyReport {
  std::vector<VerifyRow> rows;
  std::int64_t cases = 0;
  std::string difference;  ///< the first difference: which way, which case, which element; empty when there is none
  std::string line;        ///< the line that repeats this case
  /// The digest of all f32 and f64 results of the table, 16 hexadecimal digits. It is the same on every machine, target
  /// and thread count for one numerics version. Inputs are scaled integers; no function of the C library is used.
  std::string digest;
  bool passed() const { return difference.empty(); }
};

/// Runs the cases on both builds of the reference code, on every instruction set that this processor has kernels for
/// (whole query tiles, grouped heads, key splits), and through the library's functions on 1, 2 and 3 threads. f32 and
/// f64 results must have the same bits. bf16 and f16 results must have the same bits however the work is split, and
/// must be within 4 roundings of the largest value of the reference code's f32 result, or within the change that such
/// roundings cause. ValueError for a line that is not a case. The number of threads changes while it runs: do not run
/// other calls at the same time.
ATTN_API VerifyReport verify(const VerifyOptions& options = {});

}  // namespace attn
