// tests/runtime/fork_locks_test.cc: what another thread had locked when a child was forked is free there.
#include "runtime/regions.h"
#include "runtime/trace.h"
#include "support/sanitized.h"

#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace attn::testing {
namespace {

TEST(ForkLocks, TheGlobalGeneratorsIsFree) {
  std::atomic<bool> held{false}, forked{false};
  std::thread holder([&] {
    const std::lock_guard guard(default_generator_mutex());
    held = true;
    while (!forked) std::this_thread::yield();
  });
  while (!held) std::this_thread::yield();
  EXPECT_EQ(in_fork([] { return randn({100}).numel() == 100 && rand({3}).numel() == 3 ? 7 : 1; }), 7);
  forked = true;
  holder.join();
  EXPECT_EQ(in_fork([] { return randn({100}).numel() == 100 ? 7 : 1; }), 7);
}

TEST(ForkLocks, TheOneOfMessagesIsFree) {
  std::atomic<bool> telling{false}, forked{false};
  const MessageHandler before = set_message_handler([&](MessageKind, std::string_view) {
    telling = true;
    while (!forked) std::this_thread::yield();
  });
  std::thread teller([] { runtime::trace("to a handler that takes its time"); });
  while (!telling) std::this_thread::yield();
  EXPECT_EQ(in_fork([&] {
              forked = true;  // in the child alone
              runtime::trace("again");
              set_message_handler({});
              return 7;
            }),
            7);
  forked = true;
  teller.join();
  set_message_handler(before);
}

/// A view takes up the history of its base under a lock.
bool view_follows() {
  const Tensor x = ones({4, 4}).requires_grad_(true);
  Tensor y = x * x;
  const Tensor view = y.select(0, 1);
  y.mul_(y.detach().clone());
  sum(view).backward();
  return x.grad().defined();
}

TEST(ForkLocks, TheOneOfViewsIsFree) {
  if (sanitized) GTEST_SKIP() << "the sanitizer's own locks are not free in the child";
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int user = 0; user < 3; ++user)
    users.emplace_back([&] {
      while (!stop) view_follows();
    });
  int worked = 0;
  for (int child = 0; child < 150 && worked == child; ++child)
    worked += in_fork([] { return view_follows() && view_follows() ? 7 : 1; }) == 7;
  EXPECT_EQ(worked, 150);
  stop = true;
  for (auto& user : users) user.join();
}

}  // namespace
}  // namespace attn::testing
