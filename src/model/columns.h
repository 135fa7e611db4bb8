// src/model/columns.h: which output columns of a model's matrices a rank has, when several ranks share the model.
#pragma once
#include <attn/model.h>

#include "kernels/attention/block_and_tile_sizes.h"
#include "model/part_tree.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attn {

class ColumnShare;

/// A layer's attention of new tokens over a cache whose keys are dealt to the ranks in spans of 1,024.
struct SpanAttention {
  KvCache& cache;  // all key heads; of each sequence the keys of this rank's spans, one after another
  const std::vector<KvSequence>& sequences;
  const std::vector<std::int64_t>& before;  // tokens of each sequence, at all ranks, before the new ones
  const LanguageModel::Heads& heads;        // of the new tokens, this rank's
  const ColumnShare& columns;
  const AttentionOptions& options;  // without lengths and positions
};

/// What the ranks that share a model send each other (src/ranks). All call the functions, in the same order.
class SharedColumns {
 public:
  static constexpr std::int64_t span = kernels::kv_split;  // keys: what one process sums before it merges
  virtual ~SharedColumns() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  using NamedTensor = std::pair<const char*, Tensor>;
  /// Begins a pass of the model. Throws at every rank unless all have the same tensors and the same text, which says
  /// what else the pass depends on.
  virtual void begin(const std::vector<NamedTensor>& tensors, const std::string& text) const = 0;
  /// Returns what `work` returns, which calls `join` and `attend`. If it throws at one rank, all throw a RankError,
  /// unless all have the same error. `joins`: how often it calls `join`. What it does after the last one throws at
  /// its rank alone: the others do not look there any more.
  virtual Tensor pass(std::int64_t joins, const std::function<Tensor()>& work) const = 0;
  /// Joins the columns of all ranks: [.., cuts.back()]. `mine`: those of this rank, from cuts[rank] to before
  /// cuts[rank + 1].
  virtual Tensor join(const Tensor& mine, const std::vector<std::int64_t>& cuts) const = 0;
  /// Returns the output of this rank's heads over a cache by spans, after each rank has appended its keys.
  virtual Tensor attend(const SpanAttention& call) const = 0;

  // The layout of a cache by spans, which only ranks have.
  /// Returns whether the ranks share a cache by spans. ValueError for spans with a window.
  virtual bool by_spans(const ModelConfig& config, const ModelCacheOptions& options) const = 0;
  /// Returns how many of the first `length` keys are of this rank's spans: span s is at rank s mod R.
  virtual std::int64_t own_keys(std::int64_t length) const = 0;
  /// Throws a ValueError unless a sequence of `most` tokens can be cut to `length`.
  virtual void check_truncation(std::int64_t length, std::int64_t most) const = 0;
};

/// What is cut among the ranks.
enum class Columns { heads, key_heads, width, mlp, vocabulary };

/// What one rank has of a model. A product is never cut along its sum, only its output is: every number is computed at
/// one rank, in the order of one process.
class ColumnShare {
 public:
  /// Null: this process has the whole model. ValueError for more ranks than heads.
  ColumnShare(const ModelConfig& config, std::shared_ptr<const SharedColumns> ranks);

  /// Returns which of them are this rank's. A key head is at each rank that has a query head of its group.
  Span own(Columns which) const { return of(which, ranks_ ? ranks_->rank() : 0); }
  Span of(Columns which, int rank) const;
  std::int64_t size(Columns which) const { return own(which).size(); }
  /// Joins the columns [.., n `each`] of all ranks; n: of this rank. Not for key heads, which several may have.
  Tensor joined(const Tensor& mine, Columns which, std::int64_t each = 1) const;
  /// Looks up rows of a table with one row for each token: `lookup` returns [.., C] for ids within this rank's rows.
  Tensor rows(const Tensor& ids, const std::function<Tensor(const Tensor& ids)>& lookup) const;

  /// Returns the parts of the file's tensors that this rank has; `all`: those of the complete model.
  template <typename Stored>
  std::vector<Stored> own(const std::vector<Stored>& all) const {
    if (!ranks_) return all;
    std::vector<Stored> mine;
    for (const Stored& one : all) {
      const std::vector<Rows> kept = rows_of(one.parameter);
      if (kept.empty()) mine.push_back(one);
      for (const Rows& rows : kept) {
        const std::int64_t first = std::max(one.row, rows.first),
                           end = std::min(one.row + one.rows, rows.first + rows.count);
        if (first >= end) continue;
        Stored& part = mine.emplace_back(one);
        part.file_row = one.file_row + first - one.row;
        part.row = rows.own + first - rows.first;
        part.rows = end - first;
      }
    }
    return mine;
  }

 private:
  struct Rows {
    std::int64_t first, count, own;  // rows of the complete parameter; `own`: the first one's index in the rank's part
  };
  std::vector<Rows> rows_of(const std::string& parameter) const;  // empty: all of them, everywhere

  std::int64_t heads_, key_heads_, head_dim_, width_, mlp_, vocabulary_;
  std::shared_ptr<const SharedColumns> ranks_;
};

}  // namespace attn
