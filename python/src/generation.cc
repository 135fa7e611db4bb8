// python/src/generation.cc: binds generation with a language model: options, functions of the caller, streams.
#include "generation.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "gil.h"
#include "integers.h"
#include "frameworks.h"
#include "terms.h"

#include <string_view>
#include <utility>

namespace attn::python {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t longest_ngram = 3;  // as in the command
constexpr std::int64_t usual_sinks = 4;

/// A function of the caller. Copies share the reference, so that copying needs no GIL; the last one is destroyed with
/// the object of the call, with the GIL held.
using Function = std::shared_ptr<nb::object>;

Function function_of(nb::handle x, const Argument& at) {
  if (PyCallable_Check(x.ptr()) == 0)
    throw type_error("{}: {} is a {}; a function is needed", at.function, at.name, name_of_type(x));
  return std::make_shared<nb::object>(nb::borrow(x));
}

/// Returns what a function said: None or true means to go on.
bool goes_on(const nb::object& result, const Argument& at) { return result.is_none() || flag(result, at); }

struct Reading {
  const char* function;
  const PyModel& model;
  Given& to;
  std::int64_t sinks = -1;
  bool draft_tokens = false;
};

struct Option {
  const char* name;
  void (*set)(Reading& r, nb::handle given);
};

template <double SampleOptions::* member>
void set_number(Reading& r, nb::handle x, const char* name) {
  r.to.options.tokens.sample.*member = number(x, {r.function, name});
}

void set_stop(Reading& r, nb::handle x) {
  const Argument at{r.function, "stop"};
  if (PyUnicode_Check(x.ptr())) {
    r.to.options.stop = {word(x, at)};
  } else {
    if (!PyList_Check(x.ptr()) && !PyTuple_Check(x.ptr()))
      throw type_error("{}: stop is a {}; a text or a list of texts is needed", r.function, name_of_type(x));
    for (nb::handle each : x) r.to.options.stop.push_back(word(each, {r.function, "a text of stop"}));
  }
  if (!r.to.options.stop.empty() && !r.model.tokenizer)
    throw ValueError(text("{}: stop is given, and the model has no tokenizer", r.function));
}

void set_cache(Reading& r, nb::handle x) {
  if (x.is(Py_False)) {
    r.to.options.tokens.cache = false;
    return;
  }
  r.to.cache.storage = choice(x, {r.function, "cache"}, {"same", "int8"}) == 0 ? KvStorage::same : KvStorage::int8;
  r.to.has_cache = r.to.has_cache || r.to.cache.storage == KvStorage::int8;
}

void set_draft(Reading& r, nb::handle x) {
  Draft& draft = r.to.options.tokens.draft;
  if (PyUnicode_Check(x.ptr())) {
    choice(x, {r.function, "draft"}, {"ngram"});
    draft.ngram = longest_ngram;
    return;
  }
  const PyModel* const model = as<PyModel>(x);
  if (model == nullptr)
    throw type_error("{}: draft is a {}; an attn.LanguageModel or \"ngram\" is needed", r.function, name_of_type(x));
  if (r.model.tokenizer && model->tokenizer)
    check_draft_tokens(*r.model.tokenizer, *model->tokenizer, model->path.empty() ? "model" : model->path);
  draft.model = &model->model;
  r.to.draft = nb::borrow(x);
}

void set_on_logits(Reading& r, nb::handle x) {
  r.to.options.tokens.on_logits = [f = function_of(x, {r.function, "on_logits"})](std::size_t index, const Ids& said,
                                                                                  const Tensor& logits) {
    const Locked locked;
    (*f)(index, said, to_python(logits, Framework::numpy));
  };
}

void set_on_token(Reading& r, nb::handle x) {
  r.to.options.tokens.on_token = [f = function_of(x, {r.function, "on_token"}), at = r.function](std::size_t index,
                                                                                                 std::int64_t token) {
    const Locked locked;
    return goes_on((*f)(index, token), {at, "what on_token returned"});
  };
}

constexpr Option all_options[] = {
    {"tokens", [](Reading& r, nb::handle x) { r.to.options.tokens.tokens = whole(x, {r.function, "tokens"}); }},
    {"temperature", [](Reading& r, nb::handle x) { set_number<&SampleOptions::temperature>(r, x, "temperature"); }},
    {"top_k", [](Reading& r, nb::handle x) { r.to.options.tokens.sample.top_k = whole(x, {r.function, "top_k"}); }},
    {"top_p", [](Reading& r, nb::handle x) { set_number<&SampleOptions::top_p>(r, x, "top_p"); }},
    {"min_p", [](Reading& r, nb::handle x) { set_number<&SampleOptions::min_p>(r, x, "min_p"); }},
    {"repetition_penalty",
     [](Reading& r, nb::handle x) { set_number<&SampleOptions::repetition_penalty>(r, x, "repetition_penalty"); }},
    {"seed", [](Reading& r, nb::handle x) { r.to.options.tokens.seed = seed(x, {r.function, "seed"}); }},
    {"samples", [](Reading& r, nb::handle x) { r.to.options.tokens.samples = whole(x, {r.function, "samples"}); }},
    {"stop", set_stop},
    {"end_tokens",
     [](Reading& r, nb::handle x) { r.to.options.tokens.end_tokens = ids_of(x, {r.function, "end_tokens"}); }},
    {"cache", set_cache},
    {"window",
     [](Reading& r, nb::handle x) {
       r.to.cache.window = whole(x, {r.function, "window"});
       r.to.has_cache = r.to.has_cache || r.to.cache.window != 0;
     }},
    {"sinks",
     [](Reading& r, nb::handle x) {
       r.sinks = whole(x, {r.function, "sinks"});
       if (r.sinks < 0) throw ValueError(text("{}: sinks is {}; it must be 0 or more", r.function, r.sinks));
     }},
    {"model_cache",
     [](Reading& r, nb::handle x) {
       r.to.model_cache = as<PyModelCache>(x);
       if (r.to.model_cache == nullptr)
         throw type_error("{}: model_cache is a {}; an attn.ModelCache is needed", r.function, name_of_type(x));
       r.to.model_cache_object = nb::borrow(x);
     }},
    {"draft", set_draft},
    {"draft_tokens",
     [](Reading& r, nb::handle x) {
       r.to.options.tokens.draft.tokens = whole(x, {r.function, "draft_tokens"});
       r.draft_tokens = true;
     }},
    {"log_probabilities",
     [](Reading& r, nb::handle x) {
       r.to.options.tokens.log_probabilities = flag(x, {r.function, "log_probabilities"});
     }},
    {"on_logits", set_on_logits},
    {"on_token", set_on_token},
    {"on_text", [](Reading& r, nb::handle x) { r.to.options.on_text = text_function(r.function, x, true); }},
};

}  // namespace

