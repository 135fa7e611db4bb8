// src/model/model.cc: runs the forward pass of a language model.
#include <attn/autograd.h>
#include <attn/model.h>
#include <attn/ops.h>

#include "model/blocks.h"
#include "model/initial_weights.h"

#include <algorithm>
#include <functional>

namespace attn {
namespace {

const ModelConfig& checked(const ModelConfig& config, Dtype dtype) {
  config.check();
  if (dtype > Dtype::boolean)
    throw ValueError("LanguageModel: dtype is " + std::to_string(static_cast<int>(dtype)) +
                     "; the enumeration has no such value");
  if (!is_floating(dtype))
    throw DtypeError("LanguageModel: dtype is " + std::string(name_of(dtype)) + "; it must be f32, f64, bf16 or f16");
  return config;
}

std::string tokens(std::int64_t n) { return std::to_string(n) + (n == 1 ? " token" : " tokens"); }

void check_ids(const ModelConfig& config, const Tensor& ids, std::int64_t before = 0) {
  if (ids.dim() != 2)
    throw ShapeError("LanguageModel: ids has shape " + to_string(ids.sizes()) + "; it must be [B, T]");
  if (before + ids.size(1) > config.context)
    throw ValueError("LanguageModel: ids has shape " + to_string(ids.sizes()) +
                     (before ? " after " + tokens(before) : "") + "; the context holds " + tokens(config.context));
}

void check_targets(const Tensor& ids, const Tensor& targets) {
  if (!(targets.sizes() == ids.sizes()))
    throw ShapeError("LanguageModel: targets has shape " + to_string(targets.sizes()) + "; it must be that of ids, " +
                     to_string(ids.sizes()));
}

/// Returns cos and sin of the positions [T], or [B, T], which broadcast over the heads. `tokens` as in `run`.
nn::RotaryEmbedding::Tables tables_of(const nn::RotaryEmbedding& rotary, const Tensor& positions,
                                      const std::vector<std::int64_t>& tokens, Dtype dtype) {
  const Dtype wide = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  if (positions.dim() == 1) return rotary.tables(positions, wide, tokens.front());
  const auto& scaling = rotary.options.scaling;
  nn::RotaryEmbedding::Tables all;
  if (std::all_of(tokens.begin(), tokens.end(),
                  [&](std::int64_t n) { return !scaling || scaling->same(n, tokens.front()); })) {
    all = rotary.tables(positions, wide, tokens.front());
  } else {  // each row has frequencies of its own
    std::vector<Tensor> cos, sin;
    for (std::size_t b = 0; b < tokens.size(); ++b) {
      const auto row = rotary.tables(positions.narrow(0, static_cast<std::int64_t>(b), 1), wide, tokens[b]);
      cos.push_back(row.cos), sin.push_back(row.sin);
    }
    all = {cat(cos), cat(sin)};
  }
  return {all.cos.unsqueeze(1), all.sin.unsqueeze(1)};
}

/// Begins a pass of a model that ranks share: they compare what the pass depends on. It must come before every check
/// that throws: then all ranks throw, and none leaves while others wait for it.
void begin_pass(const LanguageModel& model, const std::vector<SharedColumns::NamedTensor>& tensors,
                const std::string& text) {
  if (model.is_shared()) model.parts().held.ranks->begin(tensors, text);
}

/// Returns what `work` returns. If ranks share the model, an error of `work` at one rank is an error at all.
template <typename Work>
Tensor in_pass(const LanguageModel& model, std::int64_t joins, const Work& work) {
  return model.is_shared() ? model.parts().held.ranks->pass(joins, std::ref(work)) : work();
}

/// Returns how often ranks join columns in all layers: the embedding's, then heads, projections and both halves of each
/// MLP; by spans also the new q, k and v.
std::int64_t joins_of(const LanguageModel& model, bool by_spans) {
  return 1 + model.config.layers * (by_spans ? 5 : 4);
}

/// Returns a text that says whether a pass is in training. Ranks compare it.
std::string text_of_mode(const LanguageModel& model) {
  return model.is_training() && grad_enabled() ? ", in training" : "";
}

/// Returns a text that describes the cache of a pass. Ranks compare it.
std::string text_of_cache(const ModelCache& cache, std::size_t layers, const std::vector<std::int64_t>& sequences) {
  const ModelCacheOptions& o = cache.options();
  std::string text = ", a cache of " + std::to_string(layers) + " layers, dtype " + std::string(name_of(o.dtype)) +
                     ", storage " + std::to_string(static_cast<int>(o.storage)) + ", window " +
                     std::to_string(o.window) + ", sinks " + std::to_string(o.sinks) +
                     (cache.by_spans() ? ", by spans" : "") + ", sequences";
  for (const std::int64_t each : sequences) {
    const bool there = each >= 0 && each < cache.sequences();
    text += " " + std::to_string(each) + ":" + (there ? std::to_string(cache.length(each)) : "none");
  }
  return text;
}

}  // namespace

LanguageModel::LanguageModel(const ModelConfig& config, std::shared_ptr<const Parts> parts)
    : config(config), parts_(std::move(parts)) {
  register_module("embedding", parts_->embedding);
  if (parts_->positions) register_module("positions", *parts_->positions);
  register_module("blocks", parts_->blocks);
  register_module("norm", parts_->norm);
  if (parts_->head) register_module("head", *parts_->head);
}

LanguageModel::LanguageModel(const ModelConfig& config, Dtype dtype, Generator* generator)
    : LanguageModel(config, std::make_shared<const Parts>(checked(config, dtype), Held{.dtype = dtype})) {
  if (generator != nullptr) {
    draw_initial_weights(*parts_, *generator);
  } else {
    const std::lock_guard lock(default_generator_mutex());
    draw_initial_weights(*parts_, default_generator());
  }
}

Dtype LanguageModel::dtype() const { return parts_->held.dtype; }

bool LanguageModel::is_stored() const { return parts_->held.stored; }

bool LanguageModel::is_shared() const { return parts_->held.ranks != nullptr; }

/// Runs all blocks on the ids. attend(layer, heads) must return the attention output [B, Hq, T, D]. `tokens`: the
/// length of each row's text, or one for all.
template <typename Attend>
Tensor LanguageModel::run(const Tensor& ids, const Tensor& positions, const std::vector<std::int64_t>& tokens,
                          const Attend& attend) const {
  if (is_stored() && is_training() && grad_enabled())
    throw ValueError(
        "LanguageModel: the weights are the blocks of a GGUF file, which cannot be trained; decoded() gives "
        "a model that can");
  if (is_shared() && is_training() && grad_enabled())
    throw ValueError("LanguageModel: several ranks have columns of the weights; such a model cannot be trained");
  if (is_shared()) embedding(ids, empty({config.vocab_size, 0}));  // an invalid id is an error at all ranks
  const auto dropped = [&](const Tensor& x) {
    return config.dropout > 0 ? dropout(x, config.dropout, is_training() && grad_enabled()) : x;
  };
  std::vector<Rotation> rotations;
  for (const nn::RotaryEmbedding& rotary : parts_->rotaries)
    rotations.push_back({&rotary, tables_of(rotary, positions, tokens, dtype())});
  Tensor x = parts_->columns.rows(ids, [&](const Tensor& own) { return parts_->embedding.rows(own); });  // [B, T, C]
  if (parts_->embedding_scale) x = x * *parts_->embedding_scale;
  if (parts_->positions) x = x + (*parts_->positions)(positions);
  x = dropped(x);
  std::int64_t layer = 0;
  for (const DecoderBlock& block : parts_->blocks) {
    const auto& rotary = parts_->kinds[static_cast<std::size_t>(layer)].rotary;
    const Heads heads =
        block.attention.heads_of(block.attention_norm(x), rotary ? rotations[*rotary] : Rotation(), parts_->project);
    const Tensor attended = attend(layer++, heads);
    if (!attended.defined()) return x;
    const auto added = [&](const Tensor& y, const std::optional<ModelNorm>& norm) {
      return x + dropped(norm ? (*norm)(y) : y);
    };
    x = added(block.attention.joined(attended, parts_->project), block.attention_post_norm);
    x = added(block.mlp(block.mlp_norm(x), parts_->project), block.mlp_post_norm);
  }
  return parts_->norm(x);
}

Tensor LanguageModel::hidden(const Tensor& ids) const {
  begin_pass(*this, {{"ids", ids}}, text_of_mode(*this));
  return in_pass(*this, joins_of(*this, false), [&] { return hidden_of(ids); });
}

Tensor LanguageModel::hidden_of(const Tensor& ids) const {
  check_ids(config, ids);
  return run(ids, arange(0, ids.size(1)), {ids.size(1)}, [&](std::int64_t layer, const Heads& heads) {
    const Tensor& q = heads.q;
    AttentionOptions options = parts_->kinds[static_cast<std::size_t>(layer)].options;
    options.dropout_p = is_training() ? config.dropout : 0;
    // the output is laid out as [B, T, Hq, D], so that joining the heads needs no copy
    options.out = empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.dtype()).transpose(1, 2);
    return attention(q, heads.k, heads.v, options).output;
  });
}

