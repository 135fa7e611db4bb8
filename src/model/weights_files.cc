// src/model/weights_files.cc: reads the tensors of a model's folder, in one file or several parts, and copies them into
// the model's parameters.
#include "model/weights_files.h"

#include <attn/ops.h>

#include "io/is_file.h"
#include "io/safetensors_header.h"
#include "io/source.h"

#include <set>

namespace attn {
namespace {

namespace fs = std::filesystem;

constexpr const char* index_name = "model.safetensors.index.json";

/// Returns the file of each tensor that an index lists; the files are in the folder of the index.
std::map<std::string, std::string> files_of_index(const char* function, const std::string& path) {
  const JsonFields index(read_text(function, path), path);
  std::map<std::string, std::string> files;
  const nlohmann::json& map = index.at("weight_map");
  if (!map.is_object()) index.refuse("weight_map", "it must name the file of each tensor");
  for (const auto& [name, file] : map.items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    if (text.empty() || fs::path(text).filename() != text || io::one_line(text) != text)
      index.refuse("weight_map", "each value must be the name of a file in its folder");
    files.emplace(name, text);
  }
  return files;
}

/// Reads the wanted tensors of the index, each from the file that the index names; no other tensor or file is read.
Tensors read_parts(const fs::path& folder, const WeightsWanted& which, const OpenSource& open) {
  const std::string path = (folder / index_name).string();
  std::map<std::string, std::set<std::string>> parts;  // the names of each file's tensors
  for (const auto& [name, file] : files_of_index(which.function, path))
    if (which.wanted(name)) parts[file].insert(name);
  Tensors all;
  for (const auto& [file, names] : parts) {
    const auto source = open("load_safetensors", (folder / file).string());
    for (auto& [name, tensor] :
         io::load_wanted(*source, [&](const auto& found) { return names.contains(found); }).tensors)
      all.emplace(name, tensor);
    for (const std::string& name : names)
      if (!all.contains(name) && !which.spare(name))
        throw ValueError(std::string(which.function) + ": " + path + ": weight_map says that " + io::one_line(name) +
                         " is in " + file + ", which does not have it");
  }
  return all;
}

std::string listed(const char* label, const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 8; ++i) text += (i ? ", " : "") + io::one_line(names[i]);
  if (names.size() > 8) text += " and " + std::to_string(names.size() - 8) + " more";
  return names.empty() ? "" : "; " + std::string(label) + ": " + text;
}

/// Returns whether `wide` represents each number of `narrow` exactly.
bool holds(Dtype wide, Dtype narrow) {
  return wide == narrow || wide == Dtype::f64 || (wide == Dtype::f32 && narrow != Dtype::f64);
}

}  // namespace

std::optional<JsonFields> fields_of(const char* function, const std::filesystem::path& path) {
  if (!io::is_file(path)) return std::nullopt;
  return JsonFields(read_text(function, path.string()), path.string());
}

std::unique_ptr<io::Source> open_file(const char* function, const std::string& path) {
  return std::make_unique<io::FileSource>(function, path);
}

std::string read_text(const char* function, const std::string& path) {
  const io::FileSource source(function, path);
  std::string text(source.size(), '\0');
  source.read(0, text.data(), text.size());
  return text;
}

Tensors read_weights(const fs::path& folder, const WeightsWanted& which, const OpenSource& open) {
  if (!io::is_file(folder / weights_name) && io::is_file(folder / index_name)) return read_parts(folder, which, open);
  Tensors all;
  for (auto& [name, tensor] :
       io::load_wanted(*open("load_safetensors", (folder / weights_name).string()), which.wanted).tensors)
    all.emplace(name, tensor);
  return all;
}

void check_layers_fit(std::int64_t layers, const Tensors& tensors, const std::string& config_path,
                      const char* function) {
  if (layers > static_cast<std::int64_t>(tensors.size()))
    throw ValueError(std::string(function) + ": " + config_path + " says " + std::to_string(layers) +
                     (layers == 1 ? " layer" : " layers") + "; the weights are only " + std::to_string(tensors.size()) +
                     (tensors.size() == 1 ? " tensor" : " tensors"));
}

Dtype widest(Dtype a, Dtype b) { return holds(a, b) ? a : holds(b, a) ? b : Dtype::f32; }

void check_fit(const std::vector<StoredTensor>& stored, const Tensors& tensors, const std::string& folder,
               const WeightsWanted& which) {
  std::vector<std::string> missing, unexpected, misshapen;
  std::set<std::string> known;
  for (const StoredTensor& want : stored) {
    known.insert(want.name);
    const auto found = tensors.find(want.name);
    if (want.file_row > 0) continue;  // the same tensor again
    if (found == tensors.end()) missing.push_back(want.name);
    else if (!(found->second.sizes() == want.sizes) || !is_floating(found->second.dtype()))
      misshapen.push_back(want.name + " is " + std::string(name_of(found->second.dtype())) + " " +
                          to_string(found->second.sizes()) + ", not " + to_string(want.sizes));
  }
  for (const auto& [name, tensor] : tensors)
    if (!known.contains(name) && !which.spare(name)) unexpected.push_back(name);
  const std::string text =
      listed("missing", missing) + listed("unexpected", unexpected) + listed("wrong shape", misshapen);
  if (!text.empty())
    throw ValueError(std::string(which.function) + ": " + folder + ": the weights are not those of config.json" + text);
}

Dtype kept_dtype(const std::vector<StoredTensor>& stored, const Tensors& tensors, const JsonFields& config) {
  const Dtype first = tensors.at(stored.front().name).dtype();
  Dtype all = first;
  bool mixed = false;
  for (const StoredTensor& one : stored) {
    const Dtype dtype = tensors.at(one.name).dtype();
    mixed = mixed || dtype != first;
    all = widest(all, dtype);
  }
  for (const char* field : {"dtype", "torch_dtype"})  // the names in transformers 5 and in earlier versions
    for (const Dtype said : {Dtype::f32, Dtype::f64})
      if (mixed && config.at(field) == torch_name_of(said) && holds(said, all)) return said;
  return all;
}

Tensor rows_of(const Tensors& parameters, const StoredTensor& stored) {
  const Tensor rows = parameters.at(stored.parameter).narrow(0, stored.row, stored.rows);
  return stored.transposed ? rows.t() : rows;
}

void fill(const Tensors& parameters, const std::vector<StoredTensor>& stored, Tensors& tensors) {
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const StoredTensor& one = stored[i];
    const Tensor& given = tensors.at(one.name);
    rows_of(parameters, one).copy_(given.narrow(one.transposed ? 1 : 0, one.file_row, one.rows));
    if (i + 1 == stored.size() || stored[i + 1].name != one.name) tensors.erase(one.name);
  }
}

Tensors by_name(const nn::Module& model) {
  const nn::StateDict state = model.state_dict();
  return {state.begin(), state.end()};
}

}  // namespace attn
