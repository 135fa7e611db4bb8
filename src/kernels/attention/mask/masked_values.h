// src/kernels/attention/mask/masked_values.h: the one rule for NaN and infinities in masked values, and what every pass
// calls to keep it; masked_values-inl.h has the part with vectors.
//
//  The rule (docs/numerics.md section 3.3): a masked pair takes part in no operation, so its K, V, Q and dO may hold
// NaN or infinities. A product with the weight 0 keeps it for finite numbers only, because 0 x NaN and 0 x inf are NaN.
// A pass that multiplies by weights of 0 keeps it in one of these ways:
//
//   recompute     The products take every number. When a result is not a number, nothing of the tile counts, and its
//                 rows are computed again with masked pairs left out: by the reference code, or in bf16 by
//                 `nan_safe_rows`, with MaskedKeys. All forward passes, forward mode, and backward in f32 and f64.
//   finite or 0   A factor that is not finite counts as 0 in the product; what it gives to the pairs that are seen
//                 comes from the other factor, which is NaN then, or is added separately. Backward in bf16.
#pragma once
#include <limits>

namespace attn::kernels {

/// What to do when a result is not a number: return false to the caller, which recomputes, or write it, because masked
/// pairs were left out.
enum class IfNan : bool { recompute, write };

/// Returns x, or the canonical NaN for any NaN: which operand's NaN an operation returns depends on the compiler.
template <typename T>
T canonical(T x) {
  return x == x ? x : std::numeric_limits<T>::quiet_NaN();
}

/// The masked keys of a block for a row that is computed alone, whose values then count as 0.
template <int KEYS>
class MaskedKeys {
 public:
  /// Must be called if masked values are to be left out.
  void leave_out() { used_ = true; }
  bool used() const { return used_; }
  /// Sets which of the keys are masked: is_masked(key).
  template <class F>
  void note(int keys, F&& is_masked) {
    for (int r = 0; used_ && r < keys; ++r) masked_[r] = is_masked(r);
  }
  /// Returns one bool for each key; null if no value is left out.
  const bool* keys() const { return used_ ? masked_ : nullptr; }

 private:
  bool used_ = false;
  bool masked_[KEYS];
};

}  // namespace attn::kernels
