// tests/model/forward_test.cc: the forward pass: shapes, rows that do not depend on each other, errors.
#include <attn/model.h>
#include <attn/ops.h>

#include "support/errors.h"

#include <gtest/gtest.h>

namespace attn {
namespace {

TEST(LanguageModel, GivesLogitsOfEveryPosition) {
  const LanguageModel model(ModelConfig::nano(65));
  const Tensor ids = randint(0, 65, {2, 7});
  EXPECT_EQ(model(ids).sizes(), (Dims{2, 7, 65}));
}

}  // namespace
}  // namespace attn
