// src/bench/serve.h: another program measures attn beside others: it asks line by line and is answered in microseconds.
#pragma once
#include <iosfwd>

namespace attn::bench {

/// Of each line of `in` one line to `out`: a case's line, the microseconds of one call of it; "peak fma_f32" (or
/// another limit), GFLOP/s or GB/s; "forget", "ok" and the memory of the cases so far is free; else "error: ..." and
/// why.
void serve(std::istream& in, std::ostream& out);

}  // namespace attn::bench
