// src/model/weights_files.h: reads the tensors of a model's folder, checks that they are those of its config, and
// copies them into its parameters.
#pragma once
#include "io/source.h"
#include "model/json_fields.h"
#include "model/stored.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

using Tensors = std::map<std::string, Tensor>;

inline constexpr const char* weights_name = "model.safetensors";

/// Returns the text of a file. Errors begin with `function`.
std::string read_text(const char* function, const std::string& path);
/// Returns the fields of a JSON file; nullopt if there is no such file.
std::optional<JsonFields> fields_of(const char* function, const std::filesystem::path& path);

/// Which tensors of a folder belong to a model, by name.
struct WeightsWanted {
  const char* function;                            // errors begin with it
  std::function<bool(const std::string&)> wanted;  // the others are not read
  /// These may be in the file, or in its index alone, though the model does not have them.
  std::function<bool(const std::string&)> spare = [](const std::string&) { return false; };
};

/// Opens a file for the function that errors name.
using OpenSource = std::function<std::unique_ptr<io::Source>(const char* function, const std::string& path)>;
std::unique_ptr<io::Source> open_file(const char* function, const std::string& path);

/// Reads model.safetensors, or each tensor from the part that model.safetensors.index.json names. If `open` gives
/// sources whose bytes stay (io/source.h), the tensors are those bytes, and must not be written to.
Tensors read_weights(const std::filesystem::path& folder, const WeightsWanted& which,
                     const OpenSource& open = open_file);

/// Throws a ValueError that names each tensor that is missing, unexpected or of another shape.
void check_fit(const std::vector<StoredTensor>& stored, const Tensors& tensors, const std::string& folder,
               const WeightsWanted& which);

/// Throws a ValueError if config.json says more layers than the file has tensors: before memory is allocated, because
/// a damaged config.json may claim more layers than fit into memory.
void check_layers_fit(std::int64_t layers, const Tensors& tensors, const std::string& config_path,
                      const char* function);

/// Returns the narrowest dtype that represents all numbers of both exactly; for bf16 with f16 that is f32.
Dtype widest(Dtype a, Dtype b);

/// Returns the dtype of the file's tensors. If they have several, returns that of config.json if it loses nothing, else
/// the narrowest dtype that loses nothing.
Dtype kept_dtype(const std::vector<StoredTensor>& stored, const Tensors& tensors, const JsonFields& config);

/// Returns the rows of a parameter to which a stored tensor belongs, in the layout of the file.
Tensor rows_of(const Tensors& parameters, const StoredTensor& stored);

/// Copies the tensors of the file into the parameters; each is freed before the next is copied.
void fill(const Tensors& parameters, const std::vector<StoredTensor>& stored, Tensors& tensors);

/// Returns a model's parameters and buffers by name.
Tensors by_name(const nn::Module& model);

}  // namespace attn
