// src/bench/peak.h: the machine's limits on the threads in use, sampled in a millisecond or two between other
// measurements.
#pragma once
#include <attn/tensor.h>

#include <string>
#include <vector>

namespace attn::bench {

/// Which limit a row is held against.
enum class Limit { fma_f32, fma_f64, dot_bf16, read };
const char* name_of(Limit limit);
/// The limit of that name; ValueError lists those there are.
Limit limit_from_name(const std::string& name);

/// bf16 has its own where the processor multiplies pairs; f16 is computed in f32.
Limit limit_of(Dtype dtype);
/// Whether this processor has it.
bool exists(Limit limit);

/// GFLOP/s of all threads together: each runs its own loop and its own clock, so that a late start does not count.
double sample_arithmetic(Limit limit);
/// GB/s of all threads reading `memory` once.
double sample_read(const std::vector<Tensor>& memory);
/// 32 MiB of 256 in turn: none of it is in a cache any more.
std::vector<Tensor> memory_in_turn();
/// Nanoseconds from one core's write to another core's sight of it: half a round trip, the median of several hundred.
double sample_hand_over();

}  // namespace attn::bench
