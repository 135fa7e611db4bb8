// include/attn/relative.h: says which row of a table belongs to a query row and a key, for scores with a second
// product.
#pragma once
#include <attn/dims.h>

#include <memory>
#include <string>
#include <vector>

namespace attn {

/// Which row of a table belongs to a pair of a query row and a key: a function of their positions.
class ATTN_API RelativeIndex {
 public:
  /// The distance, key position minus row position, limited to [-before, after]; plus `before`: a table of before +
  /// after + 1 rows, the first one for keys `before` or more positions before the row. Sources: Shaw 2018 (1803.02155)
  /// with before = after; Transformer-XL (1901.02860) with before = Tk - 1, after = 0; Conformer (2005.08100) with both
  /// Tk - 1.
  static RelativeIndex distance(std::int64_t before, std::int64_t after);
  /// The row's position minus the key's, in DeBERTa's buckets: a table of 2 buckets rows. Distances up to buckets / 2
  /// have a row each; larger ones share the rest evenly in log(distance) up to max_position. Source: He 2021
  /// (2006.03654), as transformers computes it.
  static RelativeIndex log_buckets(std::int64_t buckets, std::int64_t max_position);
  /// Positions are the pixels of a picture, row by row. The row of the query's pixel minus that of the key's, plus
  /// height - 1: a table of 2 height - 1 rows. A call in which a row or a key has a position outside the picture is
  /// refused; a part of the pixels is accepted. Source: Li 2021 (MViTv2, 2112.01526), which SAM uses.
  static RelativeIndex picture_rows(std::int64_t height, std::int64_t width);
  /// The same for columns: a table of 2 width - 1 rows, for any height.
  static RelativeIndex picture_columns(std::int64_t width);
  /// Returns the same index into a table whose rows are in the opposite order.
  RelativeIndex reversed() const;

  std::int64_t rows() const { return rows_; }  ///< of the table
  /// Returns the call that makes it: "distance(2, 2)", with ".reversed()" if it is reversed.
  const std::string& to_string() const { return text_; }

  enum class Coordinate { position, row, column };
  /// What kernels read. A pair's difference is that of its coordinates (position; position / width; position % width),
  /// key minus row. Its entry is difference - first, limited to [0, entries): the table's row, or the index of the
  /// table's row in `steps`, which ascend. `backwards`: counted from the table's last row.
  struct Form {
    Coordinate coordinate = Coordinate::position;
    std::int64_t width = 1, first = 0, entries = 0;
    std::shared_ptr<const std::vector<std::int32_t>> steps = nullptr;
    bool backwards = false;
  };
  const Form& form() const { return form_; }

 private:
  Form form_;
  std::int64_t rows_ = 0;
  std::string text_;
};

}  // namespace attn
