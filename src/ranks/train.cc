// src/ranks/train.cc: begins and resumes a training that ranks share: what must be equal is compared, and a checkpoint
// goes from rank 0 to all.
#include <attn/random.h>
#include <attn/train.h>

#include "model/train_settings.h"
#include "model/train_text.h"
#include "ranks/failure.h"
#include "ranks/messages.h"
#include "ranks/products.h"
#include "ranks/shared_steps.h"

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>

namespace attn {
namespace {

/// Calls `work` at rank 0. If it fails there, every rank throws.
void at_first(const Ranks& ranks, const std::function<void()>& work) {
  ranks.agree(failure_of([&] {
    if (ranks.rank() == 0) work();
  }));
}

void check_count(const TrainOptions& options, const Ranks& ranks) {
  if (ranks.size() > options.part_count())
    throw ValueError(runtime::format("Trainer: {} ranks share a training of {} part{}; parts must be {} or more",
                                     ranks.size(), options.part_count(), options.part_count() == 1 ? "" : "s",
                                     ranks.size()));
}

/// Compares what a training depends on, except the weights: a resumed training gets them from rank 0.
void compare(const Trainer::State& state, const Ranks& ranks) {
  ranks.same("Trainer: the options", settings_of(state.options).dump());
  ranks.same("Trainer: the digest of the tokens", state.task->digest());
  compare_products("Trainer", state.options.dtype, ranks);
}

void compare_weights(const Trainer::State& state, const Ranks& ranks) {
  ranks.same("Trainer: the digest of the weights", digest_of(state.parameters));
}

/// Copies rank 0's progress, generator and weights to every rank.
void copy_from_first(Trainer::State& s, const Ranks& ranks) {
  nlohmann::json facts{{"step", s.step},
                       {"best_step", s.best_step},
                       {"losses", s.losses.size()},
                       {"validations", s.validations.size()},
                       {"notice", s.notice}};
  facts = nlohmann::json::parse(ranks.from_first(facts.dump()));
  s.step = facts.at("step").get<std::int64_t>(), s.best_step = facts.at("best_step").get<std::int64_t>();
  s.notice = facts.at("notice").get<std::string>();
  std::vector<std::uint8_t> generator;
  ranks.agree(failure_of([&] {
    s.losses.resize(facts.at("losses").get<std::size_t>());
    s.validations.resize(facts.at("validations").get<std::size_t>());
    const std::lock_guard lock(default_generator_mutex());
    generator = default_generator().state();
  }));
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

using MakeTask = std::function<std::unique_ptr<TrainTask>(const TrainOptions& options)>;

/// Begins a training that the ranks share, or that this process has alone.
std::unique_ptr<Trainer::State> begun(const MakeTask& make, const TrainOptions& options, const Ranks& ranks) {
  std::unique_ptr<Trainer::State> state;
  ranks.agree(failure_of([&] {
    state = std::make_unique<Trainer::State>(make(options), options);
    check_count(options, ranks);
  }));
  if (ranks.size() > 1) share_training(*state, ranks);
  return state;
}

/// Resumes a training whose state rank 0 has in `first`; the other ranks make theirs from its options.
void resume_shared(std::unique_ptr<Trainer::State>& first, const MakeTask& make, const Ranks& ranks) {
  const std::string settings = ranks.from_first(first ? settings_of(first->options).dump() : "");
  ranks.agree(failure_of([&] {
    if (!first) {
      const TrainOptions options = options_of(nlohmann::json::parse(settings));
      first = std::make_unique<Trainer::State>(make(options), options);
    }
    check_count(first->options, ranks);
  }));
  compare(*first, ranks);
  copy_from_first(*first, ranks);
  optim::StateDict optimizer;
  at_first(ranks, [&] {
    optimizer = first->adamw.state_dict();
    first->adamw.load_state_dict({});  // the ranks keep it in shares
  });
  compare_weights(*first, ranks);
  first->ranks = std::make_unique<ShardedSteps>(*first, ranks, optimizer);
}

}  // namespace

void share_training(Trainer::State& state, const Ranks& ranks) {
  compare(state, ranks);
  compare_weights(state, ranks);
  state.ranks = std::make_unique<ShardedSteps>(state, ranks, optim::StateDict());
}

Trainer::Trainer(std::vector<std::int64_t> ids, const TrainOptions& options, const Ranks& ranks)
    : state_(begun([&](const TrainOptions& o) { return std::make_unique<TextTask>(std::move(ids), o); }, options,
                   ranks)) {}

Trainer Trainer::of_pairs(std::vector<IdPair> pairs, const TrainOptions& options, const Ranks& ranks) {
  return Trainer(begun([&](const TrainOptions& o) { return pair_task(std::move(pairs), o); }, options, ranks));
}

Trainer Trainer::resume(const std::string& folder, std::vector<std::int64_t> ids, const Ranks& ranks) {
  if (ranks.size() == 1) return resume(folder, std::move(ids));
  std::unique_ptr<State> state;
  at_first(ranks, [&] { state = std::move(resume(folder, ids).state_); });
  resume_shared(state, [&](const TrainOptions& o) { return std::make_unique<TextTask>(std::move(ids), o); }, ranks);
  return Trainer(std::move(state));
}

Trainer Trainer::resume_pairs(const std::string& folder, std::vector<IdPair> pairs, const Ranks& ranks) {
  if (ranks.size() == 1) return resume_pairs(folder, std::move(pairs));
  std::unique_ptr<State> state;
  at_first(ranks, [&] { state = std::move(resume_pairs(folder, pairs).state_); });
  resume_shared(state, [&](const TrainOptions& o) { return pair_task(std::move(pairs), o); }, ranks);
  return Trainer(std::move(state));
}

}  // namespace attn
