// python/src/encoder.cc: binds attn.TextEncoder.
#include <attn/encoder.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include "gil.h"
#include "models.h"
#include "terms.h"

#include <utility>

namespace attn::python {
namespace {

constexpr const char* encoder_doc =
    R"doc(An encoder of texts: a text becomes a vector, or with a cross-encoder a pair of texts a score.

TextEncoder.load(path) reads a folder of transformers or sentence-transformers with the architecture of BERT, RoBERTa,
XLM-RoBERTa, CamemBERT, MPNet, DistilBERT or ModernBERT: config.json, model.safetensors, tokenizer.json, modules.json.

    encoder = attn.TextEncoder.load("all-MiniLM-L6-v2")
    vectors = encoder.embed(["The cat sleeps.", "Stocks fell."])   # [2, 384]

Attributes are dim (numbers of a vector), labels (scores of a pair; 0: no cross-encoder), max_tokens (longer texts are
cut), vocab_size, dtype, family ("bert", ...), tokenizer (an attn.Tokenizer, or None), prompts (a dict of texts by
name), default_prompt_name (or None) and path.

The vector and the scores of a text have the same bits whatever the other texts of a call, their number or order, the
batches and the threads; they are those of C++ and of the command `attn embed`. Threads may share an encoder. Long calls
release the GIL, and Ctrl-C ends them. There are no gradients. Raises ValueError for values, TypeError for types,
OSError for files that cannot be read, each with one line.)doc";

struct PyEncoder {
  TextEncoder encoder;
  std::string path;
};

/// Reads a text, or a list of texts. `one`: a single one was given.
std::vector<std::string> texts_of(nb::handle x, const char* function, bool& one) {
  one = PyUnicode_Check(x.ptr());
  if (one) return {word(x, {function, "texts"})};
  if (!PyList_Check(x.ptr()) && !PyTuple_Check(x.ptr()))
    throw type_error("{}: texts is {}; a text or a list of texts is needed", function,
                     x.is_none() ? "None" : "a " + name_of_type(x));
  std::vector<std::string> texts;
  for (nb::handle each : x) texts.push_back(word(each, {function, text("text {}", texts.size()).c_str()}));
  return texts;
}

std::pair<std::string, std::string> pair_of(nb::handle x, const char* function, const std::string& name) {
  if ((!PyList_Check(x.ptr()) && !PyTuple_Check(x.ptr())) || nb::len(x) != 2)
    throw type_error("{}: {} is {}; a pair of texts is needed", function, name,
                     x.is_none() ? "None" : "a " + name_of_type(x));
  return {word(x[0], {function, text("the first text of {}", name).c_str()}),
          word(x[1], {function, text("the second text of {}", name).c_str()})};
}

/// Reads the text that stands before each text: `prompt`, or that of a name; without both the default one of the model.
std::string prompt_of(const TextEncoder& encoder, nb::handle prompt, nb::handle name, const char* function) {
  if (prompt.is_none()) {
    const std::string named = name.is_none() ? "" : word(name, {function, "prompt_name"});
    if (!name.is_none() && named.empty()) throw ValueError(text("{}: prompt_name is empty", function));
    return encoder.prompt(named);
  }
  if (!name.is_none()) throw ValueError(text("{}: prompt and prompt_name are given; one of them is needed", function));
  return word(prompt, {function, "prompt"});
}

EmbedOptions options_of(nb::handle batch_tokens, const char* function) {
  EmbedOptions options{.batch_tokens = whole(batch_tokens, {function, "batch_tokens"}), .on_batch = Interrupts()};
  if (options.batch_tokens < 1)
    throw ValueError(text("{}: batch_tokens is {}; it must be at least 1", function, options.batch_tokens));
  return options;
}

nb::object embed(const PyEncoder& self, nb::handle given, nb::handle prompt, nb::handle prompt_name,
                 nb::handle batch_tokens) {
  constexpr const char* function = "TextEncoder.embed";
  bool one = false;
  const std::vector<std::string> texts = texts_of(given, function, one);
  EmbedOptions options = options_of(batch_tokens, function);
  options.prompt = prompt_of(self.encoder, prompt, prompt_name, function);
  Tensor vectors;
  {
    const Unlocked unlocked;
    vectors = self.encoder.embed(texts, options);
  }
  return to_python(one ? vectors.select(0, 0) : vectors, Framework::numpy);
}

nb::object scores(const PyEncoder& self, nb::handle given, nb::handle batch_tokens) {
  constexpr const char* function = "TextEncoder.scores";
  if (!PyList_Check(given.ptr()) && !PyTuple_Check(given.ptr()))
    throw type_error("{}: pairs is {}; a list of pairs of texts is needed", function,
                     given.is_none() ? "None" : "a " + name_of_type(given));
  std::vector<std::pair<std::string, std::string>> pairs;
  for (nb::handle each : given) pairs.push_back(pair_of(each, function, text("pair {}", pairs.size())));
  const EmbedOptions options = options_of(batch_tokens, function);
  Tensor found;
  {
    const Unlocked unlocked;
    found = self.encoder.scores(pairs, options);
  }
  return to_python(found, Framework::numpy);
}

PyEncoder loaded(nb::handle path, nb::handle dtype) {
  constexpr const char* function = "TextEncoder.load";
  const std::string from = path_of(path, {function, "path"});
  const std::optional<Dtype> to = weights_dtype_of(dtype, function);
  const Unlocked unlocked;
  return {TextEncoder::load(from, to), from};
}

const char* family_of(const TextEncoder& encoder) {
  constexpr const char* names[] = {"bert", "roberta", "mpnet", "distilbert", "modernbert"};
  return names[static_cast<int>(encoder.config.family)];
}

}  // namespace

