// src/bench/peak.h: samples the machine's limits on the threads in use, in a few milliseconds between other
// measurements.
#pragma once
#include <attn/tensor.h>

#include <string>
#include <vector>

namespace attn::bench {

/// Names the limit that a row is compared with.
enum class Limit { fma_f32, fma_f64, dot_bf16, read };
const char* name_of(Limit limit);
/// Returns the limit with this name; throws ValueError that lists the names.
Limit limit_from_name(const std::string& name);

/// Returns the limit for a dtype. bf16 has its own if the processor multiplies pairs; f16 is computed in f32.
Limit limit_of(Dtype dtype);
/// Returns whether this processor has the limit.
bool exists(Limit limit);

/// Returns GFLOP/s of all threads together. Each thread times its own loop, so that a late start does not count.
double sample_arithmetic(Limit limit);
/// Returns GB/s of all threads that read `memory` once.
double sample_read(const std::vector<Tensor>& memory);
/// Returns 32 MiB of a 256 MiB buffer, another part at each call, so that a smaller cache holds none of it any more.
std::vector<Tensor> memory_in_turn();
/// Returns the nanoseconds from one core's write until another core sees it: half a round trip, the median of up to
/// 400.
double sample_hand_over();

}  // namespace attn::bench
