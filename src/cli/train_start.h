// src/cli/train_start.h: begins or resumes the training that the arguments of attn train ask for.
#pragma once
#include "cli/parser.h"
#include "cli/train_folder.h"

#include <attn/ranks.h>
#include <attn/tokenizer.h>
#include <attn/train.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attn::cli {

struct TrainArguments {
  std::vector<std::string> texts;
  std::string out = "attn-model", log, size = "nano", tokens = "characters", dtype = "f32";
  std::int64_t vocab = 0, save_every = 0, parts = 0, check_every = 0;
  std::int64_t steps = 0, batch = 0, context = 0, eval_every = 0, seed = 1337;
  double lr = 0, dropout = 0, rank_timeout = 600;
  bool resume = false;
  std::map<std::string, Option> given;
  bool has(const char* name) const { return given.at(name).given(); }
};

/// A training and what rank 0 has of it: the lock of its folder, its tokenizer, and what it creates (files, then the
/// folder).
struct Running {
  std::unique_ptr<FolderLock> lock;
  std::unique_ptr<Trainer> trainer;
  std::optional<Tokenizer> tokenizer;
  std::vector<std::filesystem::path> made;
};

/// Begins a new training. It writes the first checkpoint before the first step, so that a folder that cannot be written
/// is reported at once.
Running begin_training(const TrainArguments& a, const Ranks& ranks);
/// Goes on with the training in --out; --steps may extend it.
Running resume_training(const TrainArguments& a, const Ranks& ranks);

/// Gives every rank the numbers of rank 0, which alone reads files.
std::vector<std::int64_t> from_first(const Ranks& ranks, const std::vector<std::int64_t>& numbers);

}  // namespace attn::cli
