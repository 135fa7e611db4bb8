// src/model/encoder_decoder/beams.h: declares beam search for one source, without the model: from the scores it chooses
// which beams continue, and with which tokens.
#pragma once
#include <attn/translation.h>

#include <cstdint>
#include <vector>

namespace attn {

/// The beam search of transformers 5.24, in f32. Of equal scores the earlier candidate comes first.
class BeamSearch {
 public:
  /// A beam that is not finished.
  struct Beam {
    std::vector<std::int64_t> said;  // the start token and the tokens so far
    float score = 0;                 // the sum of their log-probabilities
    std::size_t from = 0;            // which beam of the step before it continues
  };
  BeamSearch(const TranslateOptions& options, std::int64_t start);
  /// Advances by one token. `scores`: log-probabilities [V] after process_scores, for each beam, or in the first step
  /// for the first beam only. Returns whether the search continues.
  bool step(const std::vector<std::vector<float>>& scores);
  const std::vector<Beam>& beams() const { return beams_; }
  /// Returns the best finished texts.
  std::vector<Translated> best() const;

 private:
  struct Finished {
    std::vector<std::int64_t> said;  // with the end token, if it has one
    float score;
    bool finished;
  };
  struct Candidate {
    float score;
    std::size_t beam;
    std::int64_t token;
    bool ends;
  };
  std::vector<Candidate> candidates(const std::vector<std::vector<float>>& scores) const;
  void finish(const std::vector<Candidate>& candidates);
  void go_on(const std::vector<Candidate>& candidates);
  bool can_improve() const;

  const TranslateOptions& options_;
  std::vector<Beam> beams_;
  std::vector<Finished> finished_;
  std::int64_t said_ = 0;  // tokens of each beam, without the start token
  bool improves_ = true;
};

}  // namespace attn
