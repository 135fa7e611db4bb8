// include/attn/normalizer.h: says how the scores of a row become weights.
#pragma once
#include <attn/export.h>

#include <optional>
#include <ostream>
#include <string>

namespace attn {

/// How the scores s of a row become weights. Masked pairs have weight 0 and take part in no sum; n is the number of
/// keys of the batch item or packed sequence, masked ones included.
class ATTN_API Normalizer {
 public:
  /// exp(s) / sum exp(s).
  static Normalizer softmax();
  /// exp(s) / (1 + sum exp(s)), with the bits of a sink of 0. Source: Miller 2023 ("Attention is off by one").
  static Normalizer softmax1();
  /// sigmoid(s + bias), each pair by itself; default -log(n). Source: Ramapuram 2024 (2409.04431).
  static Normalizer sigmoid(std::optional<double> bias = std::nullopt);
  /// max(s - t, 0), t such that the weights sum to 1. Source: Martins and Astudillo 2016 (1602.02068).
  static Normalizer sparsemax();
  /// max(s / 2 - t, 0)^2, t such that the weights sum to 1. Source: Peters, Niculae and Martins 2019 (1905.05702).
  static Normalizer entmax15();
  /// scale * max(s, 0)^2, each pair by itself; scale >= 0, default 1 / n. Source: So 2021 (2109.08668), Wortsman 2023.
  static Normalizer relu_squared(std::optional<double> scale = std::nullopt);

  /// Reads what `to_string` writes: "softmax", "softmax1", "sigmoid", "sigmoid(-3.5)", "sparsemax", "entmax15",
  /// "relu_squared", "relu_squared(0.1)". ValueError for anything else.
  static Normalizer parse(const std::string& text);
  std::string to_string() const;
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const Normalizer& normalizer);

  enum class Kind { softmax, softmax1, sigmoid, sparsemax, entmax15, relu_squared };
  Kind kind = Kind::softmax;
  std::optional<double> number = std::nullopt;  ///< sigmoid: the bias; relu_squared: the scale; none: the default
};

}  // namespace attn
