// src/cli/weights.cc: reading matrices by their names.
#include "cli/weights.h"

#include <attn/npy.h>
#include <attn/safetensors.h>

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <functional>

namespace attn::cli {

void load_weights(const std::string& path, ExplainOptions& options) {
  std::function<Tensor(const std::string&)> find;  // undefined when there is none
  std::string have;
  if (std::filesystem::is_directory(path)) {
    find = [&](const std::string& name) {
      const std::string file = (std::filesystem::path(path) / (name + ".npy")).string();
      return std::filesystem::exists(file) ? load_npy(file) : Tensor();
    };
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
  const std::array<Wanted, 4> wanted{{{"w_query", &options.w_query, true},
                                      {"w_key", &options.w_key, true},
                                      {"w_value", &options.w_value, true},
                                      {"embedding", &options.embedding, false}}};
  for (const Wanted& matrix : wanted) {
    *matrix.place = find(matrix.name);
    if (matrix.needed && !matrix.place->defined()) throw ValueError(fmt::format("explain: {} has no {}{}", path, matrix.name, have));
  }
}

}  // namespace attn::cli
