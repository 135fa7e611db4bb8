// src/kernels/attention/mask/mask_bits.h: evaluates a mask program for one row and 64 keys at a time: one bit per key.
#pragma once
#include "kernels/attention/mask/mask_program.h"
#include "kernels/attention/block_and_tile_sizes.h"

#include <cstdint>
#include <cstring>

namespace attn::kernels {

using Word = std::uint64_t;

/// Returns a word with the bits [begin, end) set, both clipped to 0 ... 64.
inline Word bits_between(std::int64_t begin, std::int64_t end) {
  begin = begin < 0 ? 0 : begin;
  end = end > 64 ? 64 : end;
  if (end <= begin) return 0;
  const Word below_end = end == 64 ? ~Word{0} : (Word{1} << end) - 1;
  return below_end & ~((Word{1} << begin) - 1);
}

/// Returns a word whose bit j says whether bytes[j * stride] is not 0 (`value`) or is 0 (not `value`), for `count`
/// keys.
inline Word bits_of_bytes(const std::uint8_t* bytes, std::int64_t stride, bool value, int count) {
  Word word = 0;
  int j = 0;
  if (stride == 0) {
    word = bytes[0] ? ~Word{0} : 0;
  } else if (stride == 1) {
    constexpr Word low = 0x7F7F7F7F7F7F7F7Full;
    // sets the top bit of every byte that is not 0, then joins the eight top bits by one multiplication
    for (; j + 8 <= count; j += 8) {
      Word eight;
      std::memcpy(&eight, bytes + j, 8);
      const Word set = (((eight & low) + low) | eight) >> 7 & 0x0101010101010101ull;
      word |= (set * 0x0102040810204080ull >> 56) << j;
    }
  }
  if (stride != 0)
    for (; j < count; ++j) word |= static_cast<Word>(bytes[j * stride] != 0) << j;
  return (value ? word : ~word) & bits_between(0, count);
}

/// Returns the mask of row i of head h for the keys first ... first + count - 1, one bit per key; lengths are not
/// applied. `bits_of`: bits_of_bytes, or its vector version.
template <class F>
Word mask_word(const AttentionProblem& problem, const Task& task, std::int64_t h, std::int64_t i, std::int64_t first,
               int count, F&& bits_of) {
  const std::int64_t position = problem.key_position(task, first);
  const auto leaf = [&](const MaskNode& node) {
    // position of the row, as an index into the block's keys
    const std::int64_t at = i + problem.row_offset(task, node.bottom_right) - position;
    switch (node.op) {
      case MaskOp::causal: return bits_between(0, at + 1);
      case MaskOp::window:
        return bits_between(node.left < 0 ? 0 : at - node.left, node.right < 0 ? 64 : at + node.right + 1);
      case MaskOp::prefix:
        return bits_between(0, (node.per_batch ? node.per_batch[problem.item(task)] : node.n) - position);
      case MaskOp::documents: {
        const std::int64_t id = node.query_ids[task.batch * node.query_ids_stride + i];
        const std::int64_t* keys = node.key_ids + task.batch * node.key_ids_stride + first;
        Word word = 0;
        for (int j = 0; j < count; ++j) word |= static_cast<Word>(keys[j] == id) << j;
        return word;
      }
      case MaskOp::blocks: {
        Word word = 0;
        if (node.lists.block_keys == 1) {  // single keys, often many
          const std::int64_t* list = node.lists.of(task.batch, h, i);
          for (std::int64_t n = first_at_least(node.lists, list, first); n < node.lists.width; ++n) {
            if (list[n] >= first + count) break;
            word |= Word{1} << (list[n] - first);
          }
          return word;
        }
        for_each_listed(
            node.lists, node.lists.of(task.batch, h, i), first, first + count,
            [&](std::int64_t begin, std::int64_t end) { word |= bits_between(begin - first, end - first); });
        return word;
      }
      case MaskOp::dense: {
        const std::int64_t* stride = node.dense.stride;
        const auto* bytes = static_cast<const std::uint8_t*>(node.dense.data) + task.batch * stride[0] + h * stride[1] +
                            i * stride[2] + first * stride[3];
        return bits_of(bytes, stride[3], node.value, count);
      }
      default: return node.value ? ~Word{0} : 0;
    }
  };
  return evaluate_mask(problem.mask, ~Word{0}, leaf, std::bit_not<Word>(), std::bit_and<Word>(), std::bit_or<Word>()) &
         bits_between(0, count);
}

}  // namespace attn::kernels
