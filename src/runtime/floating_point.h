// src/runtime/floating_point.h: sets the default floating-point environment for a scope and restores the caller's
// afterwards.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace attn::runtime {

#if defined(__x86_64__)

/// Sets rounding to nearest, no flushing of denormals, and masked exceptions. The destructor restores the caller's
/// MXCSR, sticky flags included, and x87 control word. Both are read and written directly, because fegetenv and
/// fesetenv cost tens of nanoseconds.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() : sse_(_mm_getcsr()), x87_(x87()) { enforce(sse_, x87_); }
  ~DefaultFloatingPoint() {
    if (x87() != x87_) set_x87(x87_);
    if (_mm_getcsr() != sse_) _mm_setcsr(sse_);
  }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

  /// Sets the defaults again, in case a part of the work has changed them.
  void enforce() { enforce(_mm_getcsr(), x87()); }

 private:
  static void enforce(unsigned sse, unsigned short control) {
    constexpr unsigned control_bits = 0xFFC0, default_bits = 0x1F80;
    constexpr unsigned short default_x87 = 0x037F;
    if ((sse & control_bits) != default_bits) _mm_setcsr(default_bits);
    if (control != default_x87) set_x87(default_x87);
  }
  static unsigned short x87() {
    unsigned short now;
    asm volatile("fnstcw %0" : "=m"(now));
    return now;
  }
  static void set_x87(unsigned short wanted) { asm volatile("fldcw %0" : : "m"(wanted)); }
  unsigned sse_;
  unsigned short x87_;
};

#else

class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() {
    std::fegetenv(&saved_);
    enforce();
  }
  ~DefaultFloatingPoint() { std::fesetenv(&saved_); }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;
  void enforce() { std::fesetenv(FE_DFL_ENV); }

 private:
  std::fenv_t saved_;
};

#endif

}  // namespace attn::runtime