Tensor LanguageModel::hidden(const Tensor& ids, ModelCache& cache, const std::vector<std::int64_t>& sequences) const {
  const std::vector<std::int64_t> rows =
      sequences.empty() && ids.defined() && ids.dim() > 0 ? arange(0, ids.size(0)).to_int_vector() : sequences;
  if (is_shared()) begin_pass(*this, {{"ids", ids}}, text_of_cache(cache, cache.layers_.size(), rows));
  return in_pass(*this, joins_of(*this, cache.by_spans()), [&] { return hidden_of(ids, cache, rows); });
}

Tensor LanguageModel::hidden_of(const Tensor& ids, ModelCache& cache, const std::vector<std::int64_t>& rows) const {
  check_ids(config, ids);
  if (static_cast<std::int64_t>(cache.layers_.size()) != config.layers)
    throw ValueError("LanguageModel: the cache is of a model with " + std::to_string(cache.layers_.size()) +
                     (cache.layers_.size() == 1 ? " layer" : " layers") + "; this one has " +
                     std::to_string(config.layers));
  if (static_cast<std::int64_t>(rows.size()) != ids.size(0))
    throw ShapeError("LanguageModel: ids has shape " + to_string(ids.sizes()) + "; it must have a row for each of " +
                     std::to_string(rows.size()) + " sequences");
  const Tensor positions = empty({ids.size(0), ids.size(1)}, Dtype::i64);
  std::vector<std::int64_t> before, after;
  for (std::size_t b = 0; b < rows.size(); ++b) {
    before.push_back(cache.length(rows[b]));
    check_ids(config, ids, before[b]);
    after.push_back(before[b] + ids.size(1));
    if (before[b] > 0 && !config.same_frequencies(before[b], after[b]))
      throw ValueError("LanguageModel: sequence " + std::to_string(rows[b]) + " has " + tokens(before[b]) +
                       " in the cache; with " + tokens(after[b]) +
                       " all have other rotary frequencies: truncate it to 0 and give all tokens");
    if (std::count(rows.begin(), rows.end(), rows[b]) > 1)
      throw ValueError("LanguageModel: sequence " + std::to_string(rows[b]) + " is given twice");
    for (std::int64_t t = 0; t < ids.size(1); ++t)
      positions.data<std::int64_t>()[static_cast<std::int64_t>(b) * ids.size(1) + t] = before[b] + t;
  }
  const NoGrad no_grad;
  const std::vector<std::int64_t> tokens = ids.to_int_vector();
  const auto columns = static_cast<std::ptrdiff_t>(ids.size(1));
  for (const std::int64_t row : rows) cache.free_pages(row);
  try {
    const Tensor result = run(ids, positions, after, [&](std::int64_t layer, const Heads& heads) {
      std::vector<KvSequence> handles;
      for (const std::int64_t row : rows) handles.push_back(cache.at(row).handles[static_cast<std::size_t>(layer)]);
      KvCache& kept = cache.layers_[static_cast<std::size_t>(layer)];
      AttentionOptions options = parts_->kinds[static_cast<std::size_t>(layer)].options;
      if (cache.spans_) return cache.spans_->attend({kept, handles, before, heads, parts_->columns, options});
      kept.append(handles, heads.k, heads.v);
      options.mask = cache.mask(options.mask);
      return attention_cached(heads.q, kept, handles, options).output;
    });
    for (std::size_t b = 0; b < rows.size(); ++b) {
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(b) * columns;
      std::vector<std::int64_t>& own = cache.at(rows[b]).tokens;
      own.insert(own.end(), first, first + columns);
    }
    return result;
  } catch (...) {  // removes the rows that some layers have already appended
    for (std::size_t b = 0; b < rows.size(); ++b) cache.truncate(rows[b], before[b]);
    throw;
  }
}

