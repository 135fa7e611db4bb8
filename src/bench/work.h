// src/bench/work.h: a case made ready to be called again and again, and what a call of it costs at least.
#pragma once
#include "bench/peak.h"
#include "verify/inputs.h"

#include <functional>

namespace attn::bench {

/// A call of the library on the inputs of a case, into memory that is there already where the function takes one.
class Work {
 public:
  /// ValueError when the result is not the specification's: a wrong answer is not measured.
  explicit Work(const cases::Case& c);

  void call();
  const cases::Case& of() const { return case_; }

  /// Multiplications and additions of the pairs that the mask and the lengths leave; a dense mask leaves all. Of
  /// additive scores the tanh instead. 0: none are counted.
  double flops() const { return flops_; }
  /// Bytes that a call must read (and write, for rows): K and V in decoding, the weights of one row; 0: not counted.
  double bytes() const { return bytes_; }
  Limit limit() const { return limit_; }
  /// Memory to sample reading from: for decoding the caches themselves, in turn.
  std::vector<Tensor> next_memory();

 private:
  void count();
  double row_bytes() const;
  void prepare_backward();
  /// Copies of K and V, so that a call finds none of them in a cache.
  void rotate();

  cases::Case case_;
  cases::Inputs inputs_;
  std::vector<std::pair<Tensor, Tensor>> caches_;
  std::vector<std::shared_ptr<const cases::Cached>> cached_;  // of cases with a cache
  std::size_t turn_ = 0;
  Tensor out_;
  std::function<Tensor()> function_;
  double flops_ = 0, bytes_ = 0;
  Limit limit_ = Limit::fma_f32;
};

}  // namespace attn::bench
