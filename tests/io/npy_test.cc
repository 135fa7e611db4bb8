// tests/io/npy_test.cc: NumPy's bytes both ways, and files that are not what they say.
#include "io/files.h"

#include <attn/npy.h>
#include <attn/ops.h>
#include <gtest/gtest.h>

namespace attn {
namespace {

using testing::Bytes;
using testing::error_of;
using testing::golden_file;

const std::vector<float> quarters = {0, 0.25f, 0.5f, 0.75f, 1, 1.25f};

TEST(Npy, LoadsWhatNumpyWrote) {
  const Tensor a = tensor<float>(quarters, {2, 3});
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_f32")), a));
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_f32_v2")), a));
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_f32_v3")), a));
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_f16_rank0")), scalar_tensor<float>(1.5f).to(Dtype::f16)));
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_i64_rank1")), tensor<std::int64_t>({1, -2, 3})));
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_i32_big_endian")), tensor<std::int32_t>({1, -2, 3, 70000}, {2, 2})));
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_f64_big_endian")), tensor<double>({1.5, -2})));
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_bool")), tensor<bool>({true, false, false, true}, {2, 2})));
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_empty")), zeros({0, 4})));
  EXPECT_TRUE(same_bits(parse_npy(golden_file("npy_f32_rank8")), ones({1, 1, 1, 2, 1, 1, 1, 1})));
}

TEST(Npy, FortranOrderIsStrides) {
  const Tensor loaded = parse_npy(golden_file("npy_f64_fortran"));
  EXPECT_EQ(loaded.strides(), (Dims{1, 2}));
  EXPECT_TRUE(same_bits(loaded, tensor<float>(quarters, {2, 3}).to(Dtype::f64)));
}

TEST(Npy, WritesTheBytesNumpyWrites) {
  EXPECT_EQ(npy_bytes(tensor<float>(quarters, {2, 3})), golden_file("npy_f32"));
  EXPECT_EQ(npy_bytes(scalar_tensor<float>(1.5f).to(Dtype::f16)), golden_file("npy_f16_rank0"));
  EXPECT_EQ(npy_bytes(tensor<std::int64_t>({1, -2, 3})), golden_file("npy_i64_rank1"));
  EXPECT_EQ(npy_bytes(tensor<bool>({true, false, false, true}, {2, 2})), golden_file("npy_bool"));
  EXPECT_EQ(npy_bytes(zeros({0, 4})), golden_file("npy_empty"));
  EXPECT_EQ(npy_bytes(ones({1, 1, 1, 2, 1, 1, 1, 1})), golden_file("npy_f32_rank8"));
}

TEST(Npy, GoesThroughAFile) {
  const testing::Folder folder;
  const Tensor turned = tensor<float>(quarters, {2, 3}).t();
  save_npy(folder.file("x.npy"), turned);
  EXPECT_TRUE(same_bits(load_npy(folder.file("x.npy")), turned.contiguous()));
}

TEST(Npy, OtherTypesAreNamed) {
  const std::string can = "; f4, f8, f2, i8, i4 and b1 can be loaded";
  EXPECT_EQ(error_of<DtypeError>([] { parse_npy(golden_file("npy_u8")); }), "parse_npy: the elements are '|u1'" + can);
  EXPECT_EQ(error_of<DtypeError>([] { parse_npy(golden_file("npy_c64")); }), "parse_npy: the elements are '<c8'" + can);
  EXPECT_EQ(error_of<DtypeError>([] { parse_npy(golden_file("npy_records")); }),
            "parse_npy: the file holds records; one element type is needed");
  EXPECT_EQ(
      error_of<DtypeError>([] { parse_npy(golden_file("npy_void")); }),
      "parse_npy: the elements are '|V2', as bfloat16 comes out of NumPy, which does not have it (use safetensors)" +
          can);
  EXPECT_EQ(error_of<DtypeError>([] { npy_bytes(ones({2}, Dtype::bf16)); }),
            "npy_bytes: NumPy has no bf16; save as f32 (tensor.to(Dtype::f32)) or with save_safetensors");
  EXPECT_EQ(error_of<ValueError>([] { npy_bytes({}); }), "npy_bytes: the tensor is undefined");
}

/// Format 1 with this dictionary and `data` bytes.
Bytes file_with(const std::string& dictionary, std::size_t data) {
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(dictionary.size() & 0xFF);
  head += static_cast<char>(dictionary.size() >> 8);
  Bytes bytes = testing::bytes_of(head + dictionary);
  bytes.resize(bytes.size() + data);
  return bytes;
}
Bytes with_shape(const std::string& shape, std::size_t data) {
  return file_with("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + "}", data);
}

TEST(Npy, DamagedFilesAreRefusedWithTheByte) {
  const struct {
    Bytes file;
    std::uint64_t offset;
    const char* text;
  } cases[] = {
      {testing::bytes_of("not NumPy"), 0, "this is no NumPy file"},
      {testing::bytes_of("\x93NUM"), 4, "the file ends here; 4 more bytes are needed"},
      {testing::bytes_of(std::string("\x93NUMPY\x04\x00\x00\x00", 10)), 6,
       "format 4.0 is unknown; 1.0, 2.0 and 3.0 can be loaded"},
      {testing::bytes_of(std::string("\x93NUMPY\x01\x00\x05\x00{}", 12)), 8,
       "the header has 5 bytes; the file ends before"},
      {testing::bytes_of(std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF", 12)), 8,
       "the header has 4294967295 bytes; at most 1048576 are allowed"},
      {file_with("{}", 0), 10, "the header must hold descr, fortran_order and shape"},
      {file_with("[]", 0), 10, "the header needs { here"},
      {file_with("{'a': 1}", 0), 11, "the header must hold descr, fortran_order and shape, once each; it has \"a\""},
      {file_with("{'descr': '<f4', 'descr': '<f4'}", 0), 27,
       "the header must hold descr, fortran_order and shape, once each; it has \"descr\""},
      {file_with("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", 4), 44, "fortran_order must be True or False"},
      {file_with("{'descr': 'f4', 'fortran_order': True, 'shape': (1,)}", 4), 20, "'f4' is no element type"},
      {file_with("{'descr': <f4}", 4), 20, "the header needs a string here"},
      {file_with("{'descr': '<f4}", 4), 20, "the header needs a string here"},
      {with_shape("(1, -2)", 4), 64, "a size is negative"},
      {with_shape("(1, x)", 4), 64, "the shape needs a whole number here"},
      {with_shape("(1 2)", 4), 63, "the header needs ) here"},
      {with_shape("1", 4), 60, "the header needs ( here"},
      {with_shape("(9223372036854775808,)", 4), 61, "a size is above 2^63 - 1"},
      {with_shape("(4294967296, 4294967296)", 4), 10,
       "shape [4294967296, 4294967296] has more elements than can be counted"},
      {with_shape("(1, 1, 1, 1, 1, 1, 1, 1, 1)", 4), 85, "the rank is above 8"},
      {with_shape("(2,)", 7), 72, "shape [2] needs 8 bytes; the file has 7"},
      {with_shape("(2,)", 9), 73, "bytes are left over after the last element"},
      {file_with("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4), 66,
       "the header goes on after its dictionary"},
  };
  for (const auto& c : cases) {
    try {
      parse_npy(c.file);
      ADD_FAILURE() << "no error: " << c.text;
    } catch (const FormatError& error) {
      EXPECT_EQ(std::string(error.what()),
                "parse_npy: " + std::string(c.text) + " (byte " + std::to_string(c.offset) + ")");
      EXPECT_EQ(error.offset(), c.offset);
    }
  }
  Bytes bools = file_with("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", 2);
  bools.back() = std::byte{9};
  EXPECT_EQ(error_of<FormatError>([&] { parse_npy(bools); }), "parse_npy: a bool is 9; it must be 0 or 1 (byte 66)");
}

TEST(Npy, DamageNeverCrashes) {
  const auto parse = [](std::span<const std::byte> bytes) { parse_npy(bytes); };
  for (const char* name : {"npy_f32", "npy_f64_fortran", "npy_i32_big_endian", "npy_f32_v2"})
    EXPECT_GT(testing::attack(golden_file(name), 5000, parse), 128) << name;
}

}  // namespace
}  // namespace attn
