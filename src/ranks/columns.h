// src/ranks/columns.h: sends the columns of a model that ranks share to all of them.
#pragma once
#include <attn/ranks.h>

#include "model/columns.h"
#include "ranks/shared_pass.h"

#include <functional>
#include <string>
#include <vector>

namespace attn {

class ColumnExchange final : public SharedColumns {
 public:
  explicit ColumnExchange(const Ranks& ranks) : ranks_(ranks), pass_(ranks) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  void begin(const std::vector<NamedTensor>& tensors, const std::string& text) const override;
  Tensor pass(std::int64_t joins, const std::function<Tensor()>& work) const override { return pass_.run(joins, work); }
  Tensor join(const Tensor& mine, const std::vector<std::int64_t>& cuts) const override;
  Tensor attend(const SpanAttention& call) const override;
  bool by_spans(const ModelConfig& config, const ModelCacheOptions& options) const override;
  std::int64_t own_keys(std::int64_t length) const override;
  void check_truncation(std::int64_t length, std::int64_t most) const override;

 private:
  const Ranks ranks_;
  mutable SharedPass pass_;
};

}  // namespace attn