Tensor LanguageModel::hidden_packed(const Tensor& ids, const Tensor& cu_seqlens) const {
  begin_pass(*this, {{"ids", ids}, {"cu_seqlens", cu_seqlens}}, text_of_mode(*this));
  return in_pass(*this, joins_of(*this, false), [&] { return hidden_of_packed(ids, cu_seqlens); });
}

Tensor LanguageModel::hidden_of_packed(const Tensor& ids, const Tensor& cu_seqlens) const {
  if (!ids.defined() || ids.dim() != 1)
    throw ShapeError("LanguageModel: ids has shape " + (ids.defined() ? to_string(ids.sizes()) : "[]") +
                     "; packed sequences are [total]");
  if (!cu_seqlens.defined() || cu_seqlens.dim() != 1 || !is_integral(cu_seqlens.dtype()))
    throw ValueError("LanguageModel: cu_seqlens must be i32 or i64 [N + 1]");
  const std::vector<std::int64_t> ends = cu_seqlens.to_int_vector();
  if (ends.empty() || ends.front() != 0 || ends.back() != ids.size(0))
    throw ValueError("LanguageModel: cu_seqlens must begin with 0 and end with " + std::to_string(ids.size(0)) +
                     ", the number of ids");
  const Tensor positions = empty({ids.size(0)}, Dtype::i64);
  std::int64_t* const position = positions.data<std::int64_t>();
  std::int64_t longest = 0;
  // attention() itself refuses other faults of cu_seqlens
  for (std::size_t n = 0; n + 1 < ends.size(); ++n) {
    longest = std::max(longest, ends[n + 1] - ends[n]);
    if (ends[n + 1] - ends[n] > config.context)
      throw ValueError("LanguageModel: sequence " + std::to_string(n) + " has " + tokens(ends[n + 1] - ends[n]) +
                       "; the context holds " + tokens(config.context));
    for (std::int64_t i = std::max<std::int64_t>(ends[n], 0); i < std::min(ends[n + 1], ids.size(0)); ++i)
      position[i] = i - ends[n];
  }
  for (std::size_t n = 0; n + 1 < ends.size(); ++n)
    if (!config.same_frequencies(ends[n + 1] - ends[n], longest))
      throw ValueError("LanguageModel: sequence " + std::to_string(n) + " has " + tokens(ends[n + 1] - ends[n]) +
                       ", another " + tokens(longest) + "; their rotary frequencies differ: pack them apart");
  return run(ids.unsqueeze(0), positions, {longest},
             [&](std::int64_t layer, const Heads& heads) {
               AttentionOptions options = parts_->kinds[static_cast<std::size_t>(layer)].options;
               options.cu_seqlens_q = cu_seqlens;
               options.dropout_p = is_training() ? config.dropout : 0;
               return attention(heads.q, heads.k, heads.v, options).output;
             })
      .select(0, 0);
}

