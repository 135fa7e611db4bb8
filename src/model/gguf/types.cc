// src/model/gguf/types.cc: the table of the tensor types of GGUF files: how each is decoded, and encoders of some.
#include "model/gguf/types.h"

#include <attn/dtype.h>

#include "kernels/half.h"
#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

namespace attn::gguf {
namespace {

template <typename T>
T value_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void f32(const std::byte* block, float* to) { *to = value_at<float>(block); }

void f16(const std::byte* block, float* to) { *to = half::from_f16(value_at<std::uint16_t>(block)); }

void bf16(const std::byte* block, float* to) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value_at<std::uint16_t>(block)) << 16;
  std::memcpy(to, &bits, sizeof bits);
}

// Encoders, with the format's own rounding.

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

void to_f32(const float* number, std::byte* block) { put(block, *number); }
void to_f16(const float* number, std::byte* block) { put(block, float16(*number).bits); }
void to_bf16(const float* number, std::byte* block) { put(block, bfloat16(*number).bits); }

/// The greatest magnitude is 127.
void to_q8_0(const float* numbers, std::byte* block) {
  float greatest = 0;
  for (int i = 0; i < 32; ++i) greatest = std::max(greatest, std::abs(numbers[i]));
  const float scale = greatest / 127, inverse = scale == 0 ? 0 : 1 / scale;
  put(block, float16(scale).bits);
  for (int i = 0; i < 32; ++i) {
    const float x = numbers[i] * inverse, whole = std::floor(std::abs(x)),
                rounded = whole + std::floor(2 * (std::abs(x) - whole));
    put(block + 2 + i, static_cast<std::int8_t>(std::min(rounded, 127.0f) * (x < 0 ? -1.0f : 1.0f)));
  }
}

/// The number of the greatest magnitude is -8.
void to_q4_0(const float* numbers, std::byte* block) {
  float greatest = 0;
  for (int i = 0; i < 32; ++i)
    if (std::abs(numbers[i]) > std::abs(greatest)) greatest = numbers[i];
  const float scale = greatest / -8, inverse = scale == 0 ? 0 : 1 / scale;
  put(block, float16(scale).bits);
  const auto quant = [&](int i) { return static_cast<unsigned>(std::clamp(numbers[i] * inverse + 8.5f, 0.0f, 15.0f)); };
  for (int i = 0; i < 16; ++i) put(block + 2 + i, static_cast<std::uint8_t>(quant(i) | quant(i + 16) << 4));
}

/// A type of single numbers.
template <void (*decode)(const std::byte*, float*), std::int64_t bytes>
constexpr Type numbers(std::uint32_t id, const char* name, void (*encode)(const float*, std::byte*)) {
  return {id,
          name,
          1,
          bytes,
          kernels::BlockFormat::none,
          [](const std::byte* from, std::int64_t count, float* to) {
            for (std::int64_t i = 0; i < count; ++i) decode(from + i * bytes, to + i);
          },
          encode};
}

/// A type of blocks, which the library decodes.
template <kernels::BlockFormat format>
constexpr Type blocks(std::uint32_t id, const char* name, void (*encode)(const float*, std::byte*) = nullptr) {
  constexpr kernels::BlockSize size = kernels::block_size(format);
  return {id,
          name,
          size.elements,
          size.bytes,
          format,
          [](const std::byte* from, std::int64_t count, float* to) {
            kernels::reference().decode_blocks(format, from, count, to);
          },
          encode};
}

using enum kernels::BlockFormat;
constexpr Type table[] = {
    numbers<f32, 4>(0, "F32", to_f32), numbers<f16, 2>(1, "F16", to_f16), numbers<bf16, 2>(30, "BF16", to_bf16),
    blocks<q8_0>(8, "Q8_0", to_q8_0),  blocks<q4_0>(2, "Q4_0", to_q4_0),  blocks<q4_1>(3, "Q4_1"),
    blocks<q5_0>(6, "Q5_0"),           blocks<q5_1>(7, "Q5_1"),           blocks<q4_k>(12, "Q4_K"),
    blocks<q5_k>(13, "Q5_K"),          blocks<q6_k>(14, "Q6_K"),
};

/// The names of all types by id; types without a name were removed from the format.
constexpr const char* names[] = {"F32",     "F16",   "Q4_0",   "Q4_1",  "",      "",       "Q5_0", "Q5_1",    "Q8_0",
                                 "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K", "IQ2_XXS", "IQ2_XS",
                                 "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",   "I16",     "I32",
                                 "I64",     "F64",   "IQ1_M",  "BF16",  "",      "",       "",     "TQ1_0",   "TQ2_0",
                                 "",        "",      "",       "MXFP4", "NVFP4", "Q1_0",   "Q2_0"};

}  // namespace

std::span<const Type> types() { return table; }

std::string type_names() {
  std::string text;
  for (const Type& type : table) text += (text.empty() ? "" : ", ") + std::string(type.name);
  return text;
}

std::string name_of_type(std::uint32_t id) { return id < std::size(names) ? names[id] : ""; }

}  // namespace attn::gguf
