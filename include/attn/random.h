// include/attn/random.h: draws torch's random numbers, bit for bit (PyTorch 2.13, CPU, AVX2 or AVX-512 kernels).
#pragma once
#include <attn/tensor.h>

#include <array>
#include <mutex>

namespace attn {

/// mt19937 with torch's extra state: the second normal number of a pair, kept by the scalar path. Not thread-safe; the
/// global generator has a lock.
class ATTN_API Generator {
 public:
  explicit Generator(std::uint64_t seed = 67280421310721ull) { manual_seed(seed); }
  /// Seeds with the low 32 bits; drops the stored normal number.
  void manual_seed(std::uint64_t seed);
  std::uint64_t initial_seed() const { return seed_; }
  std::uint32_t u32();
  /// Writes the next n words, the same as n calls would return.
  void u32(std::uint32_t* words, std::int64_t n);
  /// Returns two words joined; the first is the high half.
  std::uint64_t u64();
  /// Returns a uniform number in [0, 1) from 24 bits of one word.
  float uniform_f32();
  /// Returns a uniform number in [0, 1) from 53 bits of two words.
  double uniform_f64();
  /// Writes n numbers, the same as n calls of uniform_f32 or uniform_f64.
  void uniform(float* x, std::int64_t n);
  void uniform(double* x, std::int64_t n);
  /// Draws one normal number by the scalar path (double; keeps the second of each pair).
  double normal();
  /// Returns the whole state (words, position, seed, stored normal) as bytes, and restores it; other bytes are a
  /// FormatError.
  std::vector<std::uint8_t> state() const;
  void set_state(const std::vector<std::uint8_t>& bytes);

 private:
  void refill();
  std::array<std::uint32_t, 624> words_{};
  std::uint32_t next_ = 624;
  std::uint64_t seed_ = 0;
  bool has_normal_ = false;
  double kept_normal_ = 0;
};

/// Seeds the global generator.
ATTN_API void manual_seed(std::uint64_t seed);
/// Returns the global generator, and the lock that a caller must hold while it uses that generator directly; the
/// functions below take the lock themselves.
ATTN_API Generator& default_generator();
ATTN_API std::mutex& default_generator_mutex();

// Without a generator these use the global one, under its lock.
ATTN_API Tensor rand(Dims sizes, Dtype dtype = Dtype::f32);
ATTN_API Tensor rand(Dims sizes, Generator& generator, Dtype dtype = Dtype::f32);
ATTN_API Tensor randn(Dims sizes, Dtype dtype = Dtype::f32);
ATTN_API Tensor randn(Dims sizes, Generator& generator, Dtype dtype = Dtype::f32);
/// Draws i64 numbers in [low, high).
ATTN_API Tensor randint(std::int64_t low, std::int64_t high, Dims sizes);
ATTN_API Tensor randint(std::int64_t low, std::int64_t high, Dims sizes, Generator& generator);
ATTN_API Tensor randperm(std::int64_t n);
ATTN_API Tensor randperm(std::int64_t n, Generator& generator);

// These fill the tensor in place, in its memory order, and return it.
ATTN_API Tensor uniform_(Tensor x, double low = 0, double high = 1);
ATTN_API Tensor uniform_(Tensor x, double low, double high, Generator& generator);
ATTN_API Tensor normal_(Tensor x, double mean = 0, double std = 1);
ATTN_API Tensor normal_(Tensor x, double mean, double std, Generator& generator);
ATTN_API Tensor bernoulli_(Tensor x, double p = 0.5);
ATTN_API Tensor bernoulli_(Tensor x, double p, Generator& generator);
ATTN_API Tensor exponential_(Tensor x, double lambda = 1);
ATTN_API Tensor exponential_(Tensor x, double lambda, Generator& generator);
/// Draws 0 or 1 in p's shape and dtype: each element is 1 with the probability that p gives for it.
ATTN_API Tensor bernoulli(const Tensor& p);
ATTN_API Tensor bernoulli(const Tensor& p, Generator& generator);
/// Draws indices into the last dim of [weights] or [rows, weights], in proportion to the weights.
ATTN_API Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement = false);
ATTN_API Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement, Generator& generator);
/// Computes x * keep / (1 - p); draws nothing if p = 0, p = 1 or training = false.
ATTN_API Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
ATTN_API Tensor dropout(const Tensor& x, double p, bool training, Generator& generator);

}  // namespace attn
