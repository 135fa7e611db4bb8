// src/ranks/columns.cc: loads a model that ranks share, and gives each rank the columns that the others have computed.
#include "ranks/columns.h"

#include <attn/ops.h>

#include "io/checksum.h"
#include "model/blocks.h"
#include "ranks/digest.h"
#include "ranks/messages.h"
#include "ranks/products.h"
#include "ranks/spans.h"
#include "runtime/format.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

namespace attn {

void ColumnExchange::begin(const std::vector<NamedTensor>& tensors, const std::string& text) const {
  std::string call;
  for (const auto& [name, x] : tensors) call += (call.empty() ? "" : ", ") + text_of_tensor(name, x);
  ranks_.same("LanguageModel: the call", call + text);
}

Tensor ColumnExchange::join(const Tensor& mine, const std::vector<std::int64_t>& cuts) const {
  Dims sizes = mine.sizes();
  sizes[sizes.size() - 1] = cuts.back();
  const Tensor own = mine.contiguous(), all = empty(sizes, mine.dtype());
  const auto element = static_cast<std::int64_t>(size_of(mine.dtype()));
  const std::int64_t rows = cuts.back() == 0 ? 0 : all.numel() / cuts.back(), row_bytes = cuts.back() * element;
  const auto begin = [&](int rank) { return cuts[static_cast<std::size_t>(rank)] * element; };
  const auto columns = [&](int rank) { return begin(rank + 1) - begin(rank); };
  auto* const to = static_cast<char*>(all.data());
  // Of one row the columns of a rank are adjacent; of several they come as [rows, columns], one rank after another.
  std::vector<char> received(static_cast<std::size_t>(rows > 1 ? rows * (row_bytes - columns(rank())) : 0));
  std::vector<const char*> from(static_cast<std::size_t>(size()), static_cast<const char*>(own.data()));
  Messages messages(ranks_.transport());
  messages.reserve(2 * static_cast<std::size_t>(size()), static_cast<std::size_t>(rows * row_bytes));
  for (std::int64_t other = 0, at = 0; other < size(); ++other) {
    const int r = static_cast<int>(other);
    const std::int64_t bytes = rows * columns(r);
    if (r == rank() || bytes == 0) continue;
    char* const target = rows > 1 ? received.data() + at : to + begin(r);
    messages.receive(r, target, static_cast<std::size_t>(bytes));
    from[static_cast<std::size_t>(r)] = target;
    at += bytes;
  }
  for (int step = 1; step < size(); ++step)  // each rank begins with another neighbour
    messages.send((rank() + step) % size(), own.data(), static_cast<std::size_t>(rows * columns(rank())));
  pass_.wait(messages);
  pass_.has_joined();
  for (int r = 0; r < size(); ++r) {
    if (rows <= 1 && r != rank()) continue;
    const char* const source = from[static_cast<std::size_t>(r)];
    for (std::int64_t row = 0; row < rows; ++row)
      std::memcpy(to + row * row_bytes + begin(r), source + row * columns(r), static_cast<std::size_t>(columns(r)));
  }
  return all;
}

Tensor ColumnExchange::attend(const SpanAttention& call) const { return attend_over_spans(call, *this, ranks_, pass_); }

bool ColumnExchange::by_spans(const ModelConfig& config, const ModelCacheOptions& options) const {
  if (options.sharing == KvSharing::spans && options.window > 0)
    throw ValueError(runtime::format(
        "ModelCache: sharing is by spans, with a window of {}; by spans every token is kept", options.window));
  const bool useful = options.window == 0 && size() > config.key_value_heads() && config.context > span;
  return options.sharing == KvSharing::spans || (options.sharing == KvSharing::automatic && useful);
}

std::int64_t ColumnExchange::own_keys(std::int64_t length) const {
  const std::int64_t step = size() * span, left = length - rank() * span;
  return left <= 0 ? 0 : left / step * span + std::min(left % step, span);
}

void ColumnExchange::check_truncation(std::int64_t length, std::int64_t most) const {
  if (length < 0 || length > most)
    throw ValueError(
        runtime::format("ModelCache: length is {}; it must be from 0 to {}, the length of the sequence", length, most));
}

LanguageModel LanguageModel::load(const std::string& path, std::optional<Dtype> dtype, const Ranks& ranks) {
  if (ranks.size() == 1) return load(path, dtype);
  std::optional<LanguageModel> model;
  std::string architecture;
  std::exception_ptr failure;
  try {
    model.emplace(load(path, dtype, std::make_shared<ColumnExchange>(ranks)));
    architecture = model->config.to_json(model->dtype());
  } catch (...) { failure = std::current_exception(); }
  ranks.agree(failure);
  ranks.same("LanguageModel::load: the digest of the architecture",
             runtime::format("{:016x}", io::xxh64(std::as_bytes(std::span(architecture)))));
  ranks.same("LanguageModel::load: the digest of the weights", runtime::format("{:016x}", model->parts().digest));
  compare_products("LanguageModel::load", model->dtype(), ranks);
  return std::move(*model);
}

}  // namespace attn
