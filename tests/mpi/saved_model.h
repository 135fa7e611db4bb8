// tests/mpi/saved_model.h: a test of a saved model on each number of ranks.
#pragma once
#include "mpi/world.h"

#include <attn/model.h>

#include <functional>
#include <optional>
#include <string>

namespace attn::testing {

/// Calls `test` with each number of ranks, which share the model that `save` writes to a folder at rank 0.
inline void on_each_number_with_model(const std::function<void(const std::string& folder)>& save,
                                      const std::function<void(const Ranks&, const LanguageModel&)>& test,
                                      int least = 1) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const SharedFolder folder(world);
  if (world.rank() == 0) save(folder.path());
  world.agree();
  on_each_number([&](const Ranks& ranks) { test(ranks, LanguageModel::load(folder.path(), std::nullopt, ranks)); },
                 least);
}

}  // namespace attn::testing
