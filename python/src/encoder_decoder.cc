// python/src/encoder_decoder.cc: binds attn.EncoderDecoder.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/translation.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "gil.h"
#include "models.h"
#include "terms.h"

#include <utility>

namespace attn::python {
namespace {

constexpr const char* pair_doc =
    R"doc(An encoder-decoder: it answers or translates a text.

EncoderDecoder.load(path) reads a folder of transformers with the architecture of T5 (FLAN-T5, mT5), BART, mBART,
Marian, M2M-100 (NLLB) or PEGASUS: config.json, model.safetensors, generation_config.json and the tokenizer's files.

    model = attn.EncoderDecoder.load("opus-mt-en-de")
    print(model.generate("The cat sleeps."))
    texts = model.generate(lines, beams=4)                       # a text for each line

Attributes are vocab_size (of the target texts), max_tokens (of a text; None: no limit), dtype, family ("t5", ...),
languages (of a multilingual tokenizer), path.

Texts, scores and rows have the same bits whatever the other texts of a call, their number or order, the batches and the
threads; they are those of C++ and of the command `attn generate`. Long calls release the GIL, and Ctrl-C ends them.
There are no gradients. Raises ValueError for values, TypeError for types, OSError for files that cannot be read.)doc";

struct PyPair {
  Translator translator;
  std::string path;
};

/// The options of generate by name; those that are None stay as the folder has them.
struct GenerateOption {
  const char* name;
  void (*set)(TranslateOptions& to, nb::handle x);
};

constexpr const char* generate_name = "EncoderDecoder.generate";

void set_generate_options(const nb::dict& given, TranslateOptions& options) {
  static constexpr GenerateOption all[] = {
      {"tokens", [](TranslateOptions& o, nb::handle x) { o.tokens = whole(x, {generate_name, "tokens"}); }},
      {"min_tokens", [](TranslateOptions& o, nb::handle x) { o.min_tokens = whole(x, {generate_name, "min_tokens"}); }},
      {"beams", [](TranslateOptions& o, nb::handle x) { o.beams = whole(x, {generate_name, "beams"}); }},
      {"samples", [](TranslateOptions& o, nb::handle x) { o.returned = whole(x, {generate_name, "samples"}); }},
      {"length_penalty",
       [](TranslateOptions& o, nb::handle x) { o.length_penalty = number(x, {generate_name, "length_penalty"}); }},
      {"early_stopping",
       [](TranslateOptions& o, nb::handle x) {
         const bool is_word = PyUnicode_Check(x.ptr());
         if (is_word) choice(x, {generate_name, "early_stopping"}, {"never"});
         o.early_stopping = is_word                                      ? EarlyStopping::never
                            : flag(x, {generate_name, "early_stopping"}) ? EarlyStopping::yes
                                                                         : EarlyStopping::no;
       }},
      {"no_repeat_ngram",
       [](TranslateOptions& o, nb::handle x) { o.no_repeat_ngram = whole(x, {generate_name, "no_repeat_ngram"}); }},
      {"temperature",
       [](TranslateOptions& o, nb::handle x) { o.sample.temperature = number(x, {generate_name, "temperature"}); }},
      {"top_k", [](TranslateOptions& o, nb::handle x) { o.sample.top_k = whole(x, {generate_name, "top_k"}); }},
      {"top_p", [](TranslateOptions& o, nb::handle x) { o.sample.top_p = number(x, {generate_name, "top_p"}); }},
      {"min_p", [](TranslateOptions& o, nb::handle x) { o.sample.min_p = number(x, {generate_name, "min_p"}); }},
      {"repetition_penalty",
       [](TranslateOptions& o, nb::handle x) {
         o.sample.repetition_penalty = number(x, {generate_name, "repetition_penalty"});
       }},
      {"seed", [](TranslateOptions& o, nb::handle x) { o.seed = seed(x, {generate_name, "seed"}); }},
      {"batch_tokens",
       [](TranslateOptions& o, nb::handle x) { o.batch_tokens = whole(x, {generate_name, "batch_tokens"}); }},
  };
  const bool beams = given.contains("beams") && !given["beams"].is_none(),
             temperature = given.contains("temperature") && !given["temperature"].is_none();
  set_options(generate_name, given, all, options);
  // beams of the folder give way to a temperature, and the other way round
  if (temperature && !beams && options.sample.temperature > 0) options.beams = 1;
  if (beams && !temperature && options.beams > 1) options.sample.temperature = 0;
}

/// Returns the texts of one text, or of each of a list: one each, or, with samples, a list of them.
nb::object generate(const PyPair& self, nb::handle given, nb::handle source_lang, nb::handle target_lang,
                    nb::handle tokens, nb::handle min_tokens, nb::handle beams, nb::handle samples,
                    nb::handle length_penalty, nb::handle early_stopping, nb::handle no_repeat_ngram,
                    nb::handle temperature, nb::handle top_k, nb::handle top_p, nb::handle min_p,
                    nb::handle repetition_penalty, nb::handle seed_of, nb::handle batch_tokens) {
  const bool one = PyUnicode_Check(given.ptr());
  std::vector<std::string> texts;
  if (one) {
    texts.push_back(word(given, {generate_name, "texts"}));
  } else {
    if (!PyList_Check(given.ptr()) && !PyTuple_Check(given.ptr()))
      throw type_error("{}: texts is {}; a text or a list of texts is needed", generate_name,
                       given.is_none() ? "None" : "a " + name_of_type(given));
    for (nb::handle each : given) texts.push_back(word(each, {generate_name, text("text {}", texts.size()).c_str()}));
  }
  Translator translator = self.translator;  // with its own languages
  translator.set_languages(source_lang.is_none() ? "" : word(source_lang, {generate_name, "source_lang"}),
                           target_lang.is_none() ? "" : word(target_lang, {generate_name, "target_lang"}));
  nb::dict options_given;
  for (const auto& [name, x] : {std::pair<const char*, nb::handle>{"tokens", tokens},
                                {"min_tokens", min_tokens},
                                {"beams", beams},
                                {"samples", samples},
                                {"length_penalty", length_penalty},
                                {"early_stopping", early_stopping},
                                {"no_repeat_ngram", no_repeat_ngram},
                                {"temperature", temperature},
                                {"top_k", top_k},
                                {"top_p", top_p},
                                {"min_p", min_p},
                                {"repetition_penalty", repetition_penalty},
                                {"seed", seed_of},
                                {"batch_tokens", batch_tokens}})
    options_given[name] = x;
  TranslateOptions options = translator.defaults;
  set_generate_options(options_given, options);
  options.on_pass = Interrupts();
  std::vector<std::vector<TranslatedText>> said;
  {
    const Unlocked unlocked;
    said = translator.translate(texts, options);
  }
  nb::list result;
  for (const auto& all : said) {
    if (samples.is_none()) {
      result.append(nb::cast(all[0]));
      continue;
    }
    nb::list of_source;
    for (const TranslatedText& each : all) of_source.append(nb::cast(each));
    result.append(of_source);
  }
  return one ? nb::object(result[0]) : nb::object(result);
}

/// Reads a source: a text, or the ids that the encoder reads.
std::vector<std::int64_t> source_of(const PyPair& self, nb::handle x, const Argument& argument) {
  return PyUnicode_Check(x.ptr()) ? self.translator.encode(word(x, argument)) : ids_of(x, argument);
}

/// Reads a target: a text, or ids as the decoder says them.
std::vector<std::int64_t> target_of(const PyPair& self, nb::handle x, const Argument& argument) {
  return PyUnicode_Check(x.ptr()) ? self.translator.encode_target(word(x, argument)) : ids_of(x, argument);
}

Tensor ends_of(const std::vector<std::int64_t>& ids) { return tensor<std::int64_t>({0, std::ssize(ids)}); }

nb::object encode(const PyPair& self, nb::handle source) {
  const auto ids = source_of(self, source, {"EncoderDecoder.encode", "source"});
  Tensor rows;
  {
    const Unlocked unlocked;
    const NoGrad no_grad;
    rows = self.translator.model.encode(tensor<std::int64_t>(ids), ends_of(ids));
  }
  return to_python(rows, Framework::numpy);
}

/// Computes the logits behind the start token and each token of the target.
Tensor logits_of(const PyPair& self, const std::vector<std::int64_t>& source, std::vector<std::int64_t> target,
                 const char* function) {
  if (!self.translator.defaults.start)
    throw ValueError(text("{}: the model's files name no start token (decoder_start_token_id)", function));
  target.insert(target.begin(), *self.translator.defaults.start);
  const Unlocked unlocked;
  const NoGrad no_grad;
  return self.translator.model.forward(tensor<std::int64_t>(source), ends_of(source), tensor<std::int64_t>(target),
                                       ends_of(target));
}

nb::object logits(const PyPair& self, nb::handle source, nb::handle target) {
  constexpr const char* function = "EncoderDecoder.logits";
  const auto from = source_of(self, source, {function, "source"}), to = target_of(self, target, {function, "target"});
  return to_python(logits_of(self, from, to, function), Framework::numpy);
}

nb::object log_probabilities(const PyPair& self, nb::handle source, nb::handle target) {
  constexpr const char* function = "EncoderDecoder.log_probabilities";
  const auto from = source_of(self, source, {function, "source"}), to = target_of(self, target, {function, "target"});
  if (to.empty()) throw ValueError(text("{}: the target has no token", function));
  const Tensor y = logits_of(self, from, to, function);
  const Tensor rows = y.narrow(0, 0, std::ssize(to)).to(y.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  return to_python(-cross_entropy(rows, tensor<std::int64_t>(to), {.reduction = Reduction::none}), Framework::numpy);
}

const char* finish_of(const TranslatedText& said) { return said.finish == Finish::end ? "end" : "length"; }

PyPair loaded(nb::handle path, nb::handle dtype) {
  constexpr const char* function = "EncoderDecoder.load";
  const std::string from = path_of(path, {function, "path"});
  const std::optional<Dtype> to = weights_dtype_of(dtype, function);
  const Unlocked unlocked;
  return {Translator::load(from, to), from};
}

const char* family_of(const EncoderDecoder& model) {
  constexpr const char* names[] = {"t5", "bart", "mbart", "marian", "m2m_100", "pegasus"};
  return names[static_cast<int>(model.config.family)];
}

}  // namespace

void add_encoder_decoder(nb::module_& m) {
  nb::class_<TranslatedText> said(
      m, "TranslatedText",
      "What an encoder-decoder said; str(said) is its text. Attributes are text, tokens "
      "(the new ids, without start and end\ntoken), finish (\"end\" or \"length\") and score "
      "(the sum of log p / tokens ** length_penalty).");
  said.attr("__module__") = "attn";
  said.def_ro("text", &TranslatedText::text)
      .def_prop_ro("tokens", [](const TranslatedText& self) { return self.tokens; })
      .def_prop_ro("finish", [](const TranslatedText& self) { return finish_of(self); })
      .def_prop_ro("score", [](const TranslatedText& self) { return self.score; })
      .def("__str__", [](const TranslatedText& self) { return self.text; })
      .def("__reduce__",
           [](const TranslatedText&) -> nb::object {
             throw type_error("TranslatedText: it is not copied or pickled; str() gives its text");
           })
      .def("__repr__", [](const TranslatedText& self) {
        return text("TranslatedText(text={}, finish='{}', score={:.6g})",
                    nb::cast<std::string>(nb::repr(nb::cast(self.text))), finish_of(self), self.score);
      });
  nb::class_<PyPair> c(m, "EncoderDecoder", pair_doc);
  c.attr("__module__") = "attn";
  c.def_static(
       "load", loaded, nb::arg("path").none(), nb::arg("dtype") = nb::none(),
       "Reads a folder with config.json, model.safetensors (or its parts), generation_config.json and the "
       "files of a tokenizer:\ntokenizer.json, or of Marian source.spm, target.spm and vocab.json, or of T5 "
       "spiece.model.\n\n"
       "dtype  of the weights: \"float32\", \"float64\", \"bfloat16\" or \"float16\"; None: that of the file\n\n"
       "Raises OSError if it cannot be read, ValueError if it is damaged or of another family.")
      .def(
          "generate", generate, nb::arg("texts").none(), nb::kw_only(), nb::arg("source_lang") = nb::none(),
          nb::arg("target_lang") = nb::none(), nb::arg("tokens") = nb::none(), nb::arg("min_tokens") = nb::none(),
          nb::arg("beams") = nb::none(), nb::arg("samples") = nb::none(), nb::arg("length_penalty") = nb::none(),
          nb::arg("early_stopping") = nb::none(), nb::arg("no_repeat_ngram") = nb::none(),
          nb::arg("temperature") = nb::none(), nb::arg("top_k") = nb::none(), nb::arg("top_p") = nb::none(),
          nb::arg("min_p") = nb::none(), nb::arg("repetition_penalty") = nb::none(), nb::arg("seed") = nb::none(),
          nb::arg("batch_tokens") = nb::none(),
          "What the model says of a text, an attn.TranslatedText, or of each text of a list. What is None is as "
          "the folder's\ngeneration_config.json says.\n\n"
          "source_lang, target_lang  of a multilingual model: \"eng_Latn\" (NLLB), \"en_XX\" (mBART)\n"
          "tokens              at most so many new tokens; min_tokens: no end before\n"
          "beams               above 1: beam search; samples: the best so many of them, as a list; with one beam and a "
          "temperature\n                    so many drawn texts\n"
          "length_penalty      a score is the sum of log p / tokens ** length_penalty\n"
          "early_stopping      True, False or \"never\"\n"
          "no_repeat_ngram     no so many tokens occur twice in a row\n"
          "temperature, top_k, top_p, min_p, repetition_penalty, seed  as of LanguageModel.generate\n"
          "batch_tokens        texts are computed together until they have that many tokens; it decides no bit")
      .def("encode", encode, nb::arg("source").none(),
           "The rows that the encoder makes of a text (or of the ids that it reads): [T, C].")
      .def("logits", logits, nb::arg("source").none(), nb::arg("target").none(),
           "The logits behind the start token and behind each token of the target: [T + 1, V]. Source and target are "
           "texts or\nids; of the target those between the start and the end token.")
      .def("log_probabilities", log_probabilities, nb::arg("source").none(), nb::arg("target").none(),
           "log p of each token of the target, given the source and the tokens before it: [T].")
      .def(
          "encode_ids",
          [](const PyPair& self, nb::handle x) {
            return self.translator.encode(word(x, {"EncoderDecoder.encode_ids", "text"}));
          },
          nb::arg("text").none(), "The ids that the encoder reads for a text, with the special tokens.")
      .def(
          "decode",
          [](const PyPair& self, nb::handle x) {
            return self.translator.decode(ids_of(x, {"EncoderDecoder.decode", "ids"}));
          },
          nb::arg("ids").none(), "The text of ids that the decoder said.")
      .def_prop_ro("vocab_size", [](const PyPair& self) { return self.translator.model.config.decoder_vocab_size; })
      .def_prop_ro("max_tokens",
                   [](const PyPair& self) -> nb::object {
                     const std::int64_t most = self.translator.model.config.positions;
                     return most > 0 ? nb::cast(most) : nb::none();
                   })
      .def_prop_ro("dtype",
                   [](const PyPair& self) { return std::string(torch_name_of(self.translator.model.dtype())); })
      .def_prop_ro("family", [](const PyPair& self) { return std::string(family_of(self.translator.model)); })
      .def_prop_ro("languages", [](const PyPair& self) { return self.translator.languages(); })
      .def_prop_ro("path", [](const PyPair& self) { return shown_path(self.path); })
      .def("__reduce__",
           [](const PyPair&) -> nb::object {
             throw type_error("EncoderDecoder: its weights are not copied or pickled; load reads them");
           })
      .def("__repr__", [](const PyPair& self) {
        const EncoderDecoder& model = self.translator.model;
        return text("<attn.EncoderDecoder {}, {} and {} layers of {}, {}>", family_of(model),
                    model.config.encoder_layers, model.config.decoder_layers, model.config.width,
                    torch_name_of(model.dtype()));
      });
}

}  // namespace attn::python
