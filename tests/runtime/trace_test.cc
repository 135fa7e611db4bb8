// tests/runtime/trace_test.cc: messages reach the host's handler; without one only traces are written, to stderr.
#include "runtime/trace.h"

#include <attn/runtime.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace attn {
namespace {

using Messages = std::vector<std::pair<MessageKind, std::string>>;

TEST(Trace, GoesToTheHostsHandler) {
  Messages got;
  set_message_handler([&](MessageKind kind, std::string_view text) { got.emplace_back(kind, text); });
  set_trace(true);
  EXPECT_TRUE(runtime::trace_enabled());
  runtime::trace("attention: avx512");
  set_trace(false);
  EXPECT_FALSE(runtime::trace_enabled());
  set_message_handler({});
  EXPECT_EQ(got, (Messages{{MessageKind::trace, "attention: avx512"}}));
}

TEST(Trace, WithoutAHandlerGoesToStderrAsOneLine) {
  ::testing::internal::CaptureStderr();
  runtime::trace("attention: scalar");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "attention: scalar\n");
}

TEST(Notice, IsGivenOnceByManyThreads) {
  Messages got;
  set_message_handler([&](MessageKind kind, std::string_view text) { got.emplace_back(kind, text); });
  runtime::NoticeOnce once;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { once("the weights were asked for"); });
  for (auto& thread : threads) thread.join();
  set_message_handler({});
  EXPECT_EQ(got, (Messages{{MessageKind::notice, "the weights were asked for"}}));
}

TEST(Notice, WithoutAHandlerIsSilent) {
  ::testing::internal::CaptureStderr();
  runtime::NoticeOnce once;
  once("nobody listens");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Handler, SettingOneReturnsTheOneBefore) {
  int calls = 0;
  EXPECT_FALSE(set_message_handler([&](MessageKind, std::string_view) { ++calls; }));
  auto before = set_message_handler({});
  ASSERT_TRUE(before);
  before(MessageKind::notice, "");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace attn
