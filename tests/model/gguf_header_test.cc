// tests/model/gguf_header_test.cc: headers of GGUF files, right and hostile: each error names what is wrong, and where.
#include <attn/gguf.h>
#include <attn/ops.h>

#include "model/gguf_bytes.h"
#include "support/errors.h"
#include "support/folder.h"

#include <gtest/gtest.h>

#include <map>

namespace attn {
namespace {

using testing::bytes_of;
using testing::error_of;
using testing::GgufBytes;
using testing::text_of;

GgufFile parse(const std::string& bytes) { return GgufFile::parse(std::as_bytes(std::span(bytes))); }
std::string refused(const GgufBytes& file) {
  return error_of<FormatError>([&] { parse(file.bytes()); });
}

GgufBytes small() {
  GgufBytes file;
  file.text("general.architecture", "llama").number("a.number", 7).real("a.real", 1e-5f).boolean("a.bool", true);
  file.texts("a.texts", {"one", "", "three"}).array<std::int32_t>("a.integers", 5, {-1, 2});
  file.array<float>("a.numbers", 6, {0.5f, -2});
  file.key("a.long", 10, bytes_of(std::uint64_t{1} << 40)).key("a.double", 12, bytes_of(0.25));
  file.key("a.byte", 0, "\x05").key("a.negative", 1, "\xFF");
  const float values[] = {1, 2, 3, 4, 5, 6};
  file.floats("w", {3, 2}, values).floats("b", {2}, std::span(values).first(2));
  return file;
}

TEST(GgufHeader, HoldsKeysAndTensors) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBytes written = small();
    written.version = version;
    const GgufFile file = parse(written.bytes());
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.text("general.architecture"), "llama");
    EXPECT_EQ(file.integer("a.number"), 7);
    EXPECT_EQ(file.integer("a.long"), std::int64_t{1} << 40);
    EXPECT_EQ(file.integer("a.byte"), 5);
    EXPECT_EQ(file.integer("a.negative"), -1);
    EXPECT_EQ(file.number("a.real"), 1e-5);  // the shortest decimal of the f32, as in config.json
    EXPECT_EQ(file.number("a.double"), 0.25);
    EXPECT_EQ(file.number("a.number"), 7);
    EXPECT_TRUE(file.boolean("a.bool"));
    EXPECT_EQ(file.texts("a.texts"), (std::vector<std::string_view>{"one", "", "three"}));
    EXPECT_EQ(file.integers("a.integers"), (std::vector<std::int64_t>{-1, 2}));
    EXPECT_EQ(file.numbers("a.numbers"), (std::vector<float>{0.5f, -2}));
    EXPECT_EQ(file.integer("none", 3), 3);
    EXPECT_FALSE(file.has("none"));
    EXPECT_EQ(file.keys().size(), 11u);
    EXPECT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.find("w")->type, "F32");
    EXPECT_EQ(file.find("w")->sizes, Dims({2, 3}));
    EXPECT_TRUE(same_bits(file.tensor("w"), tensor<float>({1, 2, 3, 4, 5, 6}).reshape({2, 3})));
    EXPECT_TRUE(same_bits(file.tensor("b"), tensor<float>({1, 2})));
  }
}

TEST(GgufHeader, AValueOfAnotherTypeIsNamed) {
  const GgufFile file = parse(small().bytes());
  const auto text = [](auto&& call) { return error_of<ValueError>(call); };
  EXPECT_EQ(text([&] { file.integer("none"); }), "GgufFile: none is missing");
  EXPECT_EQ(text([&] { file.integer("a.real"); }), "GgufFile: a.real is 1e-05; it must be an integer");
  EXPECT_EQ(text([&] { file.integer("a.integers"); }),
            "GgufFile: a.integers is an array of 2; its elements must be equal");
  EXPECT_EQ(text([&] { file.text("a.number"); }), "GgufFile: a.number is 7; it must be a text");
  EXPECT_EQ(text([&] { file.boolean("general.architecture"); }),
            "GgufFile: general.architecture is \"llama\"; it must be true or false");
  EXPECT_EQ(text([&] { file.texts("a.numbers"); }), "GgufFile: a.numbers is an array of 2; it must be texts");
  EXPECT_EQ(text([&] { file.tensor("x"); }), "GgufFile: there is no tensor x among the 2");
  EXPECT_EQ(text([&] { file.decode_rows(*file.find("w"), 1, 2, nullptr); }),
            "GgufFile: rows 1 to 3 of tensor w are not there; it has 2");
}

