// src/attention/cache/cache_rows.h: K or V of a cache in memory, and how rows get in and out. A page has head after
// head: its rows (of int8 in groups, see kernels::KvRows), then their scales.
#pragma once
#include <attn/tensor.h>

#include "kernels/attention/problem.h"
#include "runtime/memory.h"

#include <memory>

namespace attn {

struct Deallocate {
  void operator()(void* data) const noexcept { runtime::deallocate(data); }
};

/// The page and the row of a token in a cache.
struct PagePlace {
  std::int64_t page, row;
};

/// What one of K and V looks like; the same for each page.
struct RowLayout {
  std::int64_t heads = 0, dim = 0, pages = 0;
  Dtype dtype = Dtype::f32;                          // of the rows that are given
  kernels::Element element = kernels::Element::f32;  // of those that are kept
  std::int64_t group = 0;                            // of int8: elements that share a scale; else 0
  int interleave_width = 0;  // of int8: elements of a row that lie side by side (kernels::KvRows)

  std::int64_t groups() const { return group == 0 ? 0 : (dim + group - 1) / group; }
  std::size_t element_bytes() const { return group == 0 ? size_of(dtype) : 1; }
};

/// The memory of K or V. One page beyond those of the pool holds zeros: it stands for pages that were evicted.
class PagedRows {
 public:
  PagedRows() = default;
  /// ValueError when the bytes cannot be counted, std::bad_alloc when there are none.
  PagedRows(const RowLayout& layout, std::int64_t page_rows);

  /// T rows of source [H, T, D] (last dim contiguous), from row `from` on, into neighbouring rows of a page.
  void write(PagePlace to, const Tensor& source, std::int64_t from, std::int64_t count) noexcept;
  /// The first `count` rows of a page of `source`, which may have shorter pages, into a page here.
  void copy(std::int64_t page, const PagedRows& source, std::int64_t source_page, std::int64_t count) noexcept;
  void clear(std::int64_t page, std::int64_t count) noexcept;
  /// Rows of a page as f32 or f64, into [H][T] rows at `to`, heads `head_stride` elements apart.
  template <typename T>
  void read(PagePlace from, std::int64_t count, T* to, std::int64_t head_stride) const;

  /// As kernels read it; the page table is the caller's.
  kernels::KvRows describe() const;
  std::int64_t head_stride() const { return head_bytes_ / static_cast<std::int64_t>(layout_.element_bytes()); }
  std::int64_t zero_page() const { return layout_.pages; }

 private:
  using Rows = kernels::KvRows;
  /// The rows of a head in a page: their elements, then their scales.
  char* rows_of(std::int64_t page, std::int64_t head) const {
    return static_cast<char*>(data_.get()) + (page * layout_.heads + head) * head_bytes_;
  }
  /// Row `row` of them, of int8 its group.
  char* at(std::int64_t page, std::int64_t head, std::int64_t row) const {
    return rows_of(page, head) + rows_.offset(row) * static_cast<std::int64_t>(layout_.element_bytes());
  }
  float* scales(std::int64_t page, std::int64_t head, std::int64_t row) const {
    return reinterpret_cast<float*>(rows_of(page, head) + scales_begin_) + row * layout_.groups();
  }
  /// What the first `count` rows of a head take: of int8 whole groups.
  std::size_t bytes_of_rows(std::int64_t count) const {
    const std::int64_t rows =
        layout_.interleave_width == 0 ? count : (count + Rows::group_rows - 1) / Rows::group_rows * Rows::group_rows;
    return static_cast<std::size_t>(rows * layout_.dim) * layout_.element_bytes();
  }
  template <typename T>
  void write_row(PagePlace to, std::int64_t head, const T* from) const noexcept;
  /// Elements [first, end) of a row of int8 as far as they lie side by side: visit(place in the group, element from
  /// the first on, count).
  template <typename F>
  void for_each_run(std::int64_t row, std::int64_t first, std::int64_t end, F&& visit) const;

  RowLayout layout_;
  Rows rows_;  // as kernels read them, but for their place
  std::int64_t head_bytes_ = 0, scales_begin_ = 0;
  std::unique_ptr<void, Deallocate> data_;
};

}  // namespace attn
