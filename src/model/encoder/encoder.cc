// src/model/encoder/encoder.cc: runs an encoder on packed texts: computes rows from ids, and scores from rows.
#include <attn/autograd.h>
#include <attn/encoder.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "model/encoder/blocks.h"
#include "model/encoder/folder.h"
#include "model/encoder/texts.h"

#include "runtime/format.h"
#include "runtime/parallel.h"

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

/// Returns the texts after which a group of texts ends, the last one included. A group is computed by one thread from
/// the first layer to the last, so that its rows stay in the caches of that core. The groups have about the same number
/// of rows, and each thread gets the same number of groups. A single text is one group, which all threads share.
std::vector<std::size_t> groups_of(const std::vector<std::int64_t>& ends) {
  constexpr std::int64_t group_rows = 512;  // of 384 columns; 256 takes 4 % longer on two threads, 128 6 %
  const std::int64_t total = ends.back(), threads = num_threads();
  const auto texts = static_cast<std::int64_t>(ends.size()) - 1;
  std::int64_t groups = (total + group_rows - 1) / group_rows;
  groups = std::min(texts, (groups + threads - 1) / threads * threads);
  std::vector<std::size_t> last;
  for (std::int64_t n = 1; n <= texts; ++n) {
    const std::int64_t begin = last.empty() ? 0 : ends[last.back()], left = groups - std::ssize(last);
    if (n < texts && (ends[static_cast<std::size_t>(n)] - begin) * left < total - begin) continue;
    last.push_back(static_cast<std::size_t>(n));
  }
  return last;
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
  std::vector<Tensor> weights;
  for (const EncoderBlock& block : parts_->blocks)
    for (const Tensor& weight : block.weights()) weights.push_back(weight);
  const EncoderProjections project{parts_->packer.packed(weights, ids.size(0))};
  const std::vector<std::size_t> groups = project.packed ? groups_of(ends) : std::vector<std::size_t>();
  if (groups.size() < 2) return parts_->rows(config, ids, ends, segments, project);

  const Tensor result = empty({ids.size(0), config.width}, dtype());
  runtime::parallel_for(std::ssize(groups), [&](std::int64_t group) {
    const NoGrad no_grad;  // of this thread
    const auto at = static_cast<std::size_t>(group), first = at == 0 ? 0 : groups[at - 1], last = groups[at];
    const std::int64_t begin = ends[first], count = ends[last] - begin;
    std::vector<std::int64_t> own;
    for (std::size_t n = first; n <= last; ++n) own.push_back(ends[n] - begin);
    result.narrow(0, begin, count)
        .copy_(parts_->rows(config, ids.narrow(0, begin, count), own,
                            segments.defined() ? segments.narrow(0, begin, count) : Tensor(), project));
  });
  return result;
}

Tensor TextEncoder::Parts::rows(const EncoderConfig& config, const Tensor& ids, const std::vector<std::int64_t>& ends,
                                const Tensor& given_segments, const EncoderProjections& project) const {
  const Tensor at = positions_of(config, ids.to_int_vector(), ends);
  Tensor x = embedding.rows(ids);  // [total, C]
  if (segments) x = x + (*segments)(given_segments.defined() ? given_segments : zeros({ids.size(0)}, Dtype::i64));
  if (positions) x = x + (*positions)(at);
  x = embedding_norm(x);

  EncoderAttention kinds[2];  // of layers without, with a window
  for (std::size_t i : {0, 1}) {
    kinds[i].options.cu_seqlens_q = tensor<std::int64_t>(ends);
    if (relative) kinds[i].options.bias = Bias::relative(relative->weight);
    if (!rotary[i]) continue;
    const auto tables = rotary[i]->tables(at, dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32);
    kinds[i].rotary = &*rotary[i];
    kinds[i].tables = {tables.cos.unsqueeze(1), tables.sin.unsqueeze(1)};
  }
  std::size_t layer = 0;
  for (const EncoderBlock& block : blocks) {
    const std::int64_t window = config.windows.empty() ? 0 : config.windows[layer];
    EncoderAttention& kind = kinds[window > 0 ? 1 : 0];
    if (window > 0) kind.options.mask = Mask::window(window, window);
    x = block(x, kind, project);
    ++layer;
  }
  return norm ? (*norm)(x) : x;
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
  return (*parts_->head)(stack(rows), EncoderProjections()).to(wide);
}

}  // namespace attn