LanguageModel::Heads LanguageModel::heads(const Tensor& ids, std::int64_t layer) const {
  if (is_shared())
    throw ValueError("LanguageModel: several ranks have columns of the weights; such a model cannot be explained");
  check_ids(config, ids);
  if (layer < 0 || layer >= config.layers)
    throw ValueError("LanguageModel: layer is " + std::to_string(layer) + "; it must be from 0 to " +
                     std::to_string(config.layers - 1));
  const NoGrad no_grad;
  Heads wanted;
  run(ids, arange(0, ids.size(1)), {ids.size(1)}, [&](std::int64_t at, const Heads& heads) {
    if (at == layer) {
      wanted = heads;
      return Tensor();
    }
    return attention(heads.q, heads.k, heads.v, parts_->kinds[static_cast<std::size_t>(at)].options).output;
  });
  return wanted;
}

Tensor LanguageModel::logits(const Tensor& hidden) const {
  const auto joined = [&] {
    return parts_->columns.joined(
        parts_->head ? parts_->project(*parts_->head, hidden) : parts_->project(parts_->embedding, hidden),
        Columns::vocabulary);
  };
  const Tensor y = in_pass(*this, 1, joined);
  return config.final_softcap > 0 ? tanh(y / config.final_softcap) * config.final_softcap : y;
}

Tensor LanguageModel::forward(const Tensor& ids) const { return logits(hidden(ids)); }

Tensor LanguageModel::loss(const Tensor& ids, const Tensor& targets) const {
  const Tensor y = forward(ids);
  check_targets(ids, targets);
  return cross_entropy(y.flatten(0, 1), targets.reshape({-1}));
}

Tensor LanguageModel::log_probabilities(const Tensor& ids, const Tensor& targets, const Tensor& cu_seqlens) const {
  const Tensor y = logits(cu_seqlens.defined() ? hidden_packed(ids, cu_seqlens) : hidden(ids));
  check_targets(ids, targets);
  const Tensor rows = y.reshape({-1, y.size(-1)}).to(dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  return -cross_entropy(rows, targets.reshape({-1}), {.reduction = Reduction::none}).reshape(ids.sizes());
}

}  // namespace attn
