// src/model/reader.cc: computes the tokens of several texts that a cache lacks; short rests form one batch.
#include "model/reader.h"

#include <attn/ops.h>

#include <algorithm>

namespace attn {

std::int64_t first_seen(std::int64_t n, std::int64_t context) {
  const std::int64_t half = std::max<std::int64_t>(context / 2, 1);
  return n <= context ? 0 : (n - context + half - 1) / half * half;
}

/// What the model has to compute of a text.
struct Reader::Part {
  std::int64_t sequence, rows;
  std::span<const std::int64_t> ids;  // those that the cache lacks
  std::int64_t before;                // tokens that it has
  Tensor hidden = {};                 // [rows, C]
};

Reader::Part Reader::part(const Wanted& text) const {
  const std::span<const std::int64_t> all(*text.ids);
  const auto n = static_cast<std::int64_t>(all.size());
  const auto seen = all.subspan(static_cast<std::size_t>(first_seen(n - text.rows + 1, model_.config.context)));
  std::int64_t before = 0;
  if (cache_) {
    const std::int64_t held = cache_->length(text.sequence);
    before = cache_->keep_common(text.sequence, seen.first(seen.size() - static_cast<std::size_t>(text.rows)));
    // the cached keys have other rotary frequencies, or the model cannot exclude it
    if (before > 0 && !(model_.config.same_frequencies(held, std::ssize(seen)) &&
                        model_.config.same_frequencies(before, std::ssize(seen)))) {
      cache_->truncate(text.sequence, 0);
      before = 0;
    }
  }
  return {text.sequence, text.rows, seen.subspan(static_cast<std::size_t>(before)), before};
}

void Reader::begin(Part& part) const {
  constexpr std::int64_t tokens = 256;
  const std::int64_t all = part.before + std::ssize(part.ids);
  if (cache_ && std::ssize(part.ids) - part.rows > tokens) cache_->reserve(all);
  while (cache_ && std::ssize(part.ids) - part.rows > tokens &&
         model_.config.same_frequencies(part.before + tokens, all)) {
    if (on_pass_) on_pass_();
    const std::vector<std::int64_t> first(part.ids.begin(), part.ids.begin() + tokens);
    model_.hidden(tensor<std::int64_t>(first).unsqueeze(0), *cache_, {part.sequence});
    part.ids = part.ids.subspan(tokens);
    part.before += tokens;
  }
}

void Reader::compute(std::vector<Part*> parts) const {
  if (parts.size() == 1) begin(*parts[0]);
  if (on_pass_) on_pass_();
  std::size_t columns = 0;
  for (const Part* part : parts) columns = std::max(columns, part->ids.size());
  // Shorter rests are padded after their last token, which does not see the padding.
  const Tensor ids = zeros({static_cast<std::int64_t>(parts.size()), static_cast<std::int64_t>(columns)}, Dtype::i64);
  std::vector<std::int64_t> sequences;
  for (std::size_t b = 0; b < parts.size(); ++b) {
    std::copy(parts[b]->ids.begin(), parts[b]->ids.end(), ids.data<std::int64_t>() + b * columns);
    sequences.push_back(parts[b]->sequence);
  }
  const Tensor hidden = cache_ ? model_.hidden(ids, *cache_, sequences) : model_.hidden(ids);
  for (std::size_t b = 0; b < parts.size(); ++b) {
    const auto size = static_cast<std::int64_t>(parts[b]->ids.size());
    parts[b]->hidden = hidden.select(0, static_cast<std::int64_t>(b)).narrow(0, size - parts[b]->rows, parts[b]->rows);
    if (cache_ && parts[b]->ids.size() < columns) cache_->truncate(parts[b]->sequence, parts[b]->before + size);
  }
}

void Reader::read(const Wanted& text) const {
  Part whole = part(text);
  compute({&whole});
}

std::vector<Tensor> Reader::logits(const std::vector<Wanted>& texts) const {
  constexpr std::size_t few = 32;  // more ids form their own batch
  std::vector<Part> parts;
  for (const Wanted& text : texts) parts.push_back(part(text));
  std::size_t columns = 0;
  for (const Part& part : parts)
    if (part.ids.size() <= few) columns = std::max(columns, part.ids.size());
  std::vector<Part*> together;
  for (Part& part : parts) {
    const std::int64_t filled = part.before + static_cast<std::int64_t>(columns);
    const bool fits =
        filled <= model_.config.context && model_.config.same_frequencies(part.before + std::ssize(part.ids), filled);
    if (cache_ && part.ids.size() <= few && fits) together.push_back(&part);
    else compute({&part});
  }
  if (!together.empty()) compute(std::move(together));
  std::vector<Tensor> rows;
  for (const Part& part : parts) rows.push_back(part.hidden);
  const Tensor all = model_.logits(rows.size() == 1 ? rows[0] : cat(rows, 0));
  std::vector<Tensor> result;
  for (std::int64_t at = 0; const Part& part : parts) {
    result.push_back(all.narrow(0, at, part.rows));
    at += part.rows;
  }
  return result;
}

}  // namespace attn
