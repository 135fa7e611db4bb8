// src/io/safetensors.cc: reads and writes files of named tensors.
#include <attn/safetensors.h>

#include <attn/error.h>
#include "runtime/format.h"

#include "io/checksum.h"
#include "io/safetensors_header.h"
#include "io/write.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

namespace attn {
namespace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

/// The parts of a file that is written: its tensors and its head.
struct Parts {
  NamedTensors tensors;  // contiguous tensors, in the order of the file
  std::string head;
  std::vector<std::span<const std::byte>> pieces() const;
};

/// Returns the rank of a dtype in the order of the tensors in a file, which is that of Python's safetensors: larger
/// elements come first, so that all are aligned.
int place_in_file(Dtype dtype) {
  constexpr std::array order = {Dtype::i64,  Dtype::f64, Dtype::f32,    Dtype::i32,
                                Dtype::bf16, Dtype::f16, Dtype::boolean};
  return static_cast<int>(std::find(order.begin(), order.end(), dtype) - order.begin());
}

void check_names(const char* function, const NamedTensors& tensors, const Metadata& metadata) {
  if (metadata.contains(io::checksum_key))
    throw ValueError(runtime::format("{}: the metadata has {}, which attn writes itself", function, io::checksum_key));
  std::unordered_set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) throw ValueError(runtime::format("{}: tensor \"{}\" is undefined", function, name));
    if (name == "__metadata__")
      throw ValueError(
          runtime::format("{}: a tensor is named __metadata__, which the format keeps for itself", function));
    if (!names.insert(name).second)
      throw ValueError(runtime::format("{}: the name \"{}\" is given twice", function, name));
  }
}

/// Returns the text in quotes, escaped for JSON.
std::string quoted(const char* function, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw ValueError(runtime::format("{}: a name or metadata text is not UTF-8", function));
  }
}

/// Returns the head of a file whose tensors are in the file's order: the length, the JSON, and blanks up to a multiple
/// of 8 bytes.
std::string make_head(const char* function, const NamedTensors& tensors, const Metadata& metadata) {
  std::string json = "{";
  const auto separate = [&] {
    if (json.back() != '{') json += ',';
  };
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      separate();
      json += quoted(function, key) + ':' + quoted(function, value);
    }
    json += '}';
  }
  std::uint64_t begin = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t end = begin + static_cast<std::uint64_t>(tensor.numel()) * size_of(tensor.dtype());
    separate();
    json += runtime::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", quoted(function, name),
                            io::safetensors_name(tensor.dtype()), runtime::join(tensor.sizes(), ","), begin, end);
    begin = end;
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json;
}

std::vector<std::span<const std::byte>> Parts::pieces() const {
  std::vector<std::span<const std::byte>> all = {std::as_bytes(std::span(head))};
  for (const auto& [name, tensor] : tensors)
    all.emplace_back(static_cast<const std::byte*>(tensor.data()),
                     static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype()));
  return all;
}

Parts make_parts(const char* function, NamedTensors tensors, const Metadata& metadata) {
  check_names(function, tensors, metadata);
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const int place_a = place_in_file(a.second.dtype()), place_b = place_in_file(b.second.dtype());
    return place_a != place_b ? place_a < place_b : a.first < b.first;
  });
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().contiguous();
  std::string head = make_head(function, tensors, metadata);
  return {std::move(tensors), std::move(head)};
}

/// Computes the checksum of a file's content: of the head without the checksum entry, then of each tensor's data. The
/// result for one piece is the seed for the next.
std::string checksum_of(const Parts& parts) {
  std::uint64_t hash = 0;
  for (const auto& piece : parts.pieces()) hash = io::xxh64(piece, hash);
  return runtime::format("{:016x}", hash);
}

Safetensors load(const io::Source& source) {
  return io::load_wanted(source, [](const std::string&) { return true; });
}

}  // namespace

Safetensors io::load_wanted(const Source& source, const std::function<bool(const std::string&)>& wanted) {
  SafetensorsHeader header = read_safetensors_header(source);
  const auto checksum = header.metadata.extract(checksum_key);
  if (checksum.empty())
    std::erase_if(header.entries, [&](const SafetensorsEntry& entry) { return !wanted(entry.name); });
  for (const SafetensorsEntry& entry : header.entries) held_dtype(source, entry);
  Safetensors result;
  result.tensors.reserve(header.entries.size());
  for (const auto& entry : header.entries)
    result.tensors.emplace_back(entry.name, read_tensor(source, entry.sizes, *entry.dtype, entry.begin));
  result.metadata = std::move(header.metadata);
  if (checksum.empty()) return result;
  if (const std::string now = checksum_of(make_parts(source.name().c_str(), result.tensors, result.metadata));
      checksum.mapped() != now)
    source.fail(runtime::format("damaged: its checksum is {}, that of what it holds {}", checksum.mapped(), now), 0);
  std::erase_if(result.tensors, [&](const auto& named) { return !wanted(named.first); });
  return result;
}

const Tensor* Safetensors::find(std::string_view name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

const Tensor& Safetensors::at(std::string_view name) const& {
  if (const Tensor* tensor = find(name)) return *tensor;
  throw ValueError(runtime::format("Safetensors: there is no tensor \"{}\" among the {}", name, tensors.size()));
}

Safetensors load_safetensors(const std::string& path) { return load(io::FileSource("load_safetensors", path)); }
Safetensors parse_safetensors(std::span<const std::byte> bytes) {
  return load(io::MemorySource("parse_safetensors", bytes));
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  io::write_whole("save_safetensors", path, make_parts("save_safetensors", tensors, metadata).pieces());
}

void io::save_with_checksum(const char* function, const std::string& path, const NamedTensors& tensors,
                            Metadata metadata) {
  Parts parts = make_parts(function, tensors, metadata);
  metadata[checksum_key] = checksum_of(parts);
  parts.head = make_head(function, parts.tensors, metadata);
  write_whole(function, path, parts.pieces());
}

std::vector<std::byte> safetensors_bytes(const NamedTensors& tensors, const Metadata& metadata) {
  const Parts parts = make_parts("safetensors_bytes", tensors, metadata);
  std::vector<std::byte> bytes;
  for (const auto& piece : parts.pieces()) bytes.insert(bytes.end(), piece.begin(), piece.end());
  return bytes;
}

}  // namespace attn
