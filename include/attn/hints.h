// include/attn/hints.h: lists option names of other libraries: setting one is a compiler error that says what to write
// in attn.
#pragma once

/// Types of fields that hold nothing and accept no value: code that sets such a field gets the text as a compiler
/// error.
namespace attn::hints {

struct Causal {
  constexpr Causal() = default;
  template <typename T>
  constexpr Causal(const T&) {
    static_assert(!sizeof(T), "attn: write .mask = Mask::causal(); where Tq != Tk Mask::causal(Align::bottom_right)");
  }
};

struct AttnMask {
  constexpr AttnMask() = default;
  template <typename T>
  constexpr AttnMask(const T&) {
    static_assert(!sizeof(T), "attn: write .mask = Mask::attend(allowed), or .bias = Bias::dense(added)");
  }
};

struct Window {
  constexpr Window() = default;
  template <typename T>
  constexpr Window(const T&) {
    static_assert(!sizeof(T), "attn: write .mask = Mask::window(left, right)");
  }
};

struct EnableGqa {
  constexpr EnableGqa() = default;
  template <typename T>
  constexpr EnableGqa(const T&) {
    static_assert(!sizeof(T), "attn: leave it out: k and v may always have fewer heads than q");
  }
};

struct Dropout {
  constexpr Dropout() = default;
  template <typename T>
  constexpr Dropout(const T&) {
    static_assert(!sizeof(T), "attn: write .dropout_p = 0.1");
  }
};

struct NeedWeights {
  constexpr NeedWeights() = default;
  template <typename T>
  constexpr NeedWeights(const T&) {
    static_assert(!sizeof(T), "attn: write .weights = Weights::full");
  }
};

/// The type of `mask` and `causal` in SdpaOptions: names that torch's function does not have.
struct SdpaMask {
  constexpr SdpaMask() = default;
  template <typename T>
  constexpr SdpaMask(const T&) {
    static_assert(!sizeof(T), "attn: write .attn_mask = a tensor, or .is_causal = true; a Mask is for attn::attention");
  }
};

}  // namespace attn::hints
