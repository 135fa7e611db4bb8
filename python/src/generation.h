// python/src/generation.h: reads the options of generation from Python, with its functions and what they keep alive.
#pragma once
#include "models.h"

#include <chrono>
#include <memory>

namespace attn::python {

/// The options of a call, and the objects that they point to.
struct Given {
  GenerateTextOptions options;
  ModelCacheOptions cache;  // storage, window and sinks
  bool has_cache = false;   // some of these are given
  PyModelCache* model_cache = nullptr;
  nb::object model_cache_object, draft;

  /// `options`: a dict by the names of C++; None stands for the default. Errors begin with `function`.
  Given(const char* function, const PyModel& model, const nb::dict& options);
};

/// Returns a function of text pieces that calls a Python function with `arguments(piece)`; an empty one for None. A
/// call that returns False ends the text.
std::function<bool(std::size_t, std::string_view)> text_function(const char* function, nb::handle x, bool with_index);

/// Returns (text, tokens, finish, log_probabilities or None, guessed, guessed_right).
nb::tuple shown(const GeneratedText& said, bool log_probabilities);

}  // namespace attn::python
