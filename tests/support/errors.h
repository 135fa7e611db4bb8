// tests/support/errors.h: returns the exact text of an error.
#pragma once
#include <attn/error.h>

#include <gtest/gtest.h>

#include <string>

namespace attn::testing {

/// Returns the text of the `E` that `call` throws; adds a test failure if it throws nothing or another type.
template <typename E, typename F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const E& error) { return error.what(); } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace attn::testing
