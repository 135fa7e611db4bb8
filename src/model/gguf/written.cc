// src/model/gguf/written.cc: encodes tensors in the type of a GGUF file, and writes the file.
#include "model/gguf/written.h"

#include <attn/error.h>

#include "io/write.h"

#include "runtime/floating_point.h"
#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

namespace attn::gguf {
namespace {

constexpr std::uint64_t alignment = 32;

/// Returns the number that general.file_type has for a type.
std::int64_t file_type(const Type& type) {
  const std::map<std::string, std::int64_t> numbers = {{"F32", 0}, {"F16", 1}, {"Q4_0", 2}, {"Q8_0", 7}, {"BF16", 32}};
  return numbers.at(type.name);
}

std::string header_of(const Metadata& metadata, const std::vector<Written>& tensors) {
  std::string header = "GGUF";
  append(header, std::uint32_t{3});
  append(header, static_cast<std::uint64_t>(tensors.size()));
  append(header, metadata.count);
  header += metadata.bytes;
  std::uint64_t offset = 0;
  for (const Written& tensor : tensors) {
    append_text(header, tensor.name);
    append(header, static_cast<std::uint32_t>(tensor.sizes.size()));
    for (int i = tensor.sizes.size(); i > 0; --i) append(header, static_cast<std::uint64_t>(tensor.sizes[i - 1]));
    append(header, tensor.type->id);
    append(header, offset);
    offset += tensor.data.size();
  }
  header.resize((header.size() + alignment - 1) / alignment * alignment, '\0');
  return header;
}

}  // namespace

std::vector<std::string> written_types() {
  std::vector<std::string> names;
  for (const Type& type : types())
    if (type.encode != nullptr) names.emplace_back(type.name);
  return names;
}

const Type& type_of(const std::string& name) {
  const auto all = types();
  return *std::find_if(all.begin(), all.end(), [&](const Type& type) { return name == type.name; });
}

Metadata metadata_of(const std::string& architecture, const std::string& type) {
  Metadata metadata;
  metadata.text("general.architecture", architecture);
  metadata.number("general.file_type", file_type(type_of(type)));
  metadata.number("general.quantization_version", 2);
  return metadata;
}

Written written(std::string name, const Tensor& values, const Type& wanted) {
  const bool whole = values.dim() == 2 && values.size(1) % wanted.elements == 0;
  const Type& type = whole ? wanted : type_of("F32");
  Written result{std::move(name), values.sizes(), &type, {}};
  const std::int64_t blocks = values.numel() / type.elements;
  const auto bytes = static_cast<std::uint64_t>(blocks * type.bytes);
  result.data.resize((bytes + alignment - 1) / alignment * alignment);
  const float* const from = values.data<float>();
  if (type.elements > 1)  // an infinite scale would lose all numbers of its block
    for (std::int64_t i = 0; i < values.numel(); ++i)
      if (!(std::abs(from[i]) <= 65504))
        throw ValueError(
            runtime::format("convert: {} holds {}; {} can hold numbers up to 65504", result.name, from[i], type.name));
  const runtime::DefaultFloatingPoint floating_point;
  for (std::int64_t i = 0; i < blocks; ++i) type.encode(from + i * type.elements, result.data.data() + i * type.bytes);
  return result;
}

void write_file(const std::string& path, const Metadata& metadata, const std::vector<Written>& tensors) {
  const std::string header = header_of(metadata, tensors);
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(header))};
  for (const Written& tensor : tensors) pieces.emplace_back(tensor.data);
  io::write_whole("convert", path, pieces);
}

}  // namespace attn::gguf
