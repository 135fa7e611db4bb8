// web/engine/lsda.h: reads a function's table of catch clauses (language-specific data area) as LLVM writes it for
// WebAssembly. Source: Itanium C++ ABI, exception handling tables; the DWARF standard's LEB128.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace attn::web {

/// Reads an unsigned number of 7 bits a byte and moves behind it.
inline std::size_t read_unsigned(const std::uint8_t*& at) {
  std::size_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const std::uint8_t byte = *at++;
    value |= static_cast<std::size_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

/// Does the same for a signed number: bit 6 of the last byte is its sign.
inline std::ptrdiff_t read_signed(const std::uint8_t*& at) {
  std::size_t value = 0;
  for (unsigned shift = 0;;) {
    const std::uint8_t byte = *at++;
    value |= static_cast<std::size_t>(byte & 0x7f) << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    if ((byte & 0x40) != 0 && shift < 8 * sizeof value) value |= ~std::size_t{0} << shift;
    return static_cast<std::ptrdiff_t>(value);
  }
}

/// The table: landing pads, each with the place of its first action; actions, each a catch clause and the way to the
/// next; addresses of the clauses' types, counted backwards from their end.
class Lsda {
 public:
  explicit Lsda(const std::uint8_t* at) {
    if (at == nullptr) return;
    constexpr std::uint8_t omitted = 0xff;
    if (*at++ != omitted) std::abort();  // where landing pads start: WebAssembly has no such address
    if (*at++ != omitted) {              // the encoding of types: plain addresses
      const std::size_t to_types = read_unsigned(at);
      types_end_ = at + to_types;
    }
    ++at;  // the encoding of the table of landing pads: unsigned numbers
    const std::size_t length = read_unsigned(at);
    pads_ = at;
    actions_ = at + length;
  }

  /// Calls take(number, type) for the catch clauses of a landing pad until it returns true; the type of catch (...) is
  /// null. A landing pad that only cleans up has none.
  template <typename Take>
  void for_each_clause(std::size_t landing_pad, Take take) const {
    if (pads_ == nullptr) return;
    const std::uint8_t* at = pads_;
    std::size_t action = 0;
    for (std::size_t pad = 0; pad <= landing_pad; ++pad) {
      read_unsigned(at);  // its number
      action = read_unsigned(at);
    }
    if (action == 0) return;
    for (at = actions_ + action - 1;;) {
      const std::ptrdiff_t clause = read_signed(at);
      if (clause < 0) std::abort();  // a list of the exceptions that a function may throw: not in C++20
      if (clause > 0 && take(static_cast<std::size_t>(clause), type(clause))) return;
      const std::uint8_t* const here = at;
      const std::ptrdiff_t step = read_signed(at);
      if (step == 0) return;
      at = here + step;
    }
  }

 private:
  const void* type(std::ptrdiff_t clause) const { return *(reinterpret_cast<const void* const*>(types_end_) - clause); }
  const std::uint8_t* types_end_ = nullptr;
  const std::uint8_t* pads_ = nullptr;
  const std::uint8_t* actions_ = nullptr;
};

}  // namespace attn::web
