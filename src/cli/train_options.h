// src/cli/train_options.h: declares the options of attn train, and how they become those of a training.
#pragma once
#include "cli/parser.h"

#include <attn/train.h>

#include <map>
#include <string>
#include <vector>

namespace attn::cli {

struct TrainArguments {
  std::vector<std::string> texts;
  std::string pairs, out = "attn-model", log, size = "nano", tokens = "characters", dtype = "f32";
  std::int64_t vocab = 0, save_every = 0, parts = 0, check_every = 0;
  std::int64_t steps = 0, batch = 0, context = 0, eval_every = 0, seed = 1337;
  double lr = 0, dropout = 0, label_smoothing = 0, rank_timeout = 600;
  bool resume = false;
  std::map<std::string, Option> given;
  bool has(const char* name) const { return given.at(name).given(); }
};

/// Adds the options of the command.
void add_train_options(Parser& parser, TrainArguments& arguments);
/// Throws a UsageError for options that do not go together, a ValueError for one out of range.
void check_train_options(const TrainArguments& arguments);

Tokenizer::Kind kind_of(const TrainArguments& arguments);
/// Returns the options of a new training; those that are not given follow from the size.
TrainOptions options_of(const TrainArguments& arguments, std::int64_t vocab_size);
/// Checks that the options given together with --resume equal those of the saved training; only --steps may be larger.
void check_same(const TrainArguments& arguments, const TrainOptions& now);

}  // namespace attn::cli
