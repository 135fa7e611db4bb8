// python/src/models.h: what the bindings of language models share: a model with its tokenizer, a cache, paths, marks of
// what is in use.
#pragma once
#include <attn/generate.h>

#include <optional>
#include <string>
#include <vector>

#include "errors.h"
#include "scalars.h"

namespace attn::python {

struct PyModel {
  LanguageModel model;
  std::optional<Tokenizer> tokenizer;
  std::string path;  // empty: made from a config
};

struct PyModelCache {
  ModelCache cache;
  bool busy = false;
};

/// Marks an object as in use while this lives, and throws a ValueError if it already is: another thread, or a function
/// of the call itself, may use it while a call has released the GIL. Made and destroyed with the GIL held.
class InUse {
 public:
  InUse(bool& busy, const char* name) : busy_(busy) {
    if (busy) throw ValueError(text("{}: it is in use by another call, which must end first", name));
    busy = true;
  }
  ~InUse() { busy_ = false; }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  bool& busy_;
};

/// Reads a path: a text, bytes or an os.PathLike.
std::string path_of(nb::handle x, const Argument& argument);
/// Returns a path as Python shows it.
nb::object shown_path(const std::string& path);
/// Reads the dtype of weights by torch's name or the command's; None gives none.
std::optional<Dtype> weights_dtype_of(nb::handle x, const char* function);
/// Reads the ids of one text: whole numbers in a list or an array of one dim.
std::vector<std::int64_t> ids_of(nb::handle x, const Argument& argument);
/// Reads ids of any rank as i64.
Tensor id_tensor(Reader& read, nb::handle x, const char* name);

const PyModel& model_of(nb::handle x, const Argument& argument);

}  // namespace attn::python
