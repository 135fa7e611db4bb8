// src/bench/work.h: prepares a case to be called again and again, and counts the minimum cost of a call.
#pragma once
#include "bench/peak.h"
#include "verify/inputs.h"

#include <functional>

namespace attn::bench {

/// Calls the library on the inputs of a case. The result goes to preallocated memory if the function takes `out`.
class Work {
 public:
  /// Throws ValueError if a checked part of the result is not that of the reference code, because a wrong result must
  /// not be measured. Three rows are checked, and all gradients of small cases.
  explicit Work(const cases::Case& c);

  void call();
  const cases::Case& of() const { return case_; }

  /// Returns the multiplications and additions for the pairs that mask expressions, packed sequences and lengths leave;
  /// a dense mask leaves all pairs. For additive scores returns the number of tanh instead. 0: not counted.
  double flops() const { return flops_; }
  /// Returns the bytes that a call must read (and write, for row operations): K and V in decoding, the weights for a
  /// product with one row. 0: not counted.
  double bytes() const { return bytes_; }
  Limit limit() const { return limit_; }
  /// Returns the memory for the next sample of the read limit: for decoding without a KV cache the copies of K and V in
  /// turn, if they are large enough, else memory_in_turn().
  std::vector<Tensor> next_memory();

 private:
  void count();
  double row_bytes() const;
  /// Returns the bytes of all keys and values; values that are in the keys count once.
  std::int64_t kv_bytes() const;
  void prepare_backward();
  void prepare_recurrent();
  void prepare_jvp();
  void check_all_results() const;
  double recurrent_flops() const;
  /// Copies K and V several times; calls read the copies in turn, so that none is in a CPU cache.
  void rotate();

  cases::Case case_;
  cases::Inputs inputs_;
  std::vector<std::pair<Tensor, Tensor>> caches_;
  std::vector<std::shared_ptr<const cases::Cached>> cached_;  // for cases with a KV cache
  std::size_t turn_ = 0;
  Tensor out_;
  std::function<Tensor()> function_;
  double flops_ = 0, bytes_ = 0;
  Limit limit_ = Limit::fma_f32;
};

}  // namespace attn::bench
