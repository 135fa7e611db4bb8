// src/model/columns.cc: deals heads, columns and tokens among the ranks that share a model, and joins what they
// compute.
#include "model/columns.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include <string_view>

namespace attn {

ColumnShare::ColumnShare(const ModelConfig& config, std::shared_ptr<const SharedColumns> ranks)
    : heads_(config.heads), key_heads_(config.key_value_heads()), head_dim_(config.dim_of_head()), width_(config.width),
      mlp_(config.dim_of_mlp()), vocabulary_(config.vocab_size), ranks_(std::move(ranks)) {
  if (!ranks_) return;
  const std::int64_t most = std::min({heads_, width_, mlp_, vocabulary_});
  if (ranks_->size() > most)
    throw ValueError(runtime::format("LanguageModel::load: {} ranks share a model with {} head{}; at most {} can",
                                     ranks_->size(), heads_, heads_ == 1 ? "" : "s", most));
}

Span ColumnShare::of(Columns which, int rank) const {
  const std::int64_t ranks = ranks_ ? ranks_->size() : 1, group = heads_ / key_heads_;
  if (which == Columns::width) return share_of(width_, rank, ranks);
  if (which == Columns::mlp) return share_of(mlp_, rank, ranks);
  if (which == Columns::vocabulary) return share_of(vocabulary_, rank, ranks);
  if (ranks <= key_heads_) {
    const Span keys = share_of(key_heads_, rank, ranks);
    return which == Columns::key_heads ? keys : Span{keys.begin * group, keys.end * group};
  }
  // The query heads of each group are dealt among some adjacent ranks.
  std::int64_t key = 0;
  while (share_of(ranks, key, key_heads_).end <= rank) ++key;
  if (which == Columns::key_heads) return {key, key + 1};
  const Span its_ranks = share_of(ranks, key, key_heads_),
             heads = share_of(group, rank - its_ranks.begin, its_ranks.size());
  return {key * group + heads.begin, key * group + heads.end};
}

Tensor ColumnShare::joined(const Tensor& mine, Columns which, std::int64_t each) const {
  if (!ranks_) return mine;
  std::vector<std::int64_t> cuts{0};
  for (int rank = 0; rank < ranks_->size(); ++rank) cuts.push_back(of(which, rank).end * each);
  return ranks_->join(mine, cuts);
}

Tensor ColumnShare::rows(const Tensor& ids, const std::function<Tensor(const Tensor& ids)>& lookup) const {
  if (!ranks_) return lookup(ids);
  // Every rank knows from the ids how many rows each has. They are joined as columns of one row.
  const std::vector<std::int64_t> all = ids.to_int_vector();
  const Tensor place = empty({ids.numel()}, Dtype::i64);  // of each id's row among those that are joined
  std::vector<std::int64_t> own, cuts{0};
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    const Span tokens = of(Columns::vocabulary, rank);
    std::int64_t row = cuts.back() / width_;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] < tokens.begin || all[i] >= tokens.end) continue;
      place.data<std::int64_t>()[i] = row++;
      if (rank == ranks_->rank()) own.push_back(all[i] - tokens.begin);
    }
    cuts.push_back(row * width_);
  }
  const Tensor mine = lookup(tensor<std::int64_t>(own)).reshape({static_cast<std::int64_t>(own.size()) * width_});
  Dims sizes = ids.sizes();
  sizes.push_back(width_);
  return embedding(place, ranks_->join(mine, cuts).reshape({ids.numel(), width_})).reshape(sizes);
}

std::vector<ColumnShare::Rows> ColumnShare::rows_of(const std::string& parameter) const {
  const std::string_view layer = std::string_view(parameter).substr(0, parameter.rfind('.'));
  const auto rows = [this](Columns which, std::int64_t each, std::int64_t before, std::int64_t own_before) {
    return Rows{before + own(which).begin * each, size(which) * each, own_before};
  };
  if (layer == "embedding" || layer == "head") return {rows(Columns::vocabulary, 1, 0, 0)};
  if (layer.ends_with(".attention.qkv")) {
    const std::int64_t q = size(Columns::heads) * head_dim_, k = size(Columns::key_heads) * head_dim_;
    return {rows(Columns::heads, head_dim_, 0, 0), rows(Columns::key_heads, head_dim_, heads_ * head_dim_, q),
            rows(Columns::key_heads, head_dim_, (heads_ + key_heads_) * head_dim_, q + k)};
  }
  if (layer.ends_with(".mlp.gate") || layer.ends_with(".mlp.up")) return {rows(Columns::mlp, 1, 0, 0)};
  if (layer.ends_with(".attention.out") || layer.ends_with(".mlp.down")) return {rows(Columns::width, 1, 0, 0)};
  return {};
}

}  // namespace attn
