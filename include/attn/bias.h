// include/attn/bias.h: what is added to the scores before the softmax.
#pragma once
#include <attn/mask.h>
#include <attn/tensor.h>

#include <concepts>
#include <string>
#include <vector>

namespace attn {

/// A sum of terms, in the order given; each term is added with one rounding (docs/numerics.md section 3).
/// -inf in a term shuts the pair out (hiding, not arithmetic).
class ATTN_API Bias {
 public:
  Bias() = default;
  // Copies only: what was moved from keeps its value, which would otherwise silently mean "none".
  Bias(const Bias&) = default;
  Bias& operator=(const Bias&) = default;
  template <std::same_as<Tensor> T>
  Bias(const T&) {
    static_assert(!sizeof(T), "attn: write Bias::dense(values)");
  }
  /// Dense, broadcastable to [B, Hq, Tq, Tk], of the dtype of q or f32, of bf16 or f16 where q is of 16 bits: a float
  /// mask.
  static Bias dense(const Tensor& values);
  /// -slopes[h] * (p - key position): slopes [Hq]. Made for causal masks: keys after the row gain by their distance,
  /// unless `symmetric`: -slopes[h] * |p - key position|. Source: Press 2021 (2108.12409).
  static Bias alibi(const Tensor& slopes, Align align = Align::unset, bool symmetric = false);
  /// The paper's slopes, f32 [heads]: 2^(-8 (h + 1) / heads) of a power of two; of others those of the power of two n
  /// below, then the first, third, fifth ... of 2 n. 3 heads: 0.0625, 0.00390625, 0.25.
  static Tensor alibi_slopes(std::int64_t heads);
  /// table[bucket(key position - p), h], T5's buckets: table [buckets, Hq]. Source: Raffel 2019 (1910.10683).
  static Bias relative(const Tensor& table, bool bidirectional = true, std::int64_t max_distance = 128,
                       Align align = Align::unset);

  friend ATTN_API Bias operator+(const Bias& a, const Bias& b);
  bool empty() const { return terms_.empty(); }
  /// "alibi(f32 [8], bottom_right) + dense(f32 [5, 9])"; empty without terms.
  std::string to_string() const;
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const Bias& bias);

  enum class Kind { dense, alibi, relative };
  struct Term {
    Kind kind;
    Tensor values;
    bool bidirectional = true;
    std::int64_t max_distance = 128;
    Align align = Align::unset;
    bool symmetric = false;  // alibi
  };
  const std::vector<Term>& terms() const { return terms_; }

 private:
  std::vector<Term> terms_;
};

}  // namespace attn
