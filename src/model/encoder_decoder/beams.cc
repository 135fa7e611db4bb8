// src/model/encoder_decoder/beams.cc: implements beam search for one source.
#include "model/encoder_decoder/beams.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace attn {
namespace {

constexpr float unreachable = -1e9F;  // the score of what must not be chosen, as in transformers

/// Returns the indices of the `count` greatest scores, descending; of equal ones the first.
template <typename ScoreOf>
std::vector<std::size_t> greatest(std::size_t size, std::size_t count, const ScoreOf& score_of) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, size);
  const auto before = [&](std::size_t a, std::size_t b) {
    const float x = score_of(a), y = score_of(b);
    return x > y || (x == y && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), before);
  order.resize(count);
  return order;
}

float penalty_of(std::int64_t length, double length_penalty) {
  return static_cast<float>(std::pow(static_cast<double>(length), length_penalty));
}

}  // namespace

BeamSearch::BeamSearch(const TranslateOptions& options, std::int64_t start) : options_(options) {
  const auto beams = static_cast<std::size_t>(options.beams);
  // only the first beam counts in the first step: all are equal
  for (std::size_t i = 0; i < beams; ++i) beams_.push_back({{start}, i == 0 ? 0 : unreachable, i});
  finished_.assign(beams, {{start}, unreachable, false});
}

std::vector<BeamSearch::Candidate> BeamSearch::candidates(const std::vector<std::vector<float>>& scores) const {
  const std::size_t vocabulary = scores[0].size(), beams = beams_.size();
  const std::size_t kept = std::max<std::size_t>(2, 1 + options_.end_tokens.size()) * beams;
  std::vector<float> sums(beams * vocabulary);
  for (std::size_t b = 0; b < beams; ++b)
    for (std::size_t i = 0; i < vocabulary; ++i)
      sums[b * vocabulary + i] = scores[std::min(b, scores.size() - 1)][i] + beams_[b].score;
  std::vector<Candidate> result;
  for (const std::size_t i : greatest(sums.size(), kept, [&](std::size_t at) { return sums[at]; })) {
    const auto token = static_cast<std::int64_t>(i % vocabulary);
    const auto& ends = options_.end_tokens;
    const bool is_end = std::find(ends.begin(), ends.end(), token) != ends.end();
    result.push_back({sums[i], i / vocabulary, token, is_end || said_ + 1 >= options_.tokens});
  }
  return result;
}

void BeamSearch::go_on(const std::vector<Candidate>& all) {
  std::vector<float> open(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) open[i] = all[i].score + (all[i].ends ? unreachable : 0);
  std::vector<Beam> next;
  for (const std::size_t i : greatest(all.size(), beams_.size(), [&](std::size_t at) { return open[at]; })) {
    Beam beam{beams_[all[i].beam].said, open[i], all[i].beam};
    beam.said.push_back(all[i].token);
    next.push_back(std::move(beam));
  }
  beams_ = std::move(next);
}

void BeamSearch::finish(const std::vector<Candidate>& all) {
  const bool full = options_.early_stopping == EarlyStopping::yes &&
                    std::all_of(finished_.begin(), finished_.end(), [](const Finished& one) { return one.finished; });
  std::vector<Finished> merged = finished_;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool ended = all[i].ends && i < beams_.size();  // the others are there so that enough beams stay open
    float score = all[i].score / penalty_of(said_ + 1, options_.length_penalty);
    for (const bool excluded : {full, !improves_, !ended}) score += excluded ? unreachable : 0;
    merged.push_back({{}, score, ended});
  }
  std::vector<Finished> best;
  for (const std::size_t i : greatest(merged.size(), beams_.size(), [&](std::size_t at) { return merged[at].score; })) {
    best.push_back(merged[i]);
    if (i < finished_.size()) continue;
    const Candidate& candidate = all[i - finished_.size()];
    best.back().said = beams_[candidate.beam].said;
    best.back().said.push_back(candidate.token);
  }
  finished_ = std::move(best);
}

bool BeamSearch::can_improve() const {
  const bool longest = options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0;
  const float best = beams_[0].score / penalty_of(longest ? options_.tokens : said_, options_.length_penalty);
  float worst = finished_[0].score;
  for (const Finished& one : finished_) worst = std::min(worst, one.score);
  return std::any_of(finished_.begin(), finished_.end(),
                     [&](const Finished& one) { return best > (one.finished ? worst : unreachable); });
}

bool BeamSearch::step(const std::vector<std::vector<float>>& scores) {
  const std::vector<Candidate> all = candidates(scores);
  finish(all);
  go_on(all);
  ++said_;
  improves_ = improves_ && can_improve();
  const bool full = options_.early_stopping == EarlyStopping::yes &&
                    std::all_of(finished_.begin(), finished_.end(), [](const Finished& one) { return one.finished; });
  const bool over = std::all_of(all.begin(), all.end(), [](const Candidate& one) { return one.ends; });
  return improves_ && !full && !over;
}

std::vector<Translated> BeamSearch::best() const {
  std::vector<Translated> result;
  for (std::size_t i = 0; i < static_cast<std::size_t>(options_.returned); ++i) {
    const Finished& one = finished_[i];
    Translated& text = result.emplace_back();
    text.tokens.assign(one.said.begin() + 1, one.said.end());
    text.score = static_cast<double>(one.score);
    const auto& ends = options_.end_tokens;
    // a text that was not finished may have an end token inside
    const auto end = std::find_first_of(text.tokens.begin(), text.tokens.end(), ends.begin(), ends.end());
    if (end == text.tokens.end()) continue;
    text.tokens.erase(end, text.tokens.end());
    text.finish = Finish::end;
  }
  return result;
}

}  // namespace attn
