// src/ranks/shared_pass.cc: lets a rank leave a pass, and the others with it.
#include "ranks/shared_pass.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

namespace attn {
namespace {

/// Thrown when a rank receives the message that another one has left.
struct AnotherHasLeft {};

}  // namespace

Tensor SharedPass::run(std::int64_t joins, const std::function<Tensor()>& work) {
  joins_left_ = joins;
  std::exception_ptr failure;
  try {
    return work();
  } catch (const RankError&) { throw; } catch (const AnotherHasLeft&) {  // which says why
  } catch (...) {
    if (joins_left_ == 0) throw;
    failure = std::current_exception();
  }
  leave();
  if (all_fail(failure)) std::rethrow_exception(failure);
  ranks_.agree(failure);
  return {};  // not reached: one has failed
}

/// Returns whether all ranks have an exception with the same text.
bool SharedPass::all_fail(const std::exception_ptr& mine) const {
  std::string text;
  try {
    if (mine) std::rethrow_exception(mine);
  } catch (const std::exception& error) { text = error.what(); } catch (...) {
  }
  const std::vector<std::string> all = ranks_.gather(text);
  return !text.empty() && std::count(all.begin(), all.end(), text) == std::ssize(all);
}

void SharedPass::wait(Messages& messages) {
  bool left = false;
  messages.wait([&](int from) { has_left_[static_cast<std::size_t>(from)] = left = true; });
  if (left) throw AnotherHasLeft();
}

/// Sends the last message of the pass to each other rank, and takes what the others have sent until theirs.
void SharedPass::leave() {
  Transport& transport = ranks_.transport();
  const int own = ranks_.rank(), count = ranks_.size();
  for (int other = 0; other < count; ++other)
    if (other != own)
      farewells_[static_cast<std::size_t>(other)] = transport.send(other, Messages::channel, nullptr, 0);
  for (int other = 0; other < count; ++other)
    while (other != own && !has_left_[static_cast<std::size_t>(other)])
      has_left_[static_cast<std::size_t>(other)] = transport.discard(other, Messages::channel) == 0;
  for (int other = 0; other < count; ++other)
    if (other != own) transport.wait(farewells_[static_cast<std::size_t>(other)]);
  std::fill(has_left_.begin(), has_left_.end(), 0);
}

}  // namespace attn
