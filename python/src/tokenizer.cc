// python/src/tokenizer.cc: binds attn.Tokenizer.
#include <attn/tokenizer.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "gil.h"
#include "models.h"
#include "terms.h"

namespace attn::python {
namespace {

constexpr const char* tokenizer_doc =
    R"doc(Splits a text into tokens and maps each to an id; what a language model reads and says.

    >>> import attn
    >>> tokenizer = attn.Tokenizer.train("a rose is a rose", "words")
    >>> ids = tokenizer.encode("a rose")
    >>> ids, tokenizer.decode(ids)
    ([4, 1], 'a rose')

Tokenizer.load reads tokenizer.json of Hugging Face (BPE, WordPiece, Unigram) and the tokenizer of a GGUF file, with the
ids of Hugging Face's library. Threads may share one. It can be copied and pickled.
Raises ValueError for a file that is damaged or has an unknown feature, OSError for one that cannot be read.)doc";

const char* kind_of(const Tokenizer& tokenizer) {
  constexpr const char* names[] = {"characters", "words", "bpe", "wordpiece", "unigram"};
  return names[static_cast<int>(tokenizer.kind())];
}

nb::object text_of(const std::string& bytes) {
  return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

Tokenizer trained(nb::handle given, nb::handle kind, nb::handle vocab_size) {
  constexpr const char* function = "Tokenizer.train";
  const std::string words = word(given, {function, "text"});
  const auto of = static_cast<Tokenizer::Kind>(choice(kind, {function, "kind"}, {"characters", "words", "bpe"}));
  const std::int64_t size = whole(vocab_size, {function, "vocab_size"});
  const Unlocked unlocked;
  return Tokenizer::train(words, of, size);
}

}  // namespace

void add_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer> c(m, "Tokenizer", tokenizer_doc);
  c.attr("__module__") = "attn";
  c.def_static(
       "train", trained, nb::arg("text").none(), nb::arg("kind").none() = "bpe", nb::arg("vocab_size").none() = 0,
       "The vocabulary of a text: \"characters\", \"words\" or \"bpe\" (bytes and merges of pairs); vocab_size 0: "
       "all characters or words, 1024 for bpe.")
      .def_static(
          "load",
          [](nb::handle path) {
            const std::string from = path_of(path, {"Tokenizer.load", "path"});
            const Unlocked unlocked;
            return Tokenizer::load(from);
          },
          nb::arg("path").none(), "Reads a tokenizer.json, a folder that has one, or a GGUF file.")
      .def_static(
          "parse", [](nb::handle json) { return Tokenizer::parse(word(json, {"Tokenizer.parse", "json"})); },
          nb::arg("json").none(), "Reads the text of a tokenizer.json.")
      .def("to_json", &Tokenizer::to_json, "The text of a tokenizer.json.")
      .def(
          "save",
          [](const Tokenizer& self, nb::handle folder) {
            const std::string to = path_of(folder, {"Tokenizer.save", "folder"});
            const Unlocked unlocked;
            self.save(to);
          },
          nb::arg("folder").none(),
          "Writes tokenizer.json, whole or not at all, into a folder that is created if needed.")
      .def_prop_ro("kind", [](const Tokenizer& self) { return std::string(kind_of(self)); })
      .def_prop_ro("size", &Tokenizer::size, "One more than the largest id.")
      .def(
          "encode",
          [](const Tokenizer& self, nb::handle given, nb::handle special) {
            constexpr const char* function = "Tokenizer.encode";
            const std::string words = word(given, {function, "text"});
            const bool with_special = flag(special, {function, "add_special"});
            const Unlocked unlocked;
            return self.encode(words, with_special);
          },
          nb::arg("text").none(), nb::arg("add_special").none() = false,
          "The ids of a text. add_special: also the special tokens that the file puts around one text, such as Llama "
          "3's "
          "<|begin_of_text|>:\n"
          "encode a prompt with them, training text without. ValueError for a character that has no token.")
      .def(
          "decode",
          [](const Tokenizer& self, nb::handle ids, nb::handle special) {
            constexpr const char* function = "Tokenizer.decode";
            return text_of(self.decode(ids_of(ids, {function, "ids"}), flag(special, {function, "skip_special"})));
          },
          nb::arg("ids").none(), nb::arg("skip_special").none() = false,
          "The text of ids (a list or an array): an id that no token has is no text, bytes that are not UTF-8 become "
          "U+FFFD.")
      .def(
          "bytes",
          [](const Tokenizer& self, nb::handle id) {
            const std::string& bytes = self.bytes(whole(id, {"Tokenizer.bytes", "id"}));
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("id").none(), "The bytes of one token. ValueError for an id that no token has.")
      .def(
          "find",
          [](const Tokenizer& self, nb::handle token) {
            if (PyBytes_Check(token.ptr()) != 0) {
              const nb::bytes bytes = nb::borrow<nb::bytes>(token);
              return self.find({bytes.c_str(), bytes.size()});
            }
            return self.find(word(token, {"Tokenizer.find", "token"}));
          },
          nb::arg("token").none(), "The id of a token, given by its text or its bytes; None if there is none.")
      .def("__reduce__", [](const Tokenizer& self) { return made_again<Tokenizer>("parse", self.to_json()); })
      .def("__repr__",
           [](const Tokenizer& self) { return text("<attn.Tokenizer of {} {} ids>", self.size(), kind_of(self)); });
}

}  // namespace attn::python
