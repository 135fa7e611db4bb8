// python/src/models.cc: binds language models and their caches; reads what their bindings share.
#include "models.h"

#include <attn/autograd.h>
#include <attn/gguf.h>
#include <attn/ops.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "gil.h"
#include "integers.h"
#include "terms.h"

#include <filesystem>
#include <utility>

namespace attn::python {

std::string path_of(nb::handle x, const Argument& at) {
  PyObject* const path = PyOS_FSPath(x.ptr());
  if (path == nullptr) {
    forget_error();
    throw type_error("{}: {} is {}; a path is needed: a text or an os.PathLike", at.function, at.name,
                     x.is_none() ? "None" : "a " + name_of_type(x));
  }
  const nb::object given = nb::steal(path);
  PyObject* const coded = PyBytes_Check(path) ? nb::object(given).release().ptr() : PyUnicode_EncodeFSDefault(path);
  if (coded == nullptr) {
    forget_error();
    throw ValueError(text("{}: {} holds half of a surrogate pair, which is no character", at.function, at.name));
  }
  const nb::object bytes = nb::steal(coded);
  return {PyBytes_AsString(coded), static_cast<std::size_t>(PyBytes_Size(coded))};
}

nb::object shown_path(const std::string& path) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

std::optional<Dtype> weights_dtype_of(nb::handle x, const char* function) {
  if (x.is_none()) return std::nullopt;
  constexpr const char* names[] = {"float32", "float64", "bfloat16", "float16"};
  if (PyUnicode_Check(x.ptr()))  // the names of the command too
    for (const Dtype each : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
      if (word(x, {function, "dtype"}) == name_of(each)) return each;
  return static_cast<Dtype>(choice(x, {function, "dtype"}, {names[0], names[1], names[2], names[3]}));
}

Tensor id_tensor(Reader& read, nb::handle x, const char* name) {
  const Tensor ids = read.integers(x, name);
  if (!is_integral(ids.dtype()))
    throw type_error("{}: {} has dtype {}; whole numbers are needed", read.function(), name,
                     torch_name_of(ids.dtype()));
  return ids.to(Dtype::i64).contiguous();
}

std::vector<std::int64_t> ids_of(nb::handle x, const Argument& at) {
  Reader read(at.function);
  const Tensor ids = id_tensor(read, x, at.name);
  if (ids.dim() != 1)
    throw ShapeError(
        text("{}: {} has shape {}; the ids of a text are needed, [T]", at.function, at.name, to_string(ids.sizes())));
  return ids.to_int_vector();
}

const PyModel& model_of(nb::handle x, const Argument& at) {
  if (const PyModel* given = as<PyModel>(x)) return *given;
  throw type_error("{}: {} is {}; an attn.LanguageModel is needed", at.function, at.name,
                   x.is_none() ? "None" : "a " + name_of_type(x));
}

namespace {

constexpr const char* class_name = "LanguageModel";

std::optional<Tokenizer> tokenizer_of(nb::handle x) {
  if (x.is_none()) return std::nullopt;
  if (const Tokenizer* given = as<Tokenizer>(x)) return *given;
  throw type_error("{}: tokenizer is a {}; an attn.Tokenizer is needed", class_name, name_of_type(x));
}

/// Returns whether a tokenizer is stored with the model at this path.
bool has_tokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::is_directory(path)) return fs::exists(fs::path(path) / "tokenizer.json");
  return GgufFile::open(path).has("tokenizer.ggml.model");
}

/// `config`: JSON; with None the model is loaded from `path`.
void construct(PyModel* self, nb::handle config, nb::handle path, nb::handle dtype, nb::handle seed_given,
               nb::handle tokenizer) {
  const std::optional<Dtype> to = weights_dtype_of(dtype, class_name);
  std::optional<Tokenizer> own = tokenizer_of(tokenizer);
  if (!config.is_none()) {
    const std::string json = word(config, {class_name, "config"});
    std::optional<Generator> generator;
    if (!seed_given.is_none()) generator.emplace(seed(seed_given, {class_name, "seed"}));
    const ModelConfig shape = ModelConfig::from_json(json, "LanguageModel: config");
    const Unlocked unlocked;
    const LanguageModel made(shape, to.value_or(Dtype::f32), generator ? &*generator : nullptr);
    made.eval();
    new (self) PyModel{made, std::move(own), ""};
    return;
  }
  const std::string from = path_of(path, {"LanguageModel.load", "path"});
  const Unlocked unlocked;
  const LanguageModel loaded = LanguageModel::load(from, to);
  if (!own && has_tokenizer(from)) own = Tokenizer::load(from);
  new (self) PyModel{loaded, std::move(own), from};
}

PyModelCache& cache_of(nb::handle x, const Argument& at) {
  if (PyModelCache* given = as<PyModelCache>(x)) return *given;
  throw type_error("{}: {} is a {}; an attn.ModelCache is needed", at.function, at.name, name_of_type(x));
}

/// Returns ids as [B, T].
Tensor rows_of(const char* function, const char* name, const Tensor& ids) {
  if (ids.dim() != 1 && ids.dim() != 2)
    throw ShapeError(text("{}: {} has shape {}; it must be [T] or [B, T]", function, name, to_string(ids.sizes())));
  return ids.dim() == 1 ? ids.unsqueeze(0) : ids;
}

void check_ids(const char* function, const char* name, const Tensor& ids, std::int64_t vocab_size) {
  for (const std::int64_t id : ids.to_int_vector())
    if (id < 0 || id >= vocab_size)
      throw ValueError(text("{}: {} holds {}; it must be from 0 to {}", function, name, id, vocab_size - 1));
}

nb::object logits(const PyModel& self, nb::handle ids, nb::handle cache, nb::handle sequences) {
  constexpr const char* function = "LanguageModel.logits";
  Reader read(function);
  const Tensor given = id_tensor(read, ids, "ids"), rows = rows_of(function, "ids", given);
  check_ids(function, "ids", rows, self.model.config.vocab_size);
  if (cache.is_none() && !sequences.is_none())
    throw ValueError(text("{}: sequences is given without a cache", function));
  Tensor result;
  if (cache.is_none()) {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = self.model(rows);
  } else {
    PyModelCache& to = cache_of(cache, {function, "cache"});
    std::vector<std::int64_t> which;
    if (!sequences.is_none()) which = ids_of(sequences, {function, "sequences"});
    const InUse in_use(to.busy, "ModelCache");
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = self.model.logits(self.model.hidden(rows, to.cache, which));
  }
  return to_python(given.dim() == 1 ? result.squeeze(0) : result, read.framework());
}

nb::object log_probabilities(const PyModel& self, nb::handle ids, nb::handle targets, nb::handle cu_seqlens) {
  constexpr const char* function = "LanguageModel.log_probabilities";
  Reader read(function);
  const Tensor given = id_tensor(read, ids, "ids"), next = id_tensor(read, targets, "targets");
  check_ids(function, "ids", given, self.model.config.vocab_size);
  Tensor result;
  if (cu_seqlens.is_none()) {
    const Tensor rows = rows_of(function, "ids", given), next_rows = rows_of(function, "targets", next);
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = self.model.log_probabilities(rows, next_rows);
  } else {
    const Tensor ends = read.integers(cu_seqlens, "cu_seqlens");
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = self.model.log_probabilities(given, next, ends);
  }
  return to_python(cu_seqlens.is_none() && given.dim() == 1 ? result.squeeze(0) : result, read.framework());
}

// --- caches ----------------------------------------------------------------------------------------------------------

constexpr const char* cache_doc =
    R"doc(The keys and values of every layer of a language model, for some texts: generate goes on with it.

ModelCache(model, sequences=1, *, storage="same", page_rows=0, window=0, sinks=0)

sequences  how many texts it is for
storage    "same" keeps the model's dtype, "int8" rounds to 8 bits
page_rows  rows of a page, 16, 32, 64, 128 or 256; copies of a sequence (reorder) share the pages of what they have in
           common. 0: each sequence has one block
window     above 0: a token sees the `window` tokens up to itself and the first `sinks` tokens of its text, and the
           memory of the others is freed

It knows the tokens that it holds, so what is not the beginning of the next text is removed, and a cache of another text
cannot give a wrong one. int8 and a window change the numbers of the model. One call at a time: another one meanwhile is
a ValueError. Raises ValueError for a sequence that does not exist and sizes out of range, TypeError for types.)doc";