/// Whatever is cut off at the end is missed: no part of a file is a file.
TEST(GgufHeader, EveryTruncationIsRefused) {
  const std::string whole = small().bytes();
  const std::size_t end = whole.size() - 32 + 8;  // the last tensor has 8 bytes, and padding
  for (std::size_t size = 0; size < end; ++size) {
    const std::string text = error_of<FormatError>([&] { parse(whole.substr(0, size)); });
    EXPECT_NE(text.find("GgufFile: "), std::string::npos);
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  EXPECT_NO_THROW(parse(whole.substr(0, end)));
}

TEST(GgufHeader, WhatIsNoGgufFile) {
  const auto text = [](const std::string& bytes) { return error_of<FormatError>([&] { parse(bytes); }); };
  EXPECT_EQ(text(""),
            "GgufFile: the file does not begin with GGUF; a GGUF file or a model's folder is needed (byte 0)");
  EXPECT_EQ(text("{\"a\": 1}"),
            "GgufFile: the file does not begin with GGUF; a GGUF file or a model's folder is needed (byte 0)");
  GgufBytes file = small();
  file.version = 1;
  EXPECT_EQ(refused(file), "GgufFile: the file has version 1; 2 and 3 are read (byte 4)");
  file.version = 3u << 24;
  EXPECT_EQ(refused(file), "GgufFile: the file is big-endian; little-endian files are read (byte 4)");
}

TEST(GgufHeader, CountsAndLengthsThatLie) {
  GgufBytes file;
  file.more_tensors = std::int64_t{1} << 60;
  EXPECT_EQ(refused(file),
            "GgufFile: the file claims 1152921504606846976 tensors; the 16 bytes after it hold at most 0 "
            "(byte 8)");
  file = {};
  file.more_keys = -1;
  EXPECT_EQ(refused(file),
            "GgufFile: the file claims 18446744073709551615 keys; the 8 bytes after it hold at most 0 (byte 16)");
  file = {};
  file.key("k", 9, bytes_of(std::uint32_t{10}) + bytes_of(std::uint64_t{1} << 61));
  EXPECT_EQ(refused(file),
            "GgufFile: the file claims 2305843009213693952 elements in the value of k; the 15 bytes after "
            "it hold at most 1 (byte 41)");
  file = {};
  file.key("k", 8, bytes_of(~std::uint64_t{0}));
  EXPECT_EQ(refused(file), "GgufFile: the value of k has 18446744073709551615 bytes; 19 are left (byte 37)");
  file = {};
  file.keys = {bytes_of(std::uint64_t{1000}) + "k"};
  EXPECT_EQ(refused(file), "GgufFile: key 0 has 1000 bytes; 32 are left (byte 24)");
}

TEST(GgufHeader, ValuesThatAreNone) {
  GgufBytes file;
  file.key("k", 9, bytes_of(std::uint32_t{9}) + bytes_of(std::uint64_t{1}));
  EXPECT_EQ(refused(file), "GgufFile: the value of k is an array of arrays; attn does not read those (byte 37)");
  file = {};
  file.key("k", 13, "12345678");
  EXPECT_EQ(refused(file), "GgufFile: the value of k has the type 13; there are 0 to 12 (byte 33)");
  file = {};
  file.key("k", 7, "\2");
  EXPECT_EQ(refused(file), "GgufFile: the value of k has a bool that is 2; it must be 0 or 1 (byte 37)");
  file = {};
  file.number("k", 1).number("k", 2);
  EXPECT_EQ(refused(file), "GgufFile: the key k stands there twice (byte 41)");
  file = {};
  file.number("", 1);
  EXPECT_EQ(refused(file), "GgufFile: key 0 is empty (byte 24)");
  for (const std::uint32_t alignment : {0u, 4u, 48u}) {
    file = {};
    file.number("general.alignment", alignment);
    EXPECT_EQ(refused(file), "GgufFile: general.alignment must be a u32 that is a power of two, at least 8 (byte 53)");
  }
  file = {};
  file.text("a\x1B\n", "x").number("a\x1B\n", 2);
  EXPECT_EQ(refused(file), "GgufFile: the key a\\x1B\\x0A stands there twice (byte 48)");
}

TEST(GgufHeader, TensorsThatLie) {
  const std::string eight(8, '\0');
  const auto text = [&](const std::vector<GgufBytes::Tensor>& tensors) {
    GgufBytes file;
    file.tensors = tensors;
    return refused(file);
  };
  EXPECT_EQ(text({{"w", {2}, 0, eight}, {"w", {2}, 0, eight}}), "GgufFile: tensor w stands there twice (byte 57)");
  EXPECT_EQ(text({{"", {2}, 0, eight}}), "GgufFile: the name of tensor 0 is empty (byte 24)");
  EXPECT_EQ(text({{"w", {}, 0, eight}}), "GgufFile: tensor w has the rank 0; it must be 1 to 4 (byte 33)");
  EXPECT_EQ(text({{"w", {1, 1, 1, 1, 1}, 0, eight}}), "GgufFile: tensor w has the rank 5; it must be 1 to 4 (byte 33)");
  EXPECT_EQ(text({{"w", {2, 0}, 0, eight}}), "GgufFile: tensor w has the size 0; it must be 1 to 2^63 - 1 (byte 45)");
  EXPECT_EQ(text({{"w", {1u << 31, 1u << 31, 1u << 31}, 0, eight}}),
            "GgufFile: tensor w has more elements than can be counted (byte 53)");
  EXPECT_EQ(text({{"w", {1u << 31, 1u << 31}, 0, eight}}),
            "GgufFile: tensor w has more bytes than can be counted (byte 53)");
  EXPECT_EQ(text({{"w", {2}, 99, eight}}), "GgufFile: tensor w has the type 99, which GGUF does not have (byte 45)");
  EXPECT_EQ(text({{"w", {33}, 2, std::string(36, '\0')}}),
            "GgufFile: tensor w is Q4_0 with rows of 33; they must be a multiple of 32 (byte 45)");
  EXPECT_EQ(text({{"w", {2}, 0, eight, 4}}),
            "GgufFile: the data of tensor w begin at 4, which is no multiple of 32 (byte 49)");
  EXPECT_EQ(text({{"w", {2}, 0, eight, 64}}),
            "GgufFile: the data of tensor w take 8 bytes from 64; the file has 32 (byte 49)");
  EXPECT_EQ(text({{"w", {2}, 0, eight, INT64_MAX - 31}}),
            "GgufFile: the data of tensor w take 8 bytes from 9223372036854775776; the file has 32 (byte 49)");
  EXPECT_EQ(text({{"w", {16}, 0, std::string(64, '\0')}, {"v", {2}, 0, eight, 32}}),
            "GgufFile: the data of tensor v begin at 32; those of w end at 64 (byte 82)");
  GgufBytes file;
  file.tensor({"w", {256}, 10, std::string(84, '\0')});
  EXPECT_EQ(error_of<DtypeError>([&] { parse(file.bytes()); }),
            "GgufFile: tensor w is Q2_K; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K can be read");
  for (const auto& [type, name] : std::map<std::uint32_t, std::string>{
           {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
           {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
           {24, "I8"},      {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},
           {34, "TQ1_0"},   {35, "TQ2_0"}, {39, "MXFP4"},  {40, "NVFP4"}, {41, "Q1_0"},    {42, "Q2_0"}}) {
    file = {};
    file.tensor({"w", {256}, type, std::string(84, '\0')});
    const std::string said = error_of<DtypeError>([&] { parse(file.bytes()); });
    EXPECT_TRUE(said.starts_with("GgufFile: tensor w is " + name + "; F32, ")) << type << ": " << said;
  }
}

TEST(GgufHeader, AFileThatIsNotThere) {
  const testing::Folder folder;
  EXPECT_EQ(error_of<IoError>([&] { GgufFile::open(folder / "x.gguf"); }),
            "GgufFile: " + folder / "x.gguf" + ": No such file or directory");
  EXPECT_EQ(error_of<IoError>([&] { GgufFile::open(folder.path()); }),
            "GgufFile: " + folder.path() + ": Is a directory");
  folder.write("x.gguf", "");
  EXPECT_EQ(error_of<FormatError>([&] { GgufFile::open(folder / "x.gguf"); }),
            "GgufFile: " + folder / "x.gguf" +
                ": the file does not begin with GGUF; a GGUF file or a model's folder is needed (byte 0)");
}

/// Part `number` of `count`, with one tensor.
GgufBytes part(std::uint16_t number, std::uint16_t count, const std::string& tensor, float value) {
  GgufBytes file;
  file.key("split.no", 2, bytes_of(number)).key("split.count", 2, bytes_of(count));
  file.key("split.tensors.count", 5, bytes_of(std::int32_t{count}));
  if (number == 0) file.text("only.here", "first");
  return file.floats(tensor, {1}, std::span(&value, 1));
}

TEST(GgufHeader, PartsAreOneFile) {
  const testing::Folder folder;
  const auto write = [&](int number, const GgufBytes& file) {
    return folder.write("m-0000" + std::to_string(number) + "-of-00003.gguf", file.bytes());
  };
  const std::string first = write(1, part(0, 3, "a", 1));
  const auto text = [&](const std::string& path) { return error_of<Error>([&] { GgufFile::open(path); }); };
  EXPECT_EQ(text(first), "GgufFile: " + folder / "m-00002-of-00003.gguf" + ": No such file or directory");
  const std::string second = write(2, part(1, 3, "b", 2)), third = write(3, part(2, 3, "c", 3));
  {
    const GgufFile file = GgufFile::open(first);
    EXPECT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(file.text("only.here"), "first");
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(file.tensor(std::string(1, static_cast<char>('a' + i))).data<float>()[0], static_cast<float>(i + 1));
  }
  EXPECT_EQ(text(second), "GgufFile: " + second +
                              ": the file is part 2 of 3; give the first, whose name ends with "
                              "-00001-of-00003.gguf");
  write(3, part(2, 3, "a", 3));
  EXPECT_EQ(text(first), "GgufFile: " + third + ": tensor a is in another part too");
  write(3, part(1, 3, "c", 3));
  EXPECT_EQ(text(first), "GgufFile: " + third + ": split.no is 1; it must be 2, and split.count 3");
  GgufBytes two = part(2, 3, "c", 3);
  const float value = 4;
  write(3, two.floats("d", {1}, std::span(&value, 1)));
  EXPECT_EQ(text(first), "GgufFile: " + first + ": split.tensors.count is 3; the parts have 4");
}

}  // namespace
}  // namespace attn
