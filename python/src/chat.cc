// python/src/chat.cc: binds conversations with a language model.
#include <attn/chat.h>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "generation.h"
#include "gil.h"
#include "terms.h"

#include <utility>

namespace attn::python {
namespace {

constexpr const char* function = "Chat";

struct Field {
  const char* name;
  std::string ChatFormat::* to;
};
constexpr Field fields[] = {{"name", &ChatFormat::name},
                            {"begin", &ChatFormat::begin},
                            {"system_begin", &ChatFormat::system_begin},
                            {"system_end", &ChatFormat::system_end},
                            {"user_begin", &ChatFormat::user_begin},
                            {"user_end", &ChatFormat::user_end},
                            {"answer_begin", &ChatFormat::answer_begin},
                            {"end_token", &ChatFormat::end_token},
                            {"answer_end", &ChatFormat::answer_end}};

/// Reads a format of the caller's own: the fields of ChatFormat.
ChatFormat own_format(const nb::dict& given) {
  ChatFormat format{.name = "own"};
  std::string names;
  for (const Field& field : fields) names += text("{}, ", field.name);
  for (auto [key, x] : given) {
    const std::string name = word(key, {function, "a name of format"});
    const std::string shown = text("{} of format", name);
    if (name == "system_in_message") {
      format.system_in_message = flag(x, {function, shown.c_str()});
    } else if (name == "trimmed") {
      format.trimmed = flag(x, {function, shown.c_str()});
    } else if (name == "system") {
      format.system = word(x, {function, shown.c_str()});
    } else {
      const Field* found = nullptr;
      for (const Field& field : fields)
        if (name == field.name) found = &field;
      if (found == nullptr)
        throw ValueError(
            text("{}: format has \"{}\"; there are {}system_in_message, trimmed, system", function, name, names));
      format.*found->to = word(x, {function, shown.c_str()});
    }
  }
  return format;
}

ChatFormat format_of(nb::handle x, const PyModel& model) {
  if (PyDict_Check(x.ptr())) return own_format(nb::borrow<nb::dict>(x));
  if (!x.is_none()) return ChatFormat::named(word(x, {function, "format"}));
  if (model.path.empty())
    throw ValueError(
        text("{}: the model is of no file that could have a chat template; give the format: chatml, llama3, "
             "gemma or mistral",
             function));
  return ChatFormat::load(model.path);
}

struct PyChat {
  nb::object model_object;
  Given given;
  std::optional<Chat> chat;
  std::vector<std::string> pieces;  // said in the current step, of a stream
  bool busy = false;

  PyChat(nb::handle of_model, nb::handle system, nb::handle format, const nb::dict& options)
      : model_object(nb::borrow(of_model)), given(function, model_of(of_model, {function, "model"}), options) {
    const PyModel& model = *as<PyModel>(of_model);
    if (!model.tokenizer) throw ValueError(text("{}: the model has no tokenizer, which a chat needs", function));
    ChatOptions to{.generate = given.options.tokens, .cache = given.cache};
    if (!system.is_none()) to.system = word(system, {function, "system"});
    chat.emplace(model.model, *model.tokenizer, format_of(format, model), to);
  }
  PyChat(const PyChat&) = delete;
  PyChat& operator=(const PyChat&) = delete;
};

nb::tuple say(PyChat& self, nb::handle message, nb::handle on_text) {
  const std::string words = word(message, {"Chat.say", "message"});
  std::function<bool(std::string_view)> heard;
  if (!on_text.is_none())
    heard = [f = text_function("Chat.say", on_text, false)](std::string_view piece) { return f(0, piece); };
  const InUse in_use(self.busy, function);
  const GeneratedText answer = [&] {
    const Unlocked unlocked;
    return self.chat->say(words, heard);
  }();
  return shown(answer, self.given.options.tokens.log_probabilities);
}

void ask(PyChat& self, nb::handle message) {
  const std::string words = word(message, {"Chat.stream", "message"});
  const InUse in_use(self.busy, function);
  self.pieces.clear();
  self.chat->ask(words, [&self](std::string_view piece) {
    self.pieces.emplace_back(piece);
    return true;
  });
}

/// Returns the pieces that a step said, and whether the answer goes on. An error keeps them for the next step.
std::pair<std::vector<std::string>, bool> step(PyChat& self) {
  const InUse in_use(self.busy, function);
  const bool more = [&] {
    const Unlocked unlocked;
    return self.chat->step();
  }();
  return {std::exchange(self.pieces, {}), more};
}

nb::tuple answer(PyChat& self) {
  const InUse in_use(self.busy, function);
  return shown(self.chat->answer(), self.given.options.tokens.log_probabilities);
}

/// Returns a property that tells something of the conversation.
template <auto method>
auto told() {
  return [](PyChat& self) {
    const InUse in_use(self.busy, function);
    return ((*self.chat).*method)();
  };
}

}  // namespace

void add_chat(nb::module_& m) {
  nb::class_<PyChat>(m, "Chat", "A conversation; attn.Chat is the public class.")
      .def(
          "__init__",
          [](PyChat* self, nb::handle model, nb::handle system, nb::handle format, nb::dict options) {
            new (self) PyChat(model, system, format, options);
          },
          nb::arg("model").none(), nb::arg("system").none(), nb::arg("format").none(), nb::arg("options"))
      .def("_say", say, nb::arg("message").none(), nb::arg("on_text").none())
      .def("_ask", ask, nb::arg("message").none())
      .def("_step", step)
      .def("_answer", answer)
      .def_prop_ro("tokens", told<&Chat::tokens>(), "The tokens of the conversation, as of the last answer.")
      .def_prop_ro("computed", told<&Chat::computed>(),
                   "How many tokens were computed for the last answer before its first token.")
      .def_prop_ro("left_out", told<&Chat::left_out>(), "How many messages the context has had no room for so far.")
      .def_prop_ro("format", [](const PyChat& self) { return self.chat->format().name; })
      .def("__reduce__", [](const PyChat&) -> nb::object {
        throw type_error("Chat: a conversation is not copied or pickled; its tokens can be");
      });
}

}  // namespace attn::python
