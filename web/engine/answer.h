// web/engine/answer.h: how a function of the engine answers JavaScript: a status, and a text that is read from memory.
#pragma once
#include <cstddef>
#include <exception>
#include <new>
#include <string>

/// A function that JavaScript calls by its name.
#define ATTN_EXPORT(name) extern "C" __attribute__((export_name(#name), visibility("default")))

namespace attn::web {

/// What JavaScript has written: the text that the next function works on.
std::string& request_text();

/// The text of the last answer: a result, or the line of an error.
std::string& answer_text();

/// Keeps what `make()` returns and returns 0; keeps the error's line and returns 1 if it throws.
template <typename Make>
int answer(Make&& make) {
  try {
    answer_text() = make();
    return 0;
  } catch (const std::bad_alloc&) { answer_text() = "not enough memory"; } catch (const std::exception& error) {
    answer_text() = error.what();
  }
  return 1;
}

}  // namespace attn::web
