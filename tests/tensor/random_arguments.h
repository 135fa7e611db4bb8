// tests/tensor/random_arguments.h: random arguments of a call of the library, many of them wrong.
#pragma once
#include <attn/attn.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace attn::testing {

/// Arguments of one call, drawn from a pool of tensors and from numbers where sizes and indices go wrong.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  std::int64_t whole() {
    constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max(),
                           near = std::numeric_limits<std::int64_t>::min();
    constexpr std::int64_t numbers[] = {-3,
                                        -2,
                                        -1,
                                        0,
                                        1,
                                        2,
                                        3,
                                        4,
                                        7,
                                        50,
                                        far,
                                        far - 1,
                                        near,
                                        near + 1,
                                        far / 2,
                                        std::int64_t{1} << 50,
                                        -(std::int64_t{1} << 50),
                                        std::int64_t{1} << 32};
    const std::int64_t n = below(40);  // mostly what may be right
    return n < 18 ? numbers[n] : below(5);
  }
  /// Of new memory: as many as there may be, or far too many.
  std::int64_t size() {
    std::int64_t n = whole();
    while (n > 50 && n < std::int64_t{1} << 50) n = whole();
    return n;
  }
  int dim() { return static_cast<int>(below(9) - 4); }
  Dims sizes() {
    Dims result;
    for (std::int64_t n = below(5); n > 0; --n) result.push_back(size());
    return result;
  }
  Dims dims() {
    Dims result;
    for (std::int64_t n = below(4); n > 0; --n) result.push_back(below(3) == 0 ? whole() : dim());
    return result;
  }
  double number() {
    constexpr double numbers[] = {0,
                                  -1,
                                  1,
                                  0.5,
                                  1e308,
                                  -1e308,
                                  1e-320,
                                  std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN(),
                                  3,
                                  1e20};
    return numbers[below(12)];
  }
  Scalar scalar() { return below(2) == 0 ? Scalar(number()) : Scalar(whole()); }
  Dtype dtype() {
    constexpr Dtype dtypes[] = {Dtype::f32, Dtype::f64, Dtype::bf16,   Dtype::f16,
                                Dtype::i64, Dtype::i32, Dtype::boolean};
    return dtypes[below(7)];
  }
  Tensor tensor() {
    if (below(60) == 0) return {};
    Dims small;
    for (std::int64_t n = below(5); n > 0; --n) small.push_back(below(4));
    Tensor x = arange(small.product()).reshape(small).to(dtype());
    if (below(4) == 0 && is_floating(x.dtype())) x.requires_grad_();
    for (std::int64_t n = below(3); n > 0; --n) x = seen(x);
    return x;
  }
  std::vector<Tensor> tensors() {
    std::vector<Tensor> result;
    for (std::int64_t n = below(4); n > 0; --n)
      result.push_back(below(2) == 0 || result.empty() ? tensor() : result.front());
    return result;
  }
  std::string text() {
    constexpr const char* parts[] = {"i",       "j",  "ab", "->",      ",",    "...", " ", "\x1b[31m", "\xff", "causal",
                                     "window(", "3",  ")",  "(",       "&",    "|",   "~", "s",        "-",    "*",
                                     "é",       "。", "\n", "prefix(", "none", "[",   "]", "1e999"};
    std::string result;
    for (std::int64_t n = below(9); n > 0; --n) result += parts[below(28)];
    if (below(20) == 0) result.append(static_cast<std::size_t>(below(100000)), '~');
    return result;
  }

 private:
  /// A view, most of them with many elements over few bytes, or none.
  Tensor seen(const Tensor& x) {
    try {
      switch (below(6)) {
        case 0: return x.transpose(dim(), dim());
        case 1: return x.slice(dim(), whole(), whole(), below(3) + 1);
        case 2: return x.unsqueeze(dim());
        case 3: return x.numel() == 0 ? empty({0, std::int64_t{1} << 40, std::int64_t{1} << 40}, x.dtype()) : x;
        case 4: return x.detach();
        default: return x.flatten(dim(), dim());
      }
    } catch (const Error&) { return x; }
  }
  std::mt19937_64 random_;
};

}  // namespace attn::testing
