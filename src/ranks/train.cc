// src/ranks/train.cc: begins and resumes a training that ranks share: what must be equal is compared, and a checkpoint
// goes from rank 0 to all.
#include <attn/random.h>
#include <attn/train.h>

#include "model/train_settings.h"
#include "model/train_text.h"
#include "ranks/messages.h"
#include "ranks/products.h"
#include "ranks/shared_steps.h"

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <cstring>

namespace attn {
namespace {

/// Calls `work` at rank 0. If it fails there, every rank throws.
void at_first(const Ranks& ranks, const std::function<void()>& work) {
  std::exception_ptr failure;
  try {
    if (ranks.rank() == 0) work();
  } catch (...) { failure = std::current_exception(); }
  ranks.agree(failure);
}

void check_count(const TrainOptions& options, const Ranks& ranks) {
  if (ranks.size() > options.part_count())
    throw ValueError(runtime::format("Trainer: {} ranks share a training of {} part{}; parts must be {} or more",
                                     ranks.size(), options.part_count(), options.part_count() == 1 ? "" : "s",
                                     ranks.size()));
}

/// Compares what a training depends on. The weights come last, because a resumed training gets them from rank 0.
void compare(const Trainer::State& state, const Ranks& ranks) {
  ranks.same("Trainer: the options", settings_of(state.options).dump());
  ranks.same("Trainer: the digest of the tokens", state.task->digest());
  compare_products("Trainer", state.options.dtype, ranks);
}

/// Gives every rank rank 0's progress, generator and weights.
void copy_from_first(Trainer::State& s, const Ranks& ranks) {
  nlohmann::json facts{{"step", s.step},
                       {"best_step", s.best_step},
                       {"losses", s.losses.size()},
                       {"validations", s.validations.size()},
                       {"notice", s.notice}};
  facts = nlohmann::json::parse(ranks.from_first(facts.dump()));
  s.step = facts.at("step").get<std::int64_t>(), s.best_step = facts.at("best_step").get<std::int64_t>();
  s.notice = facts.at("notice").get<std::string>();
  s.losses.resize(facts.at("losses").get<std::size_t>());
  s.validations.resize(facts.at("validations").get<std::size_t>());
  std::vector<std::uint8_t> generator;
  {
    const std::lock_guard lock(default_generator_mutex());
    generator = default_generator().state();
  }
  Messages messages(ranks.transport());
  messages.from_first(&s.best, sizeof s.best);
  messages.from_first(s.losses.data(), s.losses.size() * sizeof(LossPoint));
  messages.from_first(s.validations.data(), s.validations.size() * sizeof(LossPoint));
  messages.from_first(generator.data(), generator.size());
  for (const Tensor& x : s.parameters)
    messages.from_first(x.data(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype()));
  messages.wait();
  for (const Tensor& x : s.parameters) x.bump_version();
  const std::lock_guard lock(default_generator_mutex());
  default_generator().set_state(generator);
}

}  // namespace

Trainer::Trainer(std::vector<std::int64_t> ids, const TrainOptions& options, const Ranks& ranks) {
  std::exception_ptr failure;
  try {
    state_ = std::make_unique<State>(std::make_unique<TextTask>(std::move(ids), options), options);
    check_count(options, ranks);
  } catch (...) { failure = std::current_exception(); }
  ranks.agree(failure);
  if (ranks.size() == 1) return;
  compare(*state_, ranks);
  ranks.same("Trainer: the digest of the weights", weights_digest());
  state_->ranks = std::make_unique<ShardedSteps>(*state_, ranks, optim::StateDict());
}

Trainer Trainer::resume(const std::string& folder, std::vector<std::int64_t> ids, const Ranks& ranks) {
  if (ranks.size() == 1) return resume(folder, std::move(ids));
  std::unique_ptr<State> state;
  std::string settings;
  at_first(ranks, [&] {
    state = std::move(resume(folder, ids).state_);
    settings = settings_of(state->options).dump();
  });
  settings = ranks.from_first(settings);
  std::exception_ptr failure;
  try {
    if (!state) {
      const TrainOptions options = options_of(nlohmann::json::parse(settings));
      state = std::make_unique<State>(std::make_unique<TextTask>(std::move(ids), options), options);
    }
    check_count(state->options, ranks);
  } catch (...) { failure = std::current_exception(); }
  ranks.agree(failure);
  compare(*state, ranks);
  copy_from_first(*state, ranks);
  optim::StateDict optimizer;
  at_first(ranks, [&] {
    optimizer = state->adamw.state_dict();
    state->adamw.load_state_dict({});  // the ranks keep it in shares
  });
  Trainer trainer(std::move(state));
  ranks.same("Trainer: the digest of the weights", trainer.weights_digest());
  State& s = trainer.state();
  s.ranks = std::make_unique<ShardedSteps>(s, ranks, optimizer);
  return trainer;
}

}  // namespace attn
