// src/attention/cache/cache_rows.h: holds K or V of a cache in memory, and writes and reads its rows. A page holds its
// heads one after another; a head has its rows (int8 in groups of rows, see kernels::KvRows), then their scales.
#pragma once
#include <attn/tensor.h>

#include "kernels/attention/problem.h"
#include "runtime/memory.h"

#include <memory>

namespace attn {

struct Deallocate {
  void operator()(void* data) const noexcept { runtime::deallocate(data); }
};

/// The page of a token, and its row in that page.
struct PagePlace {
  std::int64_t page, row;
};

/// The layout of K or V, the same for every page.
struct RowLayout {
  std::int64_t heads = 0, dim = 0, pages = 0;
  Dtype dtype = Dtype::f32;                          // dtype of the rows that are appended
  kernels::Element element = kernels::Element::f32;  // element type as stored
  std::int64_t group = 0;                            // int8: elements that share a scale; else 0
  int interleave_width = 0;  // int8: adjacent elements of a row that are stored together; see kernels::KvRows

  std::int64_t groups() const { return group == 0 ? 0 : (dim + group - 1) / group; }
  std::size_t element_bytes() const { return group == 0 ? size_of(dtype) : 1; }
};

/// The memory of K or V. It has one page more than the pool: a page of zeros that stands for evicted pages.
class PagedRows {
 public:
  PagedRows() = default;
  /// Throws ValueError when the number of bytes overflows, std::bad_alloc when memory is short.
  PagedRows(const RowLayout& layout, std::int64_t page_rows);

  /// Writes `count` rows of source [H, T, D] (last dim contiguous), from row `from` on, into consecutive rows of a
  /// page.
  void write(PagePlace to, const Tensor& source, std::int64_t from, std::int64_t count) noexcept;
  /// Copies the first `count` rows of a page of `source` into a page of this object; pages of `source` may have fewer
  /// rows.
  void copy(std::int64_t page, const PagedRows& source, std::int64_t source_page, std::int64_t count) noexcept;
  void clear(std::int64_t page, std::int64_t count) noexcept;
  /// Reads rows of a page as f32 or f64 and writes them to `to`, [H][T] rows; the heads are `head_stride` elements
  /// apart.
  template <typename T>
  void read(PagePlace from, std::int64_t count, T* to, std::int64_t head_stride) const;

  /// Describes the rows as kernels read them; the caller supplies the page table.
  kernels::KvRows describe() const;
  std::int64_t head_stride() const { return head_bytes_ / static_cast<std::int64_t>(layout_.element_bytes()); }
  std::int64_t zero_page() const { return layout_.pages; }
  std::int64_t bytes() const { return (layout_.pages + 1) * layout_.heads * head_bytes_; }

 private:
  using Rows = kernels::KvRows;
  /// Returns the address of a head in a page. Its elements come first, then its scales.
  char* rows_of(std::int64_t page, std::int64_t head) const {
    return static_cast<char*>(data_.get()) + (page * layout_.heads + head) * head_bytes_;
  }
  /// Returns the address of row `row` of a head; for int8 that of the row's group.
  char* at(std::int64_t page, std::int64_t head, std::int64_t row) const {
    return rows_of(page, head) + rows_.offset(row) * static_cast<std::int64_t>(layout_.element_bytes());
  }
  float* scales(std::int64_t page, std::int64_t head, std::int64_t row) const {
    return reinterpret_cast<float*>(rows_of(page, head) + scales_begin_) + row * layout_.groups();
  }
  /// Returns the bytes of the first `count` rows of a head; for int8 rounded up to whole groups.
  std::size_t bytes_of_rows(std::int64_t count) const {
    const std::int64_t rows =
        layout_.interleave_width == 0 ? count : (count + Rows::group_rows - 1) / Rows::group_rows * Rows::group_rows;
    return static_cast<std::size_t>(rows * layout_.dim) * layout_.element_bytes();
  }
  template <typename T>
  void write_row(PagePlace to, std::int64_t head, const T* from) const noexcept;
  /// Calls visit(offset in the group of rows, element relative to `first`, count) for each contiguous run of the
  /// elements [first, end) of an int8 row.
  template <typename F>
  void for_each_run(std::int64_t row, std::int64_t first, std::int64_t end, F&& visit) const;

  RowLayout layout_;
  Rows rows_;  // the layout for kernels; its `base` is null
  std::int64_t head_bytes_ = 0, scales_begin_ = 0;
  std::unique_ptr<void, Deallocate> data_;
};

}  // namespace attn
