// src/bench/peak.cc: samples the machine's limits on the library's own threads.
#include "bench/peak.h"

#include <attn/error.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "runtime/format.h"

#include "bench/clock.h"
#include "kernels/peak.h"
#include "runtime/cpu.h"
#include "runtime/parallel.h"

#include <atomic>
#include <numeric>
#include <thread>

namespace attn::bench {
namespace {

constexpr double sample_seconds = 1.5e-3;
constexpr std::pair<Limit, const char*> names[] = {
    {Limit::fma_f32, "fma_f32"}, {Limit::fma_f64, "fma_f64"}, {Limit::dot_bf16, "dot_bf16"}, {Limit::read, "read"}};

const kernels::PeakLoops& loops() {
  static const kernels::PeakLoops& here = kernels::peak_loops(runtime::target().c_str());
  return here;
}
const kernels::PeakLoop& loop_of(Limit limit) {
  return limit == Limit::fma_f64 ? loops().fma_f64 : limit == Limit::dot_bf16 ? loops().dot_bf16 : loops().fma_f32;
}

/// Runs work(part, parts) for as many parts as there are threads. Returns the sum of the parts' rates: the amount that
/// `work` returns (FLOPs or bytes) / its time. Right only if each part has a thread of its own: the pool must be idle.
template <typename F>
double rate_of_all(F&& work) {
  const int threads = num_threads();
  std::vector<double> rates(static_cast<std::size_t>(threads));
  runtime::parallel_for(threads, [&](std::int64_t part) {
    const double begin = now();
    const double amount = work(part, threads);
    rates[static_cast<std::size_t>(part)] = amount / (now() - begin);
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace

const char* name_of(Limit limit) {
  for (const auto& [known, name] : names)
    if (known == limit) return name;
  return "";
}

Limit limit_from_name(const std::string& given) {
  for (const auto& [limit, name] : names)
    if (given == name) return limit;
  throw ValueError(
      runtime::format("bench: there is no limit \"{}\"; there are fma_f32, fma_f64, dot_bf16, read", given));
}

bool exists(Limit limit) {
  return limit != Limit::dot_bf16 || (loops().dot_bf16.run != nullptr && runtime::cpu().avx512_bf16);
}

Limit limit_of(Dtype dtype) {
  if (dtype == Dtype::f64) return Limit::fma_f64;
  return dtype == Dtype::bf16 && exists(Limit::dot_bf16) ? Limit::dot_bf16 : Limit::fma_f32;
}

double sample_arithmetic(Limit limit) {
  const kernels::PeakLoop& loop = loop_of(limit);
  return rate_of_all([&](std::int64_t, int) {
           constexpr std::int64_t rounds = 4096;
           const double end = now() + sample_seconds;
           double flops = 0;
           do {
             loop.run(rounds);
             flops += rounds * loop.flops_per_round;
           } while (now() < end);
           return flops;
         }) *
         1e-9;
}

double sample_read(const std::vector<Tensor>& memory) {
  return rate_of_all([&](std::int64_t part, int threads) {
           constexpr std::int64_t page = 4096;
           double read = 0;
           for (const Tensor& x : memory) {
             const std::int64_t pages = x.numel() * static_cast<std::int64_t>(size_of(x.dtype())) / page;
             const std::int64_t first = pages * part / threads, last = pages * (part + 1) / threads;
             loops().read(static_cast<const char*>(x.data()) + first * page,
                          static_cast<std::size_t>((last - first) * page));
             read += static_cast<double>((last - first) * page);
           }
           return read;
         }) *
         1e-9;
}

std::vector<Tensor> memory_in_turn() {
  constexpr std::int64_t pieces = 8, elements = std::int64_t{1} << 23;
  static const Tensor memory = ones({pieces, elements});
  static std::int64_t turn = 0;
  return {memory.select(0, turn++ % pieces)};
}

double sample_hand_over() {
  constexpr int most_trips = 400;
  constexpr double most_seconds = 0.02;  // on a busy machine a round trip may wait for a core
  constexpr int over = -1;
  std::atomic<int> ball{0};
  std::thread other([&] {
    for (int n = 0;; ++n) {
      int seen = ball.load(std::memory_order_acquire);
      while (seen != 2 * n + 1 && seen != over) seen = ball.load(std::memory_order_acquire);
      if (seen == over) return;
      ball.store(2 * n + 2, std::memory_order_release);
    }
  });
  std::vector<double> halves;
  const double end = now() + most_seconds;
  for (int n = 0; n < most_trips && (n < 3 || now() < end); ++n) {
    const double begin = now();
    ball.store(2 * n + 1, std::memory_order_release);
    while (ball.load(std::memory_order_acquire) != 2 * n + 2) {}
    halves.push_back((now() - begin) / 2);
  }
  ball.store(over, std::memory_order_release);
  other.join();
  return median(halves) * 1e9;
}

}  // namespace attn::bench
