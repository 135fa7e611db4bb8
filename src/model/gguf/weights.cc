// src/model/gguf/weights.cc: finds the tensors of a model in a GGUF file and decodes them into its parameters.
#include <attn/error.h>
#include <attn/ops.h>

#include "io/source.h"
#include "model/gguf/model.h"
#include "model/gguf/names.h"

#include "runtime/format.h"
#include "text/error_text.h"

#include <algorithm>
#include <set>

namespace attn::gguf {
namespace {

std::string listed(const char* label, const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 8; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 8) text += runtime::format(" and {} more", names.size() - 8);
  return names.empty() ? "" : runtime::format("; {}: {}", label, text);
}

}  // namespace

void check_weights(const GgufFile& file, const ModelConfig& config) {
  // Before anything is listed, because a damaged file may claim more layers than fit into memory.
  if (config.layers > static_cast<std::int64_t>(file.tensors().size()))
    throw ValueError(runtime::format("{}: block_count is {}; there are only {} tensors", file.name(), config.layers,
                                     file.tensors().size()));
  check_weights(file, stored_tensors(architecture_of(file), config));
}

void check_weights(const GgufFile& file, const std::vector<Stored>& all) {
  std::vector<std::string> missing, unexpected, misshapen;
  std::set<std::string> known(std::begin(factor_tables), std::end(factor_tables));
  for (const Stored& want : all) {
    known.insert(want.name);
    const GgufFile::Entry* const found = file.find(want.name);
    if (want.file_row > 0) continue;  // the same tensor again
    if (found == nullptr) missing.push_back(want.name);
    else if (!(found->sizes == want.sizes))
      misshapen.push_back(want.name + " is " + to_string(found->sizes) + ", not " + to_string(want.sizes));
  }
  for (const GgufFile::Entry& entry : file.tensors())
    if (!known.contains(entry.name)) unexpected.push_back(io::one_line(text::beginning(entry.name, 200)));
  const std::string text =
      listed("missing", missing) + listed("unexpected", unexpected) + listed("wrong shape", misshapen);
  if (!text.empty()) throw ValueError(file.name() + ": the tensors are not those of the metadata's model" + text);
}

Dtype dtype_of(const GgufFile& file) {
  for (const auto& [type, dtype] : {std::pair{"F16", Dtype::f16}, std::pair{"BF16", Dtype::bf16}})
    if (std::all_of(file.tensors().begin(), file.tensors().end(),
                    [&](const auto& entry) { return entry.type == type || is_factor_table(entry.name); }))
      return dtype;
  return Dtype::f32;
}

bool keeps_matrices(const GgufFile& file, const ModelConfig& config, Dtype dtype) {
  return keeps_matrices(file, stored_tensors(architecture_of(file), config), dtype);
}

bool keeps_matrices(const GgufFile& file, const std::vector<Stored>& all, Dtype dtype) {
  return std::all_of(all.begin(), all.end(), [&](const Stored& one) {
    return !one.is_matrix() || Matrix::multiplies(types()[file.find(one.name)->type_index], dtype);
  });
}

bool is_f32(const GgufFile& file, const std::vector<Stored>& all) {
  return std::all_of(all.begin(), all.end(),
                     [&](const Stored& one) { return !one.is_matrix() || file.find(one.name)->type == "F32"; });
}

void load_weights(const GgufFile& file, const ModelConfig& config, const std::map<std::string, Tensor>& parameters,
                  const Matrices& matrices) {
  load_weights(file, stored_tensors(architecture_of(file), config), parameters, matrices);
}

void load_weights(const GgufFile& file, const std::vector<Stored>& all, const std::map<std::string, Tensor>& parameters,
                  const Matrices& matrices) {
  constexpr std::int64_t at_once = 1 << 22;  // numbers that are decoded before they are copied
  for (const Stored& one : all) {
    const auto matrix = matrices.find(one.parameter);
    if (matrix != matrices.end()) {
      matrix->second->add(file, one);
      continue;
    }
    const GgufFile::Entry& entry = *file.find(one.name);
    const bool vector = one.sizes.size() == 1;
    const std::int64_t rows = vector ? 1 : one.rows, width = one.sizes.back();
    const Tensor all = parameters.at(one.parameter).narrow(0, one.row, one.rows);
    std::int64_t group = std::max<std::int64_t>(1, at_once / width);
    if (one.head_rows != 0) group = std::max(group / one.head_rows, std::int64_t{1}) * one.head_rows;  // whole heads
    for (std::int64_t first = 0; first < rows; first += group) {
      const std::int64_t count = std::min(group, rows - first);
      Tensor part = empty({count, width});
      file.decode_rows(entry, vector ? 0 : one.file_row + first, count, part.data<float>());
      if (one.added != 0) part.sub_(one.added);
      if (vector) part = part.reshape({width});
      if (one.head_rows != 0) {
        const std::int64_t heads = part.size(0) / one.head_rows, inner = part.numel() / part.size(0);
        part = part.reshape({heads, one.head_rows / 2, 2, inner}).transpose(1, 2).reshape(part.sizes());
      }
      if (vector) all.copy_(part.narrow(0, one.file_row, one.rows));
      else all.narrow(0, first, count).copy_(part);
    }
  }
}

}  // namespace attn::gguf
