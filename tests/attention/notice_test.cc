// tests/attention/notice_test.cc: a large call on the reference kernel is said to the host, once; small ones and vector
// ones are not.
#include <attn/attention.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "runtime/cpu.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace attn::testing {
namespace {

/// 0 when the process, which has said nothing yet, says what it should.
int listen() {
  static std::vector<std::string> heard;
  set_message_handler([](MessageKind kind, std::string_view text) {
    if (kind == MessageKind::notice) heard.emplace_back(text);
  });
  const Tensor q = zeros({1, 1, 1024, 64});
  const auto i = ScoreExpression::row(), j = ScoreExpression::key();
  const AttentionOptions far{.score_mod = ScoreExpression::score() + 0.5 * ((i - j) * (std::int64_t{1} << 25))};
  attention(q, q, q);
  const Tensor small = q.narrow(2, 0, 16);
  attention(small, small, small, far);
  if (!heard.empty()) return 1;
  attention(q, q, q, far);
  attention(q, q, q, far);
  const std::size_t expected = runtime::targets().size() > 1 && runtime::target() != "scalar" ? 1 : 0;
  if (heard.size() != expected) return 2;
  if (expected == 0) return 0;
  if (!heard[0].starts_with("attention: a large call (f32 ") || heard[0].find("up to 2^24") == std::string::npos)
    return 3;
  return 0;
}

TEST(Notice, OfTheReferenceComesOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own: a notice comes once in each
  EXPECT_EXIT(std::_Exit(listen()), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace attn::testing