Given::Given(const char* function, const PyModel& model, const nb::dict& given) {
  Reading reading{.function = function, .model = model, .to = *this};
  set_options(function, given, all_options, reading);
  const Draft& draft = options.tokens.draft;
  if (reading.draft_tokens && draft.model == nullptr && draft.ngram == 0)
    throw ValueError(text("{}: draft_tokens is given without a draft", function));
  if (reading.sinks >= 0 && cache.window == 0) throw ValueError(text("{}: sinks is given without a window", function));
  if (model_cache != nullptr && (has_cache || !options.tokens.cache))
    throw ValueError(text("{}: model_cache is given beside cache or window, which it has of its own", function));
  if (has_cache && !options.tokens.cache)
    throw ValueError(
        text("{}: cache is False and window is {}; without a cache there is no window", function, cache.window));
  cache.dtype = model.model.dtype();
  if (cache.window != 0) cache.sinks = reading.sinks >= 0 ? reading.sinks : usual_sinks;
  options.tokens.on_pass = Interrupts();
}

std::function<bool(std::size_t, std::string_view)> text_function(const char* function, nb::handle x, bool with_index) {
  return [f = function_of(x, {function, "on_text"}), function, with_index](std::size_t index, std::string_view piece) {
    const Locked locked;
    const nb::str said(piece.data(), piece.size());
    return goes_on(with_index ? (*f)(index, said) : (*f)(said), {function, "what on_text returned"});
  };
}

nb::tuple shown(const GeneratedText& said, bool log_probabilities) {
  constexpr const char* finishes[] = {"length", "end", "stop", "stopped"};
  return nb::make_tuple(said.text, said.tokens, finishes[static_cast<int>(said.finish)],
                        log_probabilities ? nb::cast(said.log_probabilities) : nb::none(), said.guessed,
                        said.guessed_right);
}

namespace {

constexpr const char* generate_name = "generate";

/// The texts to go on with. `one`: a single one was given, and not a list.
struct Prompts {
  std::vector<Ids> ids;
  bool one = true;
};

bool is_list(nb::handle x) { return PyList_Check(x.ptr()) || PyTuple_Check(x.ptr()); }

bool has_dims(nb::handle x) { return (is_numpy(x) || is_torch(x)) && nb::cast<std::int64_t>(x.attr("ndim")) > 0; }

Ids encoded(const PyModel& model, nb::handle x, const std::string& name) {
  if (!PyUnicode_Check(x.ptr())) return ids_of(x, {generate_name, name.c_str()});
  if (!model.tokenizer)
    throw ValueError(text("{}: {} is a text, and the model has no tokenizer; give its ids", generate_name, name));
  const std::string words = word(x, {generate_name, name.c_str()});
  const Unlocked unlocked;
  try {
    return model.tokenizer->encode(words, /*add_special=*/true);
  } catch (const ValueError& error) { throw ValueError(text("{}: {}: {}", generate_name, name, error.what())); }
}

Prompts prompts_of(const PyModel& model, nb::handle x) {
  Prompts prompts;
  if (has_dims(x) && nb::cast<std::int64_t>(x.attr("ndim")) == 2) {
    prompts.one = false;
    for (nb::handle row : x) prompts.ids.push_back(encoded(model, row, text("prompt {}", prompts.ids.size())));
    return prompts;
  }
  if (is_list(x) && nb::len(x) > 0) {
    const nb::object first = x[0];
    prompts.one = !PyUnicode_Check(first.ptr()) && !is_listed(first) && !has_dims(first);
  }
  if (prompts.one) {
    prompts.ids.push_back(encoded(model, x, "prompt"));
    return prompts;
  }
  for (nb::handle each : x) prompts.ids.push_back(encoded(model, each, text("prompt {}", prompts.ids.size())));
  return prompts;
}

/// A generation in steps. It holds all that the library's object points to.
struct PyGeneration {
  nb::object model_object;
  Given given;
  std::optional<ModelCache> own_cache;
  std::vector<std::string> pieces;  // said in the current step, of a stream
  std::optional<TextGeneration> run;
  bool one = true, busy = false, log_probabilities = false;

