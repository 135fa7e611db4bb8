// src/tensor/random_generator.cc: implements the Mersenne twister, the numbers that it draws one at a time, its state
// as bytes, and the global generator.
#include <attn/random.h>

#include "runtime/fork.h"
#include "runtime/once.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace attn {
namespace {

constexpr std::uint32_t word_count = 624;

// Offsets of the fields in the bytes of a state, as torch.get_rng_state() has them (little-endian).
constexpr std::size_t seed_at = 0, left_at = 8, seeded_at = 12, next_at = 16, words_at = 24;
constexpr std::size_t normal_at = words_at + 8 * word_count + 8, has_normal_at = normal_at + 16, state_bytes = 5056;

template <typename T>
void put(std::vector<std::uint8_t>& bytes, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
}

template <typename T>
T get(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(bytes[at + i]) << (8 * i);
  return value;
}

constexpr std::uint32_t tempered(std::uint32_t word) {
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

/// Return a number in [0, 1) from the low bits of one word, or of two.
constexpr float as_uniform(std::uint32_t word) {
  return static_cast<float>(static_cast<std::int32_t>(word & 0xffffffu)) * 0x1p-24f;
}
constexpr double as_uniform(std::uint64_t word) {
  return static_cast<double>(static_cast<std::int64_t>(word & ((std::uint64_t{1} << 53) - 1))) * 0x1p-53;
}

constinit std::mutex generator_lock;
const runtime::FreeInChild<generator_lock> generator_of_child;

}  // namespace

void Generator::manual_seed(std::uint64_t seed) {
  seed_ = seed;
  words_[0] = static_cast<std::uint32_t>(seed);
  for (std::uint32_t i = 1; i < word_count; ++i) words_[i] = 1812433253u * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
  next_ = word_count;
  has_normal_ = false;
  kept_normal_ = 0;
}

void Generator::refill() {
  constexpr std::uint32_t offset = 397;
  const auto twist = [](std::uint32_t high, std::uint32_t low) {
    const std::uint32_t joined = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (joined >> 1) ^ ((low & 1u) ? 0x9908b0dfu : 0u);
  };
  for (std::uint32_t i = 0; i < word_count - offset; ++i)
    words_[i] = words_[i + offset] ^ twist(words_[i], words_[i + 1]);
  for (std::uint32_t i = word_count - offset; i < word_count - 1; ++i)
    words_[i] = words_[i + offset - word_count] ^ twist(words_[i], words_[i + 1]);
  words_[word_count - 1] = words_[offset - 1] ^ twist(words_[word_count - 1], words_[0]);
  next_ = 0;
}

std::uint32_t Generator::u32() {
  if (next_ == word_count) refill();
  return tempered(words_[next_++]);
}

void Generator::u32(std::uint32_t* words, std::int64_t n) {
  while (n > 0) {
    if (next_ == word_count) refill();
    const std::int64_t count = std::min<std::int64_t>(n, word_count - next_);
    const std::uint32_t* from = words_.data() + next_;
    for (std::int64_t i = 0; i < count; ++i) words[i] = tempered(from[i]);
    next_ += static_cast<std::uint32_t>(count);
    words += count;
    n -= count;
  }
}

std::uint64_t Generator::u64() {
  const std::uint64_t high = u32();
  return (high << 32) | u32();
}

float Generator::uniform_f32() { return as_uniform(u32()); }

double Generator::uniform_f64() { return as_uniform(u64()); }

void Generator::uniform(float* x, std::int64_t n) {
  std::uint32_t words[word_count];
  for (std::int64_t start = 0; start < n; start += word_count) {
    const std::int64_t count = std::min<std::int64_t>(n - start, word_count);
    u32(words, count);
    for (std::int64_t i = 0; i < count; ++i) x[start + i] = as_uniform(words[i]);
  }
}

void Generator::uniform(double* x, std::int64_t n) {
  constexpr std::int64_t pairs = word_count / 2;
  std::uint32_t words[word_count];
  for (std::int64_t start = 0; start < n; start += pairs) {
    const std::int64_t count = std::min(n - start, pairs);
    u32(words, 2 * count);
    for (std::int64_t i = 0; i < count; ++i)
      x[start + i] = as_uniform(std::uint64_t{words[2 * i]} << 32 | words[2 * i + 1]);
  }
}

double Generator::normal() {
  if (has_normal_) {
    has_normal_ = false;
    return kept_normal_;
  }
  constexpr double two_pi = 2.0 * 3.14159265358979323846;
  const double u1 = uniform_f64();
  const double u2 = uniform_f64();
  const double radius = std::sqrt(-2.0 * std::log1p(-u2));
  const double angle = two_pi * u1;
  kept_normal_ = radius * std::sin(angle);
  has_normal_ = true;
  return radius * std::cos(angle);
}

std::vector<std::uint8_t> Generator::state() const {
  std::vector<std::uint8_t> bytes(state_bytes, 0);
  put<std::uint64_t>(bytes, seed_at, seed_);
  put<std::uint32_t>(bytes, left_at, word_count + 1 - next_);
  put<std::uint32_t>(bytes, seeded_at, 1);
  put<std::uint64_t>(bytes, next_at, next_);
  for (std::uint32_t i = 0; i < word_count; ++i) put<std::uint64_t>(bytes, words_at + 8 * i, words_[i]);
  std::uint64_t normal_bits = 0;
  if (has_normal_) std::memcpy(&normal_bits, &kept_normal_, sizeof normal_bits);
  put<std::uint64_t>(bytes, normal_at, normal_bits);
  put<std::uint32_t>(bytes, has_normal_at, has_normal_ ? 1 : 0);
  return bytes;
}

void Generator::set_state(const std::vector<std::uint8_t>& bytes) {
  if (bytes.size() != state_bytes)
    throw FormatError(
        "set_state: " + std::to_string(bytes.size()) + " bytes; a generator's state has " + std::to_string(state_bytes),
        std::min(bytes.size(), state_bytes));
  const auto left = get<std::uint32_t>(bytes, left_at);
  const auto next = get<std::uint64_t>(bytes, next_at);
  if (get<std::uint32_t>(bytes, seeded_at) == 0)
    throw FormatError("set_state: the state says that it was never seeded", seeded_at);
  // A freshly seeded generator is at word 0 and says that one word is left. The next draw therefore refills the words,
  // as it does after the last word.
  const bool fresh = left == 1 && next == 0;
  if (!fresh && (next == 0 || next > word_count || left != word_count + 1 - next))
    throw FormatError("set_state: next word " + std::to_string(next) + " with " + std::to_string(left) +
                          " left; next must be from 1 to 624 and left 625 - next",
                      next_at);
  for (std::uint32_t i = 0; i < word_count; ++i)
    if (get<std::uint64_t>(bytes, words_at + 8 * i) >> 32)
      throw FormatError("set_state: word " + std::to_string(i) + " is above 32 bits", words_at + 8 * i);
  for (std::uint32_t i = 0; i < word_count; ++i)
    words_[i] = static_cast<std::uint32_t>(get<std::uint64_t>(bytes, words_at + 8 * i));
  next_ = fresh ? word_count : static_cast<std::uint32_t>(next);
  seed_ = get<std::uint64_t>(bytes, seed_at);
  has_normal_ = get<std::uint32_t>(bytes, has_normal_at) != 0;
  const auto normal_bits = get<std::uint64_t>(bytes, normal_at);
  std::memcpy(&kept_normal_, &normal_bits, sizeof kept_normal_);
}

Generator& default_generator() {
  constinit static runtime::Once<std::unique_ptr<Generator>> generator;
  return *generator.get([] { return std::make_unique<Generator>(); });
}

std::mutex& default_generator_mutex() { return generator_lock; }

void manual_seed(std::uint64_t seed) {
  const std::lock_guard lock(default_generator_mutex());
  default_generator().manual_seed(seed);
}

}  // namespace attn
