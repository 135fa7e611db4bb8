// src/kernels/gemm/blocks-inl.h: decodes columns of blocks of quantised weights, and packs them.
#if defined(ATTN_GEMM_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_BLOCKS_INL_H
#undef ATTN_GEMM_BLOCKS_INL_H
#else
#define ATTN_GEMM_BLOCKS_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/gemm/block_loaders-inl.h"
#include "kernels/gemm/write_rows_and_edges-inl.h"
#include "kernels/gemm/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// GROUPS vectors of rows of blocks. At the edge of the matrix the rows of a vector are copied, with zeros for those
/// that are missing.
template <int GROUPS>
class BlockRows {
 public:
  BlockRows(const GemmProblem& p, std::int64_t column, std::int64_t columns)
      : from_(static_cast<const std::uint8_t*>(p.b) + column * p.b_stride[1]), stride_(p.b_stride[1]),
        size_(block_size(p.b_blocks)), columns_(columns) {}

  struct Block {
    const std::uint8_t* at;
    std::int64_t stride;
  };
  /// Returns block i of the rows of a group.
  HWY_INLINE Block block(int group, std::int64_t i) {
    const std::int64_t before = group * lanes<float>;
    if (columns_ - before < lanes<float>) return {copied(group, i), most_block_bytes};
    return {from_ + before * stride_ + i * size_.bytes, stride_};
  }

 private:
  HWY_NOINLINE const std::uint8_t* copied(int group, std::int64_t i) {
    std::memset(copy_[group], 0, sizeof copy_[group]);
    for (std::int64_t c = group * lanes<float>; c < columns_; ++c)
      std::memcpy(copy_[group] + (c - group * lanes<float>)*most_block_bytes, from_ + c * stride_ + i * size_.bytes,
                  static_cast<std::size_t>(size_.bytes));
    return copy_[group];
  }

  const std::uint8_t* from_;
  std::int64_t stride_;
  BlockSize size_;
  std::int64_t columns_;
  std::uint8_t copy_[GROUPS][lanes<float> * most_block_bytes];
};

/// Decodes numbers [k, k + items), whole blocks, of GROUPS vectors of rows, and calls sink(group, i, w0, w1, w2, w3)
/// with numbers i to i + 3, counted from k; `group` is a std::integral_constant.
template <class Loader, int GROUPS, class Sink>
HWY_INLINE void decode_columns(BlockRows<GROUPS>& rows, std::int64_t k, std::int64_t items, const Sink& sink) {
  constexpr int elements = Loader::step == 32 ? 32 : 256;
  for (std::int64_t i = 0; i < items; i += elements) {
    const auto first_block = rows.block(0, (k + i) / elements), last_block = rows.block(GROUPS - 1, (k + i) / elements);
    ATTN_ROLLED for (int part = 0; part < elements / Loader::step; ++part) {
      const auto decode = [&](auto group, const Loader& loader, int n) __attribute__((always_inline)) HWY_ATTR {
        const Words w = loader.word(n);
        const auto scale = loader.scale(n);
        const std::int64_t at = i + part * Loader::step + 4 * n;
        if constexpr (Loader::is_signed) {
          sink(group, at, hn::Mul(number(signed_byte_of<0>(w)), scale), hn::Mul(number(signed_byte_of<1>(w)), scale),
               hn::Mul(number(signed_byte_of<2>(w)), scale), hn::Mul(number(signed_byte_of<3>(w)), scale));
        } else {
          const auto least = loader.least(n);
          sink(group, at, hn::MulAdd(number(byte_of<0>(w)), scale, least),
               hn::MulAdd(number(byte_of<1>(w)), scale, least), hn::MulAdd(number(byte_of<2>(w)), scale, least),
               hn::MulAdd(number(byte_of<3>(w)), scale, least));
        }
      };
      const Loader first(first_block.at, first_block.stride, part), last(last_block.at, last_block.stride, part);
      ATTN_ROLLED for (int n = 0; n < Loader::step / 4; ++n) {
        decode(std::integral_constant<int, 0>(), first, n);
        if constexpr (GROUPS == 2) decode(std::integral_constant<int, 1>(), last, n);
      }
    }
  }
}

/// Rounds two vectors of numbers to bf16: a word has one of each, the first in its lower half.
HWY_INLINE Vector<float> bf16_pair(Vector<float> first, Vector<float> second) {
  const Tag<float> d;
  const Tag<std::uint32_t> bits;
  const auto low = hn::PromoteTo(bits, rounded_to_bf16(d, canonical(d, first))),
             high = hn::PromoteTo(bits, rounded_to_bf16(d, canonical(d, second)));
  return hn::BitCast(d, hn::Or(low, hn::ShiftLeft<16>(high)));
}

/// Decodes items [k, k + items) of `columns` columns of B, and packs them as words [words][width]. Columns from
/// `columns` on to a whole vector become 0.
template <class Kind, class Loader>
HWY_NOINLINE void pack_blocks(const GemmProblem& p, std::int64_t k, std::int64_t items, std::int64_t column,
                              int columns, int width, typename Kind::Word* to) {
  const Tag<float> d;
  for (int c = 0; c < columns; c += lanes<float>) {
    BlockRows<1> rows(p, column + c, columns - c);
    typename Kind::Word* const here = to + c;
    decode_columns<Loader>(rows, k, items,
                           [&](auto, std::int64_t i, auto w0, auto w1, auto w2, auto w3)
                               __attribute__((always_inline)) HWY_ATTR {
                                 if constexpr (Kind::depth == 1) {
                                   float* const at = here + i * width;
                                   hn::Store(w0, d, at);
                                   hn::Store(w1, d, at + width);
                                   hn::Store(w2, d, at + 2 * width);
                                   hn::Store(w3, d, at + 3 * width);
                                 } else {
                                   hn::Store(bf16_pair(w0, w1), d, here + i / 2 * width);
                                   hn::Store(bf16_pair(w2, w3), d, here + (i / 2 + 1) * width);
                                 }
                               });
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
