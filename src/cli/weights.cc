// src/cli/weights.cc: loads w_query, w_key, w_value and embedding by their names from a file or a folder.
#include "cli/weights.h"

#include <attn/npy.h>
#include <attn/safetensors.h>

#include "io/is_file.h"
#include "runtime/format.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>

namespace attn::cli {
namespace {

/// Returns whether the file is an .npy or .npz.
bool is_numpys(const std::string& path) {
  char begin[6] = {};
  if (io::is_file(path)) std::ifstream(path, std::ios::binary).read(begin, sizeof begin);
  const std::string_view first(begin, sizeof begin);
  return first == "\x93NUMPY" || first.starts_with("PK\x03\x04");
}

}  // namespace

void load_weights(const std::string& path, ExplainOptions& options) {
  std::function<Tensor(const std::string&)> find;  // returns an undefined tensor when there is none
  std::string have;
  if (std::error_code unknown; std::filesystem::is_directory(path, unknown)) {
    find = [&](const std::string& name) {
      const std::string file = (std::filesystem::path(path) / (name + ".npy")).string();
      return io::is_file(file) ? load_npy(file) : Tensor();
    };
  } else if (is_numpys(path)) {
    throw FormatError(runtime::format("explain: {} is a file of NumPy's; a folder of w_query.npy, w_key.npy and "
                                      "w_value.npy is needed, or a safetensors file",
                                      path),
                      0);
  } else {
    Safetensors file = load_safetensors(path);
    for (const auto& [name, tensor] : file.tensors) have += (have.empty() ? "; it has " : ", ") + name;
    find = [file = std::move(file)](const std::string& name) { return file.find(name) ? *file.find(name) : Tensor(); };
  }
  struct Wanted {
    const char* name;
    Tensor* place;
    bool needed;
  };
  const Wanted wanted[] = {{"w_query", &options.w_query, true},
                           {"w_key", &options.w_key, true},
                           {"w_value", &options.w_value, true},
                           {"embedding", &options.embedding, false},
                           {"w_output", &options.w_output, false},
                           {"query_vector", &options.query_vector, false},
                           {"score_w_query", &options.score_w_query, false},
                           {"score_w_key", &options.score_w_key, false},
                           {"score_w", &options.score_w, false}};
  for (const Wanted& matrix : wanted) {
    *matrix.place = find(matrix.name);
    if (matrix.needed && !matrix.place->defined())
      throw ValueError(runtime::format("explain: {} has no {}{}", path, matrix.name, have));
  }
}

}  // namespace attn::cli
