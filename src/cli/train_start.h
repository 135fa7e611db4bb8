// src/cli/train_start.h: begins or resumes the training that the arguments of attn train describe.
#pragma once
#include "cli/train_folder.h"
#include "cli/train_options.h"

#include <attn/ranks.h>
#include <attn/tokenizer.h>
#include <attn/train.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attn::cli {

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
/// Resumes the training in --out; --steps may extend it.
Running resume_training(const TrainArguments& a, const Ranks& ranks);

/// Gives every rank the numbers of rank 0, which alone reads files.
std::vector<std::int64_t> from_first(const Ranks& ranks, const std::vector<std::int64_t>& numbers);

}  // namespace attn::cli