void construct_cache(PyModelCache* self, nb::handle model, nb::handle sequences, nb::handle storage,
                     nb::handle page_rows, nb::handle window, nb::handle sinks) {
  constexpr const char* function = "ModelCache";
  const PyModel& of = model_of(model, {function, "model"});
  const ModelCacheOptions options{
      .sequences = whole(sequences, {function, "sequences"}),
      .dtype = of.model.dtype(),
      .storage = choice(storage, {function, "storage"}, {"same", "int8"}) == 0 ? KvStorage::same : KvStorage::int8,
      .page_rows = whole(page_rows, {function, "page_rows"}),
      .window = whole(window, {function, "window"}),
      .sinks = whole(sinks, {function, "sinks"})};
  new (self) PyModelCache{ModelCache(of.model.config, options)};
}

/// Returns a method that tells something of a sequence.
template <auto method>
auto told(const char* function) {
  return [function](PyModelCache& self, nb::handle sequence) {
    const std::int64_t which = whole(sequence, {function, "sequence"});
    const InUse in_use(self.busy, "ModelCache");
    return (self.cache.*method)(which);
  };
}

void add_model_cache(nb::module_& m) {
  nb::class_<PyModelCache> c(m, "ModelCache", cache_doc);
  c.attr("__module__") = "attn";
  c.def("__init__", construct_cache, nb::arg("model").none(), nb::arg("sequences").none() = 1, nb::kw_only(),
        nb::arg("storage").none() = "same", nb::arg("page_rows").none() = 0, nb::arg("window").none() = 0,
        nb::arg("sinks").none() = 0)
      .def_prop_ro("sequences", [](const PyModelCache& self) { return self.cache.sequences(); })
      .def("length", told<&ModelCache::length>("ModelCache.length"), nb::arg("sequence").none() = 0,
           "Tokens of a sequence so far.")
      .def("tokens", told<&ModelCache::tokens>("ModelCache.tokens"), nb::arg("sequence").none() = 0, "Those tokens.")
      .def("held", told<&ModelCache::held>("ModelCache.held"), nb::arg("sequence").none() = 0,
           "How many of them are in memory; with a window fewer than `length`.")
      .def(
          "truncate",
          [](PyModelCache& self, nb::handle sequence, nb::handle length) {
            constexpr const char* function = "ModelCache.truncate";
            const std::int64_t which = whole(sequence, {function, "sequence"}),
                               keep = whole(length, {function, "length"});
            const InUse in_use(self.busy, "ModelCache");
            self.cache.truncate(which, keep);
          },
          nb::arg("sequence").none(), nb::arg("length").none(),
          "Removes the tokens from position `length` on. ValueError if the window before it has been freed.")
      .def(
          "reorder",
          [](PyModelCache& self, nb::handle order) {
            const std::vector<std::int64_t> from = ids_of(order, {"ModelCache.reorder", "order"});
            const InUse in_use(self.busy, "ModelCache");
            self.cache.reorder(from);
          },
          nb::arg("order").none(),
          "Sequence i becomes a copy of what sequence order[i] was, as beam search goes on with the best beams.")
      .def("__reduce__",
           [](const PyModelCache&) -> nb::object {
             throw type_error(
                 "ModelCache: its pages are not copied or pickled; its tokens() can be, and computed again");
           })
      .def("__repr__", [](const PyModelCache& self) {
        const ModelCacheOptions& o = self.cache.options();
        return text("<attn.ModelCache of {} sequence{}, storage=\"{}\", page_rows={}, window={}, sinks={}>",
                    o.sequences, o.sequences == 1 ? "" : "s", o.storage == KvStorage::same ? "same" : "int8",
                    o.page_rows, o.window, o.sinks);
      });
}

}  // namespace

