// tests/model/gguf_types_test.cc: every tensor type of GGUF files is decoded to the bits that the format's own package
// gives (tests/golden/gguf), as a whole and row by row.
#include <attn/gguf.h>
#include <attn/ops.h>

#include "model/gguf_bytes.h"
#include "model/gguf/types.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn {
namespace {

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

class GgufTypes : public ::testing::TestWithParam<gguf::Type> {};

TEST_P(GgufTypes, AreDecodedBitForBit) {
  const gguf::Type& type = GetParam();
  const auto& recorded = testing::golden("gguf/blocks.json").at(type.name);
  const std::string blocks = from_hex(recorded.at("blocks")), values = from_hex(recorded.at("values"));
  ASSERT_EQ(blocks.size() % static_cast<std::size_t>(2 * type.bytes), 0u);
  const std::int64_t count = static_cast<std::int64_t>(blocks.size()) / type.bytes, row = count / 2 * type.elements;
  const Tensor expected = empty({2, row});
  ASSERT_EQ(values.size(), static_cast<std::size_t>(2 * row) * sizeof(float));
  std::memcpy(expected.data(), values.data(), values.size());

  testing::GgufBytes written;
  written.floats("before", {1}, std::array{1.0f});
  written.tensor({"w", {static_cast<std::uint64_t>(row), 2}, type.id, blocks});
  const std::string bytes = written.bytes();
  const GgufFile file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  const GgufFile::Entry& entry = *file.find("w");
  EXPECT_EQ(entry.type, type.name);
  EXPECT_TRUE(testing::bits_equal(file.tensor("w"), expected));
  const Tensor second = empty({1, row});
  file.decode_rows(entry, 1, 1, second.data<float>());
  EXPECT_TRUE(testing::bits_equal(second, expected.narrow(0, 1, 1)));
}

INSTANTIATE_TEST_SUITE_P(Every, GgufTypes, ::testing::ValuesIn(gguf::types().begin(), gguf::types().end()),
                         [](const auto& info) { return std::string(info.param.name); });

/// A tensor of many rows is decoded in groups, on several threads.
TEST(GgufRows, AreDecodedInGroups) {
  std::string data;
  for (std::uint32_t i = 0; i < 70000 * 3; ++i) testing::put(data, static_cast<float>(i));
  testing::GgufBytes written;
  written.tensor({"w", {3, 70000}, 0, data});
  const std::string bytes = written.bytes();
  EXPECT_TRUE(same_bits(GgufFile::parse(std::as_bytes(std::span(bytes))).tensor("w"),
                        arange(210000).to(Dtype::f32).reshape({70000, 3})));
}

}  // namespace
}  // namespace attn
