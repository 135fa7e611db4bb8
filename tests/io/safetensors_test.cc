// tests/io/safetensors_test.cc: Python's bytes both ways, and files that are not what they say.
#include "io/files.h"
#include "support/errors.h"

#include <attn/ops.h>
#include <attn/safetensors.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace attn {
namespace {

using testing::Bytes;
using testing::error_of;

/// What tests/golden/io/make.py saved.
std::vector<std::pair<std::string, Tensor>> golden_tensors() {
  return {{"b.weight", tensor<float>({0, 0.25f, 0.5f, 0.75f, 1, 1.25f}, {2, 3})},
          {"a", tensor<double>({1.5, -2, 3e300})},
          {"h", tensor<float>({1, 2, 0.5f, -65504}, {2, 2}).to(Dtype::f16)},
          {"n", scalar_tensor<std::int64_t>(7)},
          {"i", tensor<std::int32_t>({-1, 2, 3})},
          {"mask", tensor<bool>({true, false, true})},
          {"empty", zeros({0, 4})},
          {"中文\n", ones({2})}};
}
const std::map<std::string, std::string> golden_metadata = {{"made by", "numpy \"2\" 中"}};

TEST(Safetensors, LoadsWhatPythonWrote) {
  const Safetensors loaded = parse_safetensors(testing::golden_file("safetensors_numpy"));
  EXPECT_EQ(loaded.metadata, golden_metadata);
  ASSERT_EQ(loaded.tensors.size(), 8u);
  for (const auto& [name, tensor] : golden_tensors()) EXPECT_TRUE(same_bits(loaded.at(name), tensor)) << name;
  EXPECT_EQ(loaded.find("c"), nullptr);
  EXPECT_EQ(error_of<ValueError>([&] { loaded.at("c"); }), "Safetensors: there is no tensor \"c\" among the 8");
}

TEST(Safetensors, ATensorOutlivesTheFileItCameFrom) {
  static_assert(std::is_same_v<decltype(std::declval<Safetensors>().at("")), Tensor>);
  const Tensor& x = parse_safetensors(testing::golden_file("safetensors_numpy")).at("b.weight");
  EXPECT_EQ(x.sizes(), (Dims{2, 3}));
}

TEST(Safetensors, WritesTheBytesPythonWrites) {
  EXPECT_EQ(safetensors_bytes(golden_tensors(), golden_metadata), testing::golden_file("safetensors_numpy"));
  EXPECT_EQ(safetensors_bytes({{"x", tensor2d({{1, 2}, {3, 4}})}}), testing::golden_file("safetensors_plain"));
  EXPECT_EQ(safetensors_bytes({}), testing::golden_file("safetensors_none"));
}

TEST(Safetensors, GoesThroughAFile) {
  const testing::Folder folder;
  const std::string path = folder.file("weights.safetensors");
  const Tensor bf16 = tensor<float>({1, -2, 0.5f}).to(Dtype::bf16);
  const Tensor turned = tensor2d({{1, 2, 3}, {4, 5, 6}}).t();
  save_safetensors(path, {{"bf16", bf16}, {"turned", turned}, {"grad", ones({2}).requires_grad_()}}, {{"k", "v"}});
  const Safetensors loaded = load_safetensors(path);
  EXPECT_TRUE(same_bits(loaded.at("bf16"), bf16));
  EXPECT_TRUE(same_bits(loaded.at("turned"), turned.contiguous()));
  EXPECT_TRUE(same_bits(loaded.at("grad"), ones({2})));
  EXPECT_FALSE(loaded.at("grad").requires_grad());
  EXPECT_EQ(loaded.metadata.at("k"), "v");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Safetensors, RefusesWhatCannotBeWritten) {
  const Tensor x = ones({1});
  EXPECT_EQ(error_of<ValueError>([&] { safetensors_bytes({{"x", x}, {"x", x}}); }),
            "safetensors_bytes: the name \"x\" is given twice");
  EXPECT_EQ(error_of<ValueError>([&] { safetensors_bytes({{"x", {}}}); }),
            "safetensors_bytes: tensor \"x\" is undefined");
  EXPECT_EQ(error_of<ValueError>([&] { safetensors_bytes({{"__metadata__", x}}); }),
            "safetensors_bytes: a tensor is named __metadata__, which the format keeps for itself");
  EXPECT_EQ(error_of<ValueError>([&] { safetensors_bytes({{"\xFF", x}}); }),
            "safetensors_bytes: a name or metadata text is not UTF-8");
}

/// A file with this header, its length in front, and `data` bytes behind.
Bytes file_with(const std::string& header, std::size_t data, std::uint64_t length_more = 0) {
  const std::uint64_t length = header.size() + length_more;
  Bytes bytes = testing::bytes_of(std::string(reinterpret_cast<const char*>(&length), 8) + header);
  bytes.resize(bytes.size() + data);
  return bytes;
}
std::string one(const std::string& fields) { return "{\"x\":{" + fields + "}}"; }

TEST(Safetensors, DamagedFilesAreRefusedWithTheByte) {
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  const struct {
    Bytes file;
    std::uint64_t offset;
    const char* text;
  } cases[] = {
      {file_with("", 0), 8, "the header must begin with {"},
      {file_with("{}", 0, 1), 0, "the header has 3 bytes; the file ends before"},
      {file_with("{}", 0, UINT64_MAX - 2), 0,
       "the header has 18446744073709551615 bytes; at most 100000000 are allowed"},
      {file_with(" {}", 0), 8, "the header must begin with {"},
      {file_with("{} x", 0), 11, "the header is not JSON"},
      {file_with("{\"x\"}", 0), 12, "the header is not JSON"},
      {file_with("[]", 0), 8, "the header must begin with {"},
      {file_with("{\"x\":1}", 0), 13, "a number has no place here"},
      {file_with("{\"x\":null}", 0), 13, "null has no place here"},
      {file_with("{\"x\":[]}", 0), 13, "an array has no place here"},
      {file_with("{}", 4), 10, "bytes are left over after the last tensor"},
      {file_with(one(good), 7), 55, "the data of tensor \"x\" end at 8; the file has 7"},
      {file_with(one(good), 9), 70, "bytes are left over after the last tensor"},
      {file_with("{\"x\":{" + good + "},\"x\":{" + good + "}}", 8), 62, "\"x\" stands there twice"},
      {file_with(one(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"), 8), 28,
       "\"dtype\" stands there twice"},
      {file_with(one(R"("dtype":"F32","shape":[2])"), 8), 9, "tensor \"x\" has no data_offsets"},
      {file_with(one(R"("dtype":"F32","data_offsets":[0,8])"), 8), 9, "tensor \"x\" has no shape"},
      {file_with(one(R"("shape":[2],"data_offsets":[0,8])"), 8), 9, "tensor \"x\" has no dtype"},
      {file_with(one(good + R"(,"more":1)"), 8), 61,
       "tensor \"x\" has a field \"more\"; the fields are dtype, shape, data_offsets"},
      {file_with(one(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8), 22,
       "tensor \"x\" has the unknown dtype \"F33\""},
      {file_with(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8), 37,
       "a negative number has no place here"},
      {file_with(one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8), 37,
       "a number that is not whole or too large has no place here"},
      {file_with(one(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), 8), 37, "a string has no place here"},
      {file_with(one(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), 8), 37, "an array has no place here"},
      {file_with(one(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"), 8), 53,
       "the rank is above 8"},
      {file_with(one(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"), 8), 37,
       "a number above 2^63 - 1 has no place here"},
      {file_with(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0), 36,
       "shape [4294967296, 4294967296] has more elements than can be counted"},
      {file_with(one(R"("dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"), 0), 36,
       "shape [0, 4294967296, 4294967296] has more elements than can be counted"},
      {file_with(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8), 55,
       "tensor \"x\" F32 [3] needs 12 bytes; its data_offsets are [0, 8]"},
      {file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8), 55,
       "tensor \"x\" F32 [2] needs 8 bytes; its data_offsets are [8, 0]"},
      {file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])"), 12), 55,
       "the data of tensor \"x\" begin at 4; they must begin at 0"},
      {file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), 8), 60,
       "data_offsets has more than two numbers"},
      {file_with(one(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), 8), 55,
       "data_offsets has fewer than two numbers"},
      {file_with(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                 R"("y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                 12),
       108, "the data of tensor \"y\" begin at 4; those before end at 8"},
      {file_with(R"({"__metadata__":{"a":1}})", 0), 29, "a number has no place here"},
      {file_with(R"({"__metadata__":{"a":"b","a":"c"}})", 0), 33, "\"a\" stands there twice"},
      {file_with(R"({"__metadata__":{"a":{}}})", 0), 29, "an object has no place here"},
      {file_with("{\"\xFF\":{}}", 0), 10, "the header is not JSON"},
      {file_with("{\"a\":{\"b\":{\"c\":{}}}}", 0), 14,
       "tensor \"a\" has a field \"b\"; the fields are dtype, shape, data_offsets"},
      {file_with(std::string("{\"a\":") + std::string(100000, '['), 0), 13, "an array has no place here"},
  };
  for (const auto& c : cases) {
    try {
      parse_safetensors(c.file);
      ADD_FAILURE() << "no error: " << c.text;
    } catch (const FormatError& error) {
      EXPECT_EQ(std::string(error.what()),
                "parse_safetensors: " + std::string(c.text) + " (byte " + std::to_string(c.offset) + ")");
      EXPECT_EQ(error.offset(), c.offset);
    }
  }
}

TEST(Safetensors, ALongNameIsShownInPart) {
  const Bytes file = file_with("{\"" + std::string(100000, 'x') + "\":{}}", 0);
  EXPECT_LT(error_of<FormatError>([&] { parse_safetensors(file); }).size(), 600U);
}

TEST(Safetensors, ALongNameIsCutBetweenCharacters) {
  for (const std::string character : {"é", "猫", "😀"})
    for (std::size_t before = 0; before < 4; ++before) {
      std::string name(before, 'x');
      while (name.size() < 1000) name += character;
      const std::string text = error_of<FormatError>([&] { parse_safetensors(file_with("{\"" + name + "\":{}}", 0)); });
      EXPECT_NE(text.find(character + "..."), std::string::npos) << text;
      EXPECT_EQ(text.find("\\x"), std::string::npos) << text;
    }
}

TEST(Safetensors, BoolsAreZeroOrOne) {
  Bytes file = file_with(one(R"("dtype":"BOOL","shape":[3],"data_offsets":[0,3])"), 3);
  EXPECT_NO_THROW(parse_safetensors(file));
  file.back() = std::byte{2};
  EXPECT_EQ(error_of<FormatError>([&] { parse_safetensors(file); }),
            "parse_safetensors: a bool is 2; it must be 0 or 1 (byte " + std::to_string(file.size() - 1) + ")");
}

TEST(Safetensors, OtherDtypesAreNamed) {
  EXPECT_EQ(error_of<DtypeError>(
                [] { parse_safetensors(file_with(one(R"("dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2])"), 2)); }),
            "parse_safetensors: tensor \"x\" is F8_E4M3; F64, F32, F16, BF16, I64, I32 and BOOL can be loaded");
}

TEST(Safetensors, OtherFormatsAreNamed) {
  const std::string json = "the file begins as JSON; a safetensors file is needed";
  const std::pair<std::string, std::string> files[] = {
      {"{}", json},
      {"{\n  \"architectures\": [\"LlamaForCausalLM\"]\n}", json},
      {"\n\r\t  {\"architectures\": []}", json},
      {"[1, 2, 3, 4]", json},
      {"  [\"a\", \"b\"]", json},
      {"\xEF\xBB\xBF{\"a\": 1}", json},
      {"PK\x03\x04\x14\x08\x08\x08\x08\x08",
       "the file begins as a zip archive, as torch.save writes; a safetensors file is needed"},
      {std::string("\x80\x02\x8A\nl\xFC\x9C\x46\xF9 j\xA8\x50\x19."),
       "the file begins as a pickle, as torch.save writes; a safetensors file is needed"},
      {std::string("GGUF\3\0\0\0\1\0\0\0\0\0\0\0", 16),
       "the file begins as GGUF; give its path as the model's, or save its tensors as safetensors"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2\n",
       "the file is a pointer of Git LFS; fetch the file itself: git lfs pull"}};
  for (const auto& [content, told] : files)
    EXPECT_EQ(error_of<FormatError>([&] { parse_safetensors(testing::bytes_of(content)); }),
              "parse_safetensors: " + told + " (byte 0)");
}

TEST(Safetensors, DamageNeverCrashes) {
  const auto parse = [](std::span<const std::byte> bytes) { parse_safetensors(bytes); };
  EXPECT_GT(testing::attack(testing::golden_file("safetensors_numpy"), 20000, parse), 10000);
  EXPECT_GT(testing::attack(testing::golden_file("safetensors_plain"), 20000, parse), 10000);
}

TEST(Safetensors, AFileThatCannotBeReadIsNamed) {
  const testing::Folder folder;
  EXPECT_EQ(error_of<IoError>([&] { load_safetensors(folder.file("none")); }),
            "load_safetensors: " + folder.file("none") + ": No such file or directory");
  EXPECT_EQ(error_of<IoError>([&] { load_safetensors(folder.path()); }),
            "load_safetensors: " + folder.path() + ": Is a directory");
  mkfifo(folder.file("pipe").c_str(), 0600);
  EXPECT_EQ(error_of<IoError>([&] { load_safetensors(folder.file("pipe")); }),
            "load_safetensors: " + folder.file("pipe") + ": Not a regular file");
}

}  // namespace
}  // namespace attn