void add_models(nb::module_& m) {
  nb::class_<PyModel>(m, "LanguageModel", "A language model; attn.LanguageModel is the public class.")
      .def("__init__", construct, nb::arg("config").none(), nb::arg("path").none(), nb::arg("dtype").none(),
           nb::arg("seed").none(), nb::arg("tokenizer").none())
      .def_prop_ro(
          "tokenizer",
          [](const PyModel& self) -> nb::object { return self.tokenizer ? nb::cast(*self.tokenizer) : nb::none(); })
      .def_prop_ro(
          "path",
          [](const PyModel& self) -> nb::object { return self.path.empty() ? nb::none() : shown_path(self.path); })
      .def_prop_ro("dtype", [](const PyModel& self) { return std::string(torch_name_of(self.model.dtype())); })
      .def_prop_ro("context", [](const PyModel& self) { return self.model.config.context; })
      .def_prop_ro("vocab_size", [](const PyModel& self) { return self.model.config.vocab_size; })
      .def_prop_ro("parameters", [](const PyModel& self) { return self.model.config.parameters(); })
      .def("_config", [](const PyModel& self) { return self.model.config.to_json(self.model.dtype()); })
      .def(
          "logits", logits, nb::arg("ids").none(), nb::arg("cache") = nb::none(), nb::arg("sequences") = nb::none(),
          "The logits after each token: ids [T] -> [T, V], or [B, T] -> [B, T, V], in the model's dtype.\n\n"
          "cache      an attn.ModelCache: the ids continue its sequences, row b sequences[b] (default: b), and it "
          "then holds them too.\n\n"
          "A row's bits do not depend on the other rows, on the threads, or on the use of a cache in the model's dtype "
          "without a window. There are\n"
          "no gradients. Raises ValueError for ids outside the vocabulary and for texts longer than the context, "
          "TypeError for types.")
      .def("log_probabilities", log_probabilities, nb::arg("ids").none(), nb::arg("targets").none(),
           nb::arg("cu_seqlens") = nb::none(),
           "log p(targets[b, t] | ids[b, ..t]): [T] or [B, T], in float32 (float64 for a model in float64); 0 for "
           "targets of -100.\n\n"
           "cu_seqlens [N + 1]: the ids [total] are sequences one after another, and the result is [total].\n\n"
           "The bits are those that generate returns for tokens that it said. Raises as logits.")
      .def(
          "save",
          [](const PyModel& self, nb::handle folder) {
            const std::string to = path_of(folder, {"LanguageModel.save", "folder"});
            const Unlocked unlocked;
            self.model.save(to);
            if (self.tokenizer) self.tokenizer->save(to);
          },
          nb::arg("folder").none(),
          "Writes config.json, model.safetensors and, if there is a tokenizer, tokenizer.json, each whole or not at "
          "all;\n"
          "transformers reads them. Creates the folder if needed. Blocks of a GGUF file are written decoded. Raises "
          "OSError.")
      .def("__reduce__", [](const PyModel&) -> nb::object {
        throw type_error(
            "LanguageModel: its weights are not copied or pickled; save(folder) writes them, load reads them");
      });
  add_model_cache(m);
}

}  // namespace attn::python