  PyGeneration(nb::handle of_model, nb::handle prompt, const nb::dict& options, bool streams)
      : model_object(nb::borrow(of_model)),
        given(generate_name, model_of(of_model, {generate_name, "model"}), options) {
    const PyModel& model = *as<PyModel>(of_model);
    const Prompts prompts = prompts_of(model, prompt);
    GenerateTextOptions& to = given.options;
    const auto count = static_cast<std::int64_t>(prompts.ids.size());
    const bool fit = count > 0 && to.tokens.samples <= ModelCacheOptions::most_sequences / count;
    const std::int64_t texts = fit ? count * to.tokens.samples : 0;  // generate says if there are too many
    if (streams) {
      if (texts > 1) throw ValueError(text("stream: there are {} texts; it is for one", texts));
      to.on_text = [this](std::size_t, std::string_view piece) {
        pieces.emplace_back(piece);
        return true;
      };
    }
    one = prompts.one && to.tokens.samples == 1;
    log_probabilities = to.tokens.log_probabilities;
    if (given.model_cache != nullptr) {
      to.tokens.model_cache = &given.model_cache->cache;
    } else if (given.has_cache && texts > 0) {
      given.cache.sequences = texts;
      if (to.tokens.samples > 1) given.cache.page_rows = 64;  // samples share the pages of their prompt
      own_cache.emplace(model.model.config, given.cache);
      to.tokens.model_cache = &*own_cache;
    }
    run.emplace(model.model, model.tokenizer.value_or(Tokenizer()), prompts.ids, to);
  }
  PyGeneration(const PyGeneration&) = delete;
  PyGeneration& operator=(const PyGeneration&) = delete;

  /// Runs `f` without the GIL, while nobody else uses this or the cache.
  template <typename F>
  auto alone(F f) {
    const InUse in_use(busy, "TextStream");
    std::optional<InUse> cache_in_use;
    if (given.model_cache != nullptr) cache_in_use.emplace(given.model_cache->busy, "ModelCache");
    const Unlocked unlocked;
    return f();
  }

  nb::list texts() {
    const std::vector<GeneratedText> all = alone([&] { return run->texts(); });
    nb::list result;
    for (const GeneratedText& each : all) result.append(shown(each, log_probabilities));
    return result;
  }
};

/// Returns the texts, and whether there is one for the caller and not a list.
nb::tuple generated(nb::handle model, nb::handle prompt, const nb::dict& options) {
  PyGeneration generation(model, prompt, options, false);
  generation.alone([&] {
    while (generation.run->step()) {}
  });
  return nb::make_tuple(generation.texts(), generation.one);
}

/// Returns the pieces that a step said, and whether the text goes on. An error keeps them for the next step.
std::pair<std::vector<std::string>, bool> step(PyGeneration& self) {
  const bool more = self.alone([&] {
    const bool open = self.run->step();
    if (!open) self.run->texts();  // leaves nothing but the text in the caller's cache
    return open;
  });
  return {std::exchange(self.pieces, {}), more};
}

}  // namespace

void add_generation(nb::module_& m) {
  nb::class_<PyGeneration>(m, "TextGeneration", "A generation in steps; attn.TextStream is the public class.")
      .def(
          "__init__",
          [](PyGeneration* self, nb::handle model, nb::handle prompt, nb::dict options) {
            new (self) PyGeneration(model, prompt, options, true);
          },
          nb::arg("model").none(), nb::arg("prompt").none(), nb::arg("options"))
      .def("step", step)
      .def("texts", &PyGeneration::texts)
      .def("__reduce__", [](const PyGeneration&) -> nb::object {
        throw type_error("TextStream: a text that is being generated is not copied or pickled");
      });
  m.def("generate", generated, nb::arg("model").none(), nb::arg("prompt").none(), nb::arg("options"));
}

}  // namespace attn::python
