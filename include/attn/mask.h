// include/attn/mask.h: says which query may see which key, as a small expression that is never stored as a Tq x Tk
// matrix.
#pragma once
#include <attn/tensor.h>

#include <concepts>
#include <memory>
#include <string>
#include <vector>

namespace attn {

/// How row 0 is aligned to the keys when Tq != Tk.
enum class Align {
  unset,         ///< allowed only if Tq == Tk or query_start is given
  top_left,      ///< row i is at position i, as torch's is_causal
  bottom_right,  ///< the last row is at the last key's position, as FlashAttention and a KV cache
};

/// Lengths and positions of the sequences in a batch. Each tensor is i64 or i32 [B]; an undefined one means its
/// default.
struct Lengths {
  Tensor query_lengths = {};  ///< number of valid rows; default Tq. Later rows have output 0
  Tensor key_lengths = {};    ///< end of the valid keys, counted from key 0; default Tk
  Tensor key_start = {};      ///< first valid key (left padding), where key positions start; default 0
  Tensor query_start = {};    ///< position of row 0 (with a cache: the number of earlier keys); overrides the alignment
};

/// A boolean expression over (batch b, head h, row i, key j): true means "row i sees key j".
///
/// The position of row i is p = i + offset_b. The offset is 0 for top_left, the number of valid keys minus that of
/// valid rows for bottom_right, or query_start[b] if that is given. The position of key j is j - key_start[b]. The
/// default Mask lets every row see every key.
/// A value type: cheap to copy, copies share tensors. Immutable, so safe to use from several threads.
class ATTN_API Mask {
 public:
  Mask() = default;
  // Moving copies: a moved-from Mask would silently mean "no mask".
  Mask(const Mask&) = default;
  Mask& operator=(const Mask&) = default;
  // Deleted conversions: arguments that other libraries take as a mask give a compiler error that says what to write.
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

  /// Row at position p sees the keys at positions 0 ... p.
  static Mask causal(Align align = Align::unset);
  /// Row at position p sees the keys at positions p - left ... p + right; -1 means no limit on that side.
  static Mask window(std::int64_t left, std::int64_t right, Align align = Align::unset);
  /// Every row sees the keys at positions 0 ... n - 1 (a prefix visible to all; combine it by |). n is one number, or
  /// i64 or i32 [B].
  static Mask prefix(std::int64_t n);
  static Mask prefix(const Tensor& n);
  /// A row sees the keys with its own document id. ids is i64 or i32, [B, T] or [T], for self-attention; otherwise give
  /// one tensor for rows and one for keys.
  static Mask documents(const Tensor& ids);
  static Mask documents(const Tensor& query_ids, const Tensor& key_ids);
  /// A block of query rows sees the blocks of keys that are chosen for it (top-k blocks, a lightning indexer). indices
  /// is i64 or i32 [1 or B, H, ceil(Tq / block_rows), n]: the key blocks (j / block_keys of key j) that query block i /
  /// block_rows sees; -1 means none, a repeated index counts once, and their order does not matter. i and j are indices
  /// in the call, not positions. H divides the query heads, which share lists in groups: H = Hk is a choice per key
  /// head. The indices are copied. Blocks that no row of a tile sees take no time.
  /// Errors   DtypeError for other dtypes, ShapeError for another rank, ValueError for an index below -1 or a block of
  ///          less than 1; from the call, ShapeError for other sizes, ValueError for a block after the last key.
  /// Source   NSA (2502.11089), DeepSeek-V3.2's sparse attention (2512.02556), BigBird (2007.14062).
  static Mask blocks(const Tensor& indices, std::int64_t block);
  static Mask blocks(const Tensor& indices, std::int64_t block_rows, std::int64_t block_keys);
  /// A dense mask in which True means "takes part" (as SDPA, Keras, ONNX): bool, or integers compared with 0 (as
  /// transformers' attention_mask), broadcastable to [B, H, Tq, Tk].
  static Mask attend(const Tensor& allowed);
  /// A dense mask in which True means "masked" (as nn.MultiheadAttention): bool, broadcastable to [B, H, Tq, Tk].
  /// Integers are a DtypeError, because 1 usually means "takes part".
  static Mask block(const Tensor& blocked);
  /// A padding mask, bool [B, Tk]: True means padding. DtypeError for integers, as for `block`.
  static Mask key_padding(const Tensor& padding);
  static Mask all();
  static Mask none();

  friend ATTN_API Mask operator&(const Mask& a, const Mask& b);
  friend ATTN_API Mask operator|(const Mask& a, const Mask& b);
  friend ATTN_API Mask operator~(const Mask& a);

  /// Returns whether this is the default Mask, in which every row sees every key.
  bool is_all() const { return expression_ == nullptr; }
  /// Returns the mask as text: "causal(bottom_right) & window(512, 0, bottom_right)".
  std::string to_string() const;
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const Mask& mask);
  /// Parses the notation of to_string: causal, causal(top_left), window(3, 0), prefix(4), all, none, & | ~ ( ).
  /// ValueError shows where parsing failed and lists the known names. Masks made from tensors have no notation.
  static Mask parse(const std::string& text);

  /// Draws the mask, one line per row: a mark if the row sees the key, a dot if not. Of more than 128 rows or keys,
  /// only the first and last 32 are drawn.
  std::string print(std::int64_t q_rows, std::int64_t k_rows, const Lengths& lengths = {}, std::int64_t batch = 0,
                    std::int64_t head = 0) const;
  /// Returns the mask as a dense bool tensor [B, H, Tq, Tk] (for tests and small pictures).
  Tensor dense(std::int64_t batch, std::int64_t heads, std::int64_t q_rows, std::int64_t k_rows,
               const Lengths& lengths = {}) const;
  /// Checks the mask against these sizes. Throws ShapeError if it does not fit; returns one line per group of rows that
  /// see no key ("batch 1, rows 3 to 5 see no key").
  std::vector<std::string> check(std::int64_t batch, std::int64_t heads, std::int64_t q_rows, std::int64_t k_rows,
                                 const Lengths& lengths = {}) const;

  struct Expression;
  const std::shared_ptr<const Expression>& expression() const { return expression_; }
  explicit Mask(std::shared_ptr<const Expression> expression) : expression_(std::move(expression)) {}

 private:
  std::shared_ptr<const Expression> expression_;
};

}  // namespace attn