void add_encoder(nb::module_& m) {
  nb::class_<PyEncoder> c(m, "TextEncoder", encoder_doc);
  c.attr("__module__") = "attn";
  c.def_static(
       "load", loaded, nb::arg("path").none(), nb::arg("dtype") = nb::none(),
       "Reads a folder with config.json, model.safetensors (or its parts) and tokenizer.json; of "
       "sentence-transformers\n"
       "modules.json, the folders that it names and its prompts too. Without modules.json the vector is the "
       "mean of the\n"
       "rows.\n\n"
       "dtype  of the weights: \"float32\", \"float64\", \"bfloat16\" or \"float16\"; None: that of the file\n\n"
       "Raises OSError if it cannot be read, ValueError if it is damaged or of another family, with the name "
       "of what is\n"
       "missing or unknown.")
      .def("embed", embed, nb::arg("texts").none(), nb::kw_only(), nb::arg("prompt") = nb::none(),
           nb::arg("prompt_name") = nb::none(), nb::arg("batch_tokens").none() = 2048,
           "The vectors of texts: [N, dim] of a list, [dim] of one text; float32 (float64 for a model in float64).\n\n"
           "prompt        a text that stands before each text\n"
           "prompt_name   the name of one of `prompts` instead. Without both: the model's default prompt, if it has "
           "one\n"
           "batch_tokens  texts are computed together until they have that many tokens. It decides the memory and the "
           "speed, no bit\n\n"
           "White space around a text is removed; a text of more than max_tokens is cut. Raises ValueError for a "
           "folder without\n"
           "tokenizer.json and for a prompt that the model does not have, TypeError for types.")
      .def("scores", scores, nb::arg("pairs").none(), nb::kw_only(), nb::arg("batch_tokens").none() = 2048,
           "The scores of pairs of texts, [N, labels], by a cross-encoder: the logits, of one label their sigmoid "
           "unless the model\n"
           "names the identity. The longer text of a pair is cut first.\n\n"
           "Raises ValueError for a model without scores, TypeError for types.")
      .def_prop_ro("dim", [](const PyEncoder& self) { return self.encoder.dim(); })
      .def_prop_ro("labels", [](const PyEncoder& self) { return self.encoder.config.labels; })
      .def_prop_ro("max_tokens", [](const PyEncoder& self) { return self.encoder.max_tokens; })
      .def_prop_ro("vocab_size", [](const PyEncoder& self) { return self.encoder.config.vocab_size; })
      .def_prop_ro("dtype", [](const PyEncoder& self) { return std::string(torch_name_of(self.encoder.dtype())); })
      .def_prop_ro("family", [](const PyEncoder& self) { return std::string(family_of(self.encoder)); })
      .def_prop_ro("tokenizer",
                   [](const PyEncoder& self) -> nb::object {
                     return self.encoder.has_tokenizer() ? nb::cast(self.encoder.tokenizer()) : nb::none();
                   })
      .def_prop_ro("prompts", [](const PyEncoder& self) { return self.encoder.prompts.texts; })
      .def_prop_ro("default_prompt_name",
                   [](const PyEncoder& self) -> nb::object {
                     const std::string& name = self.encoder.prompts.default_name;
                     return name.empty() ? nb::none() : nb::cast(name);
                   })
      .def_prop_ro("path", [](const PyEncoder& self) { return shown_path(self.path); })
      .def("__reduce__",
           [](const PyEncoder&) -> nb::object {
             throw type_error("TextEncoder: its weights are not copied or pickled; load reads them");
           })
      .def("__repr__", [](const PyEncoder& self) {
        const TextEncoder& e = self.encoder;
        const std::string gives = e.config.labels > 0
                                      ? text("{} score{} of a pair", e.config.labels, e.config.labels == 1 ? "" : "s")
                                      : text("vectors of {}", e.dim());
        return text("<attn.TextEncoder {}, {}, {}, at most {} tokens>", family_of(e), gives, torch_name_of(e.dtype()),
                    e.max_tokens);
      });
}

}  // namespace attn::python
