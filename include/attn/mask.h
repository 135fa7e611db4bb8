// include/attn/mask.h: which query may see which key, as a small expression that is never stored as Tq x Tk.
#pragma once
#include <attn/tensor.h>

#include <concepts>
#include <memory>
#include <string>
#include <vector>

namespace attn {

/// Where row 0 stands against the keys when Tq != Tk.
enum class Align {
  unset,         ///< only legal when Tq == Tk
  top_left,      ///< row i at position i: torch's is_causal
  bottom_right,  ///< the last row at the last key: FlashAttention, a KV cache
};

/// Lengths and positions of the sequences of a batch; every tensor is i64 [B], undefined takes the default.
struct Lengths {
  Tensor query_lengths = {};  ///< rows that exist; default Tq. Rows beyond give output 0
  Tensor key_lengths = {};    ///< end of the keys that exist, counted from key 0; default Tk
  Tensor key_start = {};      ///< first key that exists (left padding); default 0; the origin of key positions
  Tensor query_start = {};    ///< position of row 0 (a cache: how many keys came before); overrides the alignment
};

/// A boolean expression over (batch b, head h, row i, key j): true means "row i sees key j".
///
/// Row i stands at p = i + offset_b: offset 0 for top_left, key_count_b - query_count_b for bottom_right, or
/// query_start[b]. Key j stands at j - key_start[b]. The default Mask sees everything.
/// A value: cheap to copy, shares its tensors. Immutable, so safe to use from several threads.
class ATTN_API Mask {
 public:
  Mask() = default;
  // Copies only: what was moved from keeps its value, which would otherwise silently mean "none".
  Mask(const Mask&) = default;
  Mask& operator=(const Mask&) = default;
  // No conversions: what looks like one says what to write.
  template <std::same_as<Tensor> T>
  Mask(const T&) {
    static_assert(!sizeof(T), "attn: write Mask::attend(allowed), Mask::block(hidden) or Mask::key_padding(padding)");
  }
  template <std::same_as<bool> T>
  Mask(T) {
    static_assert(!sizeof(T), "attn: write Mask::causal()");
  }
  template <std::convertible_to<std::string> T>
  Mask(const T&) {
    static_assert(!sizeof(T), "attn: write Mask::parse(text)");
  }

  /// Keys at positions 0 ... p.
  static Mask causal(Align align = Align::unset);
  /// Keys at positions p - left ... p + right; -1 on a side: no limit on that side.
  static Mask window(std::int64_t left, std::int64_t right, Align align = Align::unset);
  /// Keys at positions 0 ... n - 1, for every row (a prefix all may see; join it with |). One n, or i64 [B].
  static Mask prefix(std::int64_t n);
  static Mask prefix(const Tensor& n);
  /// Rows and keys with the same document id. ids i64 [B, T] or [T] for self-attention, or one tensor each for rows and
  /// keys.
  static Mask documents(const Tensor& ids);
  static Mask documents(const Tensor& query_ids, const Tensor& key_ids);
  /// bool (or integer, compared with 0: transformers' attention_mask), broadcastable to [B, H, Tq, Tk]: True = takes
  /// part (SDPA, Keras, ONNX).
  static Mask attend(const Tensor& allowed);
  /// bool, broadcastable to [B, H, Tq, Tk]: True = shut out (nn.MultiheadAttention). DtypeError for integers: 1 mostly
  /// means "takes part".
  static Mask block(const Tensor& blocked);
  /// bool [B, Tk]: True = padding. DtypeError for integers, as block.
  static Mask key_padding(const Tensor& padding);
  static Mask all();
  static Mask none();

  friend ATTN_API Mask operator&(const Mask& a, const Mask& b);
  friend ATTN_API Mask operator|(const Mask& a, const Mask& b);
  friend ATTN_API Mask operator~(const Mask& a);

  /// The default Mask: everything is seen.
  bool is_all() const { return expression_ == nullptr; }
  /// "causal(bottom_right) & window(512, 0, bottom_right)".
  std::string to_string() const;
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const Mask& mask);
  /// From the same notation: causal, causal(top_left), window(3, 0), prefix(4), all, none, &, |, ~, parentheses.
  /// ValueError shows the place that was not understood and the names there are. Tensor masks have no notation.
  static Mask parse(const std::string& text);

  /// The picture, one line a row: a mark where the row sees the key, a dot where not; of more than 128 the first and
  /// last 32.
  std::string print(std::int64_t q_rows, std::int64_t k_rows, const Lengths& lengths = {}, std::int64_t batch = 0,
                    std::int64_t head = 0) const;
  /// As a dense bool [B, H, Tq, Tk] (tests, small pictures).
  Tensor dense(std::int64_t batch, std::int64_t heads, std::int64_t q_rows, std::int64_t k_rows,
               const Lengths& lengths = {}) const;
  /// What is wrong with it for these sizes: ShapeError when it does not fit; returns one line per group of rows that
  /// see nothing ("batch 1, rows 3 to 5 see no key").
  std::vector<std::string> check(std::int64_t batch, std::int64_t heads, std::int64_t q_rows, std::int64_t k_rows,
                                 const Lengths& lengths = {}) const;

  struct Expression;
  const std::shared_ptr<const Expression>& expression() const { return expression_; }
  explicit Mask(std::shared_ptr<const Expression> expression) : expression_(std::move(expression)) {}

 private:
  std::shared_ptr<const Expression> expression_;
};

}  // namespace attn
