// tests/io/checksum_test.cc: XXH64 as others compute it, and files that carry it: no bit of them is wrong without a
// word.
#include "io/checksum.h"
#include "io/files.h"
#include "io/safetensors_header.h"
#include "support/errors.h"

#include <attn/ops.h>
#include <attn/safetensors.h>
#include <gtest/gtest.h>

namespace attn {
namespace {

using testing::Bytes;
using testing::error_of;

TEST(Checksum, IsXxh64) {  // by python-xxhash 3
  Bytes data;
  for (int i = 0; i < 200; ++i) data.push_back(static_cast<std::byte>((i * 167 + 13) % 251));
  struct Figure {
    std::size_t length;
    std::uint64_t of_0, of_seed;
  };
  for (const Figure& f : {Figure{0, 0xEF46DB3751D8E999, 0x6EC6D05F61C7E7A7},
                          {1, 0x2078E1AD38AD738B, 0xB601B1BEC4B55220},
                          {3, 0x563F87BC4E08DC2F, 0x0827BCD9497D3E5A},
                          {4, 0xEEF820F86EE4383D, 0xF07D468A074A01B9},
                          {7, 0x67EE4B2A2C7DA059, 0x18C504BD0E92BCAF},
                          {8, 0xEE1A3E25FE127866, 0x82A83F007FD7D4DD},
                          {15, 0x1C8B73FDE7145219, 0x27FD4DED2FD96106},
                          {31, 0x87062C6BAB5BC575, 0x7A8B48AFC961B8F7},
                          {32, 0xFC141BBF42826CEE, 0x0C527A41B69D315C},
                          {33, 0xF458E506ADC82633, 0x1C3B948059DC13D8},
                          {63, 0xBF96F8AC8907B449, 0xE98DBB19E065B7CE},
                          {64, 0x5136E3A32237A6EE, 0xEA4E8DDEFDB5E5FF},
                          {100, 0x467E6FBC6D0FB19B, 0xECF4E616D26BF71C},
                          {200, 0x062EEAA66C09B3FE, 0xF689F6A5929FD89C}}) {
    const auto bytes = std::span(data).first(f.length);
    EXPECT_EQ(io::xxh64(bytes), f.of_0) << f.length;
    EXPECT_EQ(io::xxh64(bytes, 0x9E3779B185EBCA87), f.of_seed) << f.length;
  }
}

/// Tensors of several dtypes, of no element, and of lengths that are no multiple of 8.
std::vector<std::pair<std::string, Tensor>> tensors() {
  return {{"b", tensor<float>({1, 2, 3}).to(Dtype::bf16)},
          {"none", zeros({0, 2})},
          {"t", tensor2d({{1, 2, 3}, {4, 5, 6}}).t()},
          {"m", tensor<bool>({true, false, true})},
          {"i", tensor<std::int64_t>({1, -1})}};
}

TEST(Checksum, IsLeftOutOfWhatIsLoaded) {
  const testing::Folder folder;
  io::save_with_checksum("save", folder.file("x"), tensors(), {{"format", "pt"}});
  const Safetensors loaded = load_safetensors(folder.file("x"));
  EXPECT_EQ(loaded.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  for (const auto& [name, value] : tensors()) EXPECT_TRUE(same_bits(loaded.at(name), value.contiguous())) << name;
  // So another program that saves other tensors with that metadata writes a file that can be read.
  save_safetensors(folder.file("y"), {{"x", ones({2})}}, loaded.metadata);
  EXPECT_NO_THROW(load_safetensors(folder.file("y")));
  EXPECT_EQ(error_of<ValueError>([&] { save_safetensors(folder.file("z"), {}, {{"attn_checksum", "0"}}); }),
            "save_safetensors: the metadata has attn_checksum, which attn writes itself");
}

TEST(Checksum, NoBitIsWrongWithoutAWord) {
  const testing::Folder folder;
  io::save_with_checksum("save", folder.file("x"), tensors(), {{"format", "pt"}, {"note", "a\tb"}});
  const Bytes whole = testing::read_file(folder.file("x"));
  const Safetensors good = parse_safetensors(whole);
  int refused = 0, same = 0;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes damaged = whole;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    try {
      const Safetensors loaded = parse_safetensors(damaged);
      // A blank that fills the head up, or the checksum's own name: then there is none, and all else is as it was.
      EXPECT_TRUE(loaded.metadata == good.metadata || loaded.metadata.size() == 3) << bit;
      ASSERT_EQ(loaded.tensors.size(), good.tensors.size());
      for (std::size_t i = 0; i < good.tensors.size(); ++i)
        EXPECT_TRUE(loaded.tensors[i].first == good.tensors[i].first &&
                    same_bits(loaded.tensors[i].second, good.tensors[i].second))
            << bit;
      ++same;
    } catch (const FormatError&) { ++refused; } catch (const DtypeError&) {
      ++refused;
    }
  }
  EXPECT_LE(same, (13 + 7) * 8);
  EXPECT_EQ(refused + same, static_cast<int>(whole.size() * 8));
}

TEST(Checksum, SaysThatTheFileIsDamaged) {
  const testing::Folder folder;
  io::save_with_checksum("save", folder.file("x"), tensors(), {});
  Bytes damaged = testing::read_file(folder.file("x"));
  damaged.back() ^= std::byte{1};
  testing::write_file(folder.file("x"), damaged);
  const std::string text = error_of<FormatError>([&] { load_safetensors(folder.file("x")); });
  EXPECT_TRUE(text.starts_with("load_safetensors: " + folder.file("x") + ": damaged: its checksum is ")) << text;
}

}  // namespace
}  // namespace attn
