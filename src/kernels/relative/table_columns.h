// src/kernels/relative/table_columns.h: finds the rows of a relative product's table that a query tile and a part of
// the keys need. They are the columns of the products; the keys of a row use them in runs.
#pragma once
#include "kernels/attention/arena.h"
#include "kernels/attention/block_and_tile_sizes.h"
#include "kernels/relative_problem.h"

#include <algorithm>
#include <cstdint>

namespace attn::kernels {

/// Keys of a row, counted from the first of the part, whose columns are column, column + step, ...
struct ColumnRun {
  std::int64_t key = 0, keys = 0, column = 0, step = 0;
};

class TableColumns {
 public:
  static constexpr std::int64_t most_rows = 64;  // of a tile

  /// `rows`: the most rows of a tile.
  TableColumns(const RelativeProduct& product, const AttentionProblem& problem, std::int64_t rows, Arena& arena)
      : r_(product), p_(problem), is_picture_(r_.coordinate != RelativeProduct::Coordinate::position),
        entry_step_(r_.backwards ? -1 : 1),
        picture_step_(r_.coordinate == RelativeProduct::Coordinate::row ? 0 : entry_step_),
        part_keys_(product.of_keys ? kv_block : kv_split),
        most_(r_.steps != nullptr || is_picture_
                  ? r_.table_rows
                  : std::min(r_.table_rows, std::min(part_keys_, problem.k_rows) + rows)) {
    if (is_picture_) of_keys_ = arena.take<std::int64_t>(part_keys_), key_ends_ = arena.take<std::int64_t>(part_keys_);
    if (r_.steps == nullptr) return;
    entry_columns_ = arena.take<std::int32_t>(part_keys_ + rows);
    entry_ends_ = arena.take<std::int32_t>(part_keys_ + rows);
  }
  /// Returns the most columns of a part.
  std::int64_t most() const { return most_; }
  std::int64_t part_keys() const { return part_keys_; }
  /// Returns the table's row of column 0, and the number of columns of the part.
  std::int64_t first_row() const { return first_row_; }
  std::int64_t count() const { return count_; }

  /// Whether a row can have long runs of one column: keys beyond both ends of the table.
  bool has_long_runs() const { return !is_picture_; }

  /// Calls visit(first key, keys) for every part of the keys that exist for the tile.
  template <typename F>
  void each_part(const Task& tile, F&& visit) {
    if (tile.rows == 0) return;
    const std::int64_t offset = p_.row_offset(tile, r_.bottom_right);
    for (std::int64_t i = 0; i < tile.rows; ++i) of_rows_[i] = r_.coordinate_of(tile.row + i + offset);
    for (std::int64_t key = p_.keys_begin(tile), end = p_.keys_end(tile); key < end; key += part_keys_) {
      keys_ = std::min(part_keys_, end - key);
      begin_part(tile, key);
      visit(key, keys_);
    }
  }

  /// Returns the longest run of row i of the tile that begins at `key` of the part.
  [[gnu::always_inline]] ColumnRun run(std::int64_t i, std::int64_t key) const {
    if (is_picture_)  // up to the end of a row of the picture
      return {key, key_ends_[key] - key, column_of(r_.entry_of(of_keys_[key] - of_rows_[i])), picture_step_};
    const std::int64_t left = keys_ - key;
    const std::int64_t entry = first_key_ + key - of_rows_[i] - r_.first;
    if (entry < 0) return {key, std::min(-entry, left), column_of(0), 0};
    if (entry >= r_.entries) return {key, left, column_of(r_.entries - 1), 0};
    if (entry_columns_ == nullptr) return {key, std::min(r_.entries - entry, left), column_of(entry), entry_step_};
    const std::int64_t at = entry - first_entry_, keys = std::min(entry_ends_[at] - at, left);
    return {key, keys, entry_columns_[at], keys > 1 ? entry_columns_[at + 1] - entry_columns_[at] : 0};
  }

 private:
  /// Returns the column of an entry of the part.
  std::int64_t column_of(std::int64_t entry) const {
    return entry_columns_ != nullptr ? entry_columns_[entry - first_entry_]
                                     : first_column_ + (entry - first_entry_) * entry_step_;
  }

  void begin_part(const Task& tile, std::int64_t key) {
    first_key_ = p_.key_position(tile, key);  // the positions of keys follow each other
    std::int64_t least_key = first_key_, most_key = first_key_ + keys_ - 1;
    if (is_picture_) {
      begin_picture();
      const auto [least, most] = std::minmax_element(of_keys_, of_keys_ + keys_);
      least_key = *least, most_key = *most;
    }
    const auto [least_row, most_row] = std::minmax_element(of_rows_, of_rows_ + tile.rows);
    first_entry_ = r_.entry_of(least_key - *most_row);
    const std::int64_t last_entry = r_.entry_of(most_key - *least_row);
    const std::int64_t a = r_.row_of_entry(first_entry_), b = r_.row_of_entry(last_entry);
    first_row_ = std::min(a, b);
    count_ = std::max(a, b) - first_row_ + 1;
    first_column_ = a - first_row_;
    if (r_.steps != nullptr) begin_steps(last_entry - first_entry_ + 1);
  }
  /// Notes the coordinate of each key of the part, and where its row of the picture ends.
  void begin_picture() {
    const bool is_row = r_.coordinate == RelativeProduct::Coordinate::row;
    std::int64_t line = (first_key_ >= 0 ? first_key_ : first_key_ - r_.width + 1) / r_.width,  // rounded down
        column = first_key_ - line * r_.width;
    for (std::int64_t k = 0; k < keys_; ++k) {
      of_keys_[k] = is_row ? line : column;
      key_ends_[k] = std::min(k + r_.width - column, keys_);
      if (++column == r_.width) column = 0, ++line;
    }
  }
  /// Notes the column of each entry, and where the run that begins there ends.
  void begin_steps(std::int64_t entries) {
    for (std::int64_t e = 0; e < entries; ++e)
      entry_columns_[e] = static_cast<std::int32_t>(r_.row_of_entry(first_entry_ + e) - first_row_);
    const auto step = [&](std::int64_t e) { return entry_columns_[e + 1] - entry_columns_[e]; };
    for (std::int64_t e = entries; e-- > 0;)
      entry_ends_[e] = e + 2 < entries && step(e) == step(e + 1) ? entry_ends_[e + 1]
                                                                 : static_cast<std::int32_t>(std::min(e + 2, entries));
  }

  const RelativeProduct& r_;
  const AttentionProblem& p_;
  bool is_picture_;
  std::int64_t entry_step_;    // from the column of an entry to that of the next
  std::int64_t picture_step_;  // from the column of a key to that of the next, in a row of the picture
  std::int64_t part_keys_, most_;
  std::int64_t* of_keys_ = nullptr;        // [part_keys]  coordinates in the picture of the keys of the part
  std::int64_t* key_ends_ = nullptr;       // one past the last key of its row of the picture
  std::int32_t* entry_columns_ = nullptr;  // the column of each entry from first_entry_ on
  std::int32_t* entry_ends_ = nullptr;     // one past the last entry of its run
  std::int64_t of_rows_[most_rows] = {};   // coordinates of the rows of the tile
  std::int64_t first_row_ = 0, count_ = 0, first_entry_ = 0, first_column_ = 0, first_key_ = 0, keys_ = 0;
};

}  // namespace attn::kernels
