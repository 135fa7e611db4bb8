// src/model/encoder/encoder.cc: runs an encoder on texts that stand one after another: ids to rows, rows to scores.
#include <attn/encoder.h>
#include <attn/ops.h>

#include "model/encoder/blocks.h"
#include "model/encoder/folder.h"
#include "model/encoder/texts.h"

#include "runtime/format.h"

#include <algorithm>

namespace attn {
namespace {

using Family = EncoderConfig::Family;

std::string tokens(std::int64_t n) { return std::to_string(n) + (n == 1 ? " token" : " tokens"); }

std::string shape_of(const Tensor& x) { return x.defined() ? to_string(x.sizes()) : "[]"; }

void check_ids(const char* name, const Tensor& ids, const Tensor& like) {
  if (!ids.defined() || ids.dim() != 1 || ids.size(0) != like.size(0))
    throw ShapeError(
        runtime::format("TextEncoder: {} has shape {}; texts one after another are [total]", name, shape_of(ids)));
}

/// Returns the position of each token in the table of positions, i64 [total].
Tensor positions_of(const EncoderConfig& config, const std::vector<std::int64_t>& ids,
                    const std::vector<std::int64_t>& ends) {
  const Tensor result = empty({static_cast<std::int64_t>(ids.size())}, Dtype::i64);
  std::int64_t* const position = result.data<std::int64_t>();
  const bool from_padding = config.family == Family::roberta || config.family == Family::mpnet;
  for (std::size_t n = 0; n + 1 < ends.size(); ++n) {
    std::int64_t next = from_padding ? config.padding_id + 1 : 0;
    for (std::int64_t i = ends[n]; i < ends[n + 1]; ++i) {
      // a padding token inside a text has the padding's position, and is not counted
      const bool padding = from_padding && ids[static_cast<std::size_t>(i)] == config.padding_id;
      position[i] = padding ? config.padding_id : next++;
    }
  }
  return result;
}

}  // namespace

std::vector<std::int64_t> ends_of_texts(const Tensor& cu_seqlens, std::int64_t total) {
  if (!cu_seqlens.defined() || cu_seqlens.dim() != 1 || !is_integral(cu_seqlens.dtype()))
    throw ValueError("TextEncoder: cu_seqlens must be i32 or i64 [N + 1]");
  std::vector<std::int64_t> ends = cu_seqlens.to_int_vector();
  if (ends.empty() || ends.front() != 0 || ends.back() != total)
    throw ValueError(
        runtime::format("TextEncoder: cu_seqlens must begin with 0 and end with {}, the number of tokens", total));
  for (std::size_t n = 0; n + 1 < ends.size(); ++n)
    if (ends[n + 1] <= ends[n])
      throw ValueError(runtime::format("TextEncoder: text {} has no token; cu_seqlens must ascend", n));
  return ends;
}

TextEncoder::TextEncoder(const EncoderConfig& config, const Folder& folder, std::shared_ptr<const Parts> parts)
    : config(config), pooling(folder.pooling),
      max_tokens(std::min(folder.max_tokens.value_or(config.context()), config.context())), prompts(folder.prompts),
      parts_(std::move(parts)) {
  register_module("embedding", parts_->embedding);
  if (parts_->positions) register_module("positions", *parts_->positions);
  if (parts_->segments) register_module("segments", *parts_->segments);
  register_module("embedding_norm", parts_->embedding_norm);
  if (parts_->relative) register_module("relative", *parts_->relative);
  register_module("blocks", parts_->blocks);
  if (parts_->norm) register_module("norm", *parts_->norm);
  if (parts_->head) register_module("head", *parts_->head);
}

Dtype TextEncoder::dtype() const { return parts_->dtype; }

Tensor TextEncoder::hidden(const Tensor& ids, const Tensor& cu_seqlens, const Tensor& segments) const {
  check_ids("ids", ids, ids.defined() && ids.dim() == 1 ? ids : Tensor(zeros({0})));
  if (segments.defined()) check_ids("segments", segments, ids);
  const std::vector<std::int64_t> ends = ends_of_texts(cu_seqlens, ids.size(0));
  for (std::size_t n = 0; n + 1 < ends.size(); ++n)
    if (ends[n + 1] - ends[n] > config.context())
      throw ValueError(runtime::format("TextEncoder: text {} has {}; the model reads at most {}", n,
                                       tokens(ends[n + 1] - ends[n]), config.context()));
  const Tensor positions = positions_of(config, ids.to_int_vector(), ends);

  Tensor x = parts_->embedding.rows(ids);  // [total, C]
  if (parts_->segments) x = x + (*parts_->segments)(segments.defined() ? segments : zeros({ids.size(0)}, Dtype::i64));
  if (parts_->positions) x = x + (*parts_->positions)(positions);
  x = parts_->embedding_norm(x);

  EncoderAttention kinds[2];  // of layers without, with a window
  for (std::size_t i : {0, 1}) {
    kinds[i].options.cu_seqlens_q = cu_seqlens;
    if (parts_->relative) kinds[i].options.bias = Bias::relative(parts_->relative->weight);
    if (!parts_->rotary[i]) continue;
    const auto tables = parts_->rotary[i]->tables(positions, dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
    kinds[i].rotary = &*parts_->rotary[i];
    kinds[i].tables = {tables.cos.unsqueeze(1), tables.sin.unsqueeze(1)};
  }
  std::size_t layer = 0;
  for (const EncoderBlock& block : parts_->blocks) {
    const std::int64_t window = config.windows.empty() ? 0 : config.windows[layer];
    EncoderAttention& kind = kinds[window > 0 ? 1 : 0];
    if (window > 0) kind.options.mask = Mask::window(window, window);
    x = block(x, kind, parts_->project);
    ++layer;
  }
  return parts_->norm ? (*parts_->norm)(x) : x;
}

Tensor TextEncoder::logits(const Tensor& hidden, const Tensor& cu_seqlens) const {
  if (!parts_->head)
    throw ValueError("TextEncoder: this model gives vectors, no scores: it is none for sequence classification");
  const std::vector<std::int64_t> ends = ends_of_texts(cu_seqlens, hidden.size(0));
  const Dtype wide = dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  std::vector<Tensor> rows;
  for (std::size_t n = 0; n + 1 < ends.size(); ++n) {
    const Tensor all = hidden.narrow(0, ends[n], ends[n + 1] - ends[n]);
    rows.push_back(config.classifier_mean ? pooled_rows(all.to(wide), EncoderPooling::Kind::mean, 0).to(dtype())
                                          : all.select(0, 0));
  }
  if (rows.empty()) return zeros({0, config.labels}, wide);
  return (*parts_->head)(stack(rows), parts_->project).to(wide);
}

}  // namespace attn
