// src/bench/serve.h: lets another program compare attn's speed with other libraries': it sends lines and receives
// microseconds.
#pragma once
#include <iosfwd>

namespace attn::bench {

/// Answers each line of `in` with one line on `out`. A case's line: the microseconds of one call. "peak fma_f32" (or
/// another limit): GFLOP/s or GB/s, 0 if the machine does not have it. "forget": "ok"; the memory of the cases so far
/// is freed. Otherwise: "error: ..." with the reason.
void serve(std::istream& in, std::ostream& out);

}  // namespace attn::bench
