// tests/kernels/row_targets.h: tests of the row kernels of every instruction set: which there are, and results compared
// as bytes.
#pragma once
#include "kernels/rows/target.h"
#include "runtime/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace attn::kernels {

template <typename T>
constexpr Element element_for = sizeof(T) == 8 ? Element::f64 : Element::f32;

template <typename T>
::testing::AssertionResult same_bytes(const std::vector<T>& ours, const std::vector<T>& specification,
                                      const std::vector<T>& given) {
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (std::memcmp(&ours[i], &specification[i], sizeof(T)) != 0)
      return ::testing::AssertionFailure()
             << "element " << i << " of " << ours.size() << " (" << std::hexfloat
             << given[std::min(i, given.size() - 1)] << "): " << ours[i] << " is not " << specification[i];
  return ::testing::AssertionSuccess();
}

/// A suite of tests that runs once for every instruction set: its parameter is the name.
class RowTargetTest : public ::testing::TestWithParam<std::string> {
 protected:
  const RowTarget& target() const { return *row_target(GetParam().c_str()); }
};

inline std::vector<std::string> vector_targets() {
  std::vector<std::string> names = runtime::targets();
  names.pop_back();  // scalar: the specification itself
  return names;
}

}  // namespace attn::kernels
