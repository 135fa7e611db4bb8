// include/attn/bias.h: builds the terms that are added to the scores before the softmax.
#pragma once
#include <attn/mask.h>
#include <attn/relative.h>
#include <attn/tensor.h>

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attn {

class RelativeTerms;  // of the library

struct RelativeProductOptions {
  /// The rows that are multiplied: [B, Hq, Tq, D'], or [B, Hk, Tk, D'] with of_keys; undefined: those of q, or of k.
  Tensor operand = {};
  bool of_keys = false;                        ///< whether a key's row is multiplied instead of a query's
  std::optional<double> scale = std::nullopt;  ///< of the product; nullopt: that of the scores
  Align align = Align::unset;
};

/// A sum of terms, added in the order given, each with one rounding (docs/numerics.md section 3). A term of -inf masks
/// the pair: its k and v are then ignored, even if they are NaN.
class ATTN_API Bias {
 public:
  Bias() = default;
  // Moving copies: a moved-from Bias would silently mean "no bias".
  Bias(const Bias&) = default;
  Bias& operator=(const Bias&) = default;
  template <std::same_as<Tensor> T>
  Bias(const T&) {
    static_assert(!sizeof(T), "attn: write Bias::dense(values)");
  }
  /// A dense bias (a float mask), broadcastable to [B, Hq, Tq, Tk]. Its dtype is that of q or f32; with a 16-bit q also
  /// bf16 or f16.
  static Bias dense(const Tensor& values);
  /// ALiBi: -slopes[h] * (p - key position), where p is the row's position; slopes [Hq]. It is meant for causal masks:
  /// a key after the row gets a positive bias that grows with its distance. With `symmetric`: -slopes[h] * |p - key
  /// position|. Source: Press 2021 (2108.12409).
  static Bias alibi(const Tensor& slopes, Align align = Align::unset, bool symmetric = false);
  /// Returns the paper's slopes, f32 [heads]. If `heads` is a power of two, they are 2^(-8 (h + 1) / heads). Otherwise
  /// let n be the next lower power of two: the slopes are those for n heads, then the first, third, fifth ... of those
  /// for 2 n heads. For 3 heads: 0.0625, 0.00390625, 0.25.
  static Tensor alibi_slopes(std::int64_t heads);
  /// T5's relative position bias: table[bucket(key position - p), h], where p is the row's position; table [buckets,
  /// Hq]. Source: Raffel 2019 (1910.10683).
  static Bias relative(const Tensor& table, bool bidirectional = true, std::int64_t max_distance = 128,
                       Align align = Align::unset);

  /// A second product: c x . table[h, index(p, key position), :], where x is the row of q (or of k, or of
  /// `options.operand`), c the scale, p the row's position; table [Hq, N, D'], or [N, D'] for all heads; N is
  /// index.rows(). It is made a query tile at a time: no matrix of T rows and N columns, or of all scores, is stored.
  /// Gradient  of the table and of x: q, k or the operand.
  /// Sources   Shaw 2018 (1803.02155); Dai 2019 (1901.02860); He 2021 (2006.03654); Kirillov 2023 (2304.02643).
  static Bias relative_product(const Tensor& table, const RelativeIndex& index,
                               const RelativeProductOptions& options = {});

  friend ATTN_API Bias operator+(const Bias& a, const Bias& b);
  bool empty() const { return terms_.empty(); }
  /// Returns the terms as text: "alibi(f32 [8], bottom_right) + dense(f32 [5, 9])"; an empty text if there are no
  /// terms.
  std::string to_string() const;
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const Bias& bias);

  enum class Kind { dense, alibi, relative, product };
  struct Term {
    Kind kind;
    Tensor values;  // dense values, slopes, a table
    bool bidirectional = true;
    std::int64_t max_distance = 128;
    Align align = Align::unset;
    bool symmetric = false;  // alibi
    // a relative product
    Tensor operand = {};
    RelativeIndex index = {};
    bool of_keys = false;
    std::optional<double> scale = std::nullopt;
    std::shared_ptr<RelativeTerms> (*products)() = nullptr;  // what computes it: linked where such a term is made
  };
  const std::vector<Term>& terms() const { return terms_; }
  /// Returns the relative product `term` with other tensors; an undefined operand stands for the rows of q or k.
  static Bias with_tensors(const Term& term, const Tensor& values, const Tensor& operand);

 private:
  std::vector<Term> terms_;
};

}  // namespace attn
