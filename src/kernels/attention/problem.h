// src/kernels/attention/problem.h: describes one attention call as plain data: everything that a kernel reads.
#pragma once
#include "kernels/attention/score_program.h"
#include "kernels/element.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// Rows of K or V of one (batch, head): contiguous, strided, paged or quantised.
struct KvRows {
  const void* base = nullptr;           // row 0 (page 0 when paged)
  std::int64_t row_stride = 0;          // elements between adjacent rows
  const std::int32_t* pages = nullptr;  // page table of the sequence, or null
  std::int64_t pages_stride = 0;        // entries between the tables of adjacent batch items
  int page_shift = 0;                   // log2(rows of a page)
  std::int64_t page_stride = 0;         // elements between pages
  const float* scales = nullptr;        // int8: scale of (row in memory, group), or null
  std::int64_t scale_stride = 0;        // scales between adjacent rows
  std::int64_t scale_page_stride = 0;   // between pages
  std::int64_t scale_head_stride = 0;   // between heads
  std::int64_t scale_batch_stride = 0;  // between batch items
  int scale_group = 0;                  // elements of a row that share a scale
  // int8: width of the interleaving. Rows are in groups of 16, [rows / 16][row_stride / width][16][width]; the last
  // width may be smaller.
  int interleave_width = 0;
  Element element = Element::f32;

  /// Rows of a group. Decode reads keys interleaved by 4 bytes, and values interleaved by a cache line: nothing must be
  /// transposed, and lines are read in order.
  static constexpr std::int64_t group_rows = 16, k_interleave_width = 4, line = 64;

  /// `offset` returns the distance from `base` to row j (int8: to its group) in elements; `scale_offset` returns the
  /// distance from `scales` to the row's first scale.
  std::int64_t offset(std::int64_t j) const {
    return place(interleave_width == 0 ? j : j & -group_rows, row_stride, page_stride);
  }
  /// Returns the distance from offset(j) to element d of row j, in elements.
  std::int64_t element_offset(std::int64_t j, std::int64_t d) const {
    if (interleave_width == 0) return d;
    const std::int64_t first = d / interleave_width * interleave_width,
                       width = row_stride - first < interleave_width ? row_stride - first : interleave_width;
    return first * group_rows + (j & (group_rows - 1)) * width + d - first;
  }
  std::int64_t scale_offset(std::int64_t j) const { return place(j, scale_stride, scale_page_stride); }

 private:
  std::int64_t place(std::int64_t j, std::int64_t of_row, std::int64_t of_page) const {
    if (pages == nullptr) return j * of_row;
    return pages[j >> page_shift] * of_page + (j & ((std::int64_t{1} << page_shift) - 1)) * of_row;
  }
};

/// A dense operand of the scores, broadcast by zero strides: [B, H, Tq, Tk].
struct Broadcast4 {
  const void* data = nullptr;
  std::int64_t stride[4] = {0, 0, 0, 0};
};

// --- masks: an expression in postfix order ------------------------------------------------------------------------
enum class MaskOp : std::uint8_t { causal, window, prefix, documents, blocks, dense, constant, op_and, op_or, op_not };

/// Larger than every position, and small enough to be added to one.
inline constexpr std::int64_t farthest_key = std::int64_t{1} << 61;

/// The blocks of keys that each block of query rows sees. Blocks begin at row 0 and key 0 of the call, not at
/// positions.
struct BlockLists {
  // [batch][head of lists][query block][width]: ascending, each block once, then no_block
  const std::int64_t* blocks = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0;
  std::int64_t heads_together = 1;  // query heads that share lists
  std::int64_t width = 0;
  std::int64_t block_rows = 1, block_keys = 1;  // rows, keys

  static constexpr std::int64_t no_block = INT64_MAX;
  /// Returns the list of row i of (b, h).
  const std::int64_t* of(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return blocks + b * batch_stride + h / heads_together * head_stride + i / block_rows * width;
  }
};

struct MaskNode {
  MaskOp op = MaskOp::constant;
  bool value = true;                                      // constant; dense: the byte that means "sees"
  std::int64_t left = -1, right = -1;                     // window, at most farthest_key
  const std::int64_t* per_batch = nullptr;                // prefix: n of each batch item, at least 0, or null
  std::int64_t n = 0;                                     // prefix
  const std::int64_t* query_ids = nullptr;                // documents: [B, Tq] by strides
  const std::int64_t* key_ids = nullptr;                  // documents: [B, Tk]
  std::int64_t query_ids_stride = 0, key_ids_stride = 0;  // between batch items (0: shared)
  Broadcast4 dense = {};                                  // bytes
  BlockLists lists = {};                                  // blocks
  bool bottom_right = false;                              // causal, window: which offset row positions take
};

struct MaskProgram {
  const MaskNode* nodes = nullptr;
  int count = 0;  // 0: nothing is masked
};

// --- bias terms ---------------------------------------------------------------------------------------------------
/// How a term gets the value of a pair: from a dense operand; as the head's slope times a number that depends on the
/// distance, key position minus row position (ALiBi); or from the row of a table that belongs to the distance (T5).
enum class BiasOp : std::uint8_t { dense, slope, table };

struct BiasTerm {
  BiasOp op = BiasOp::dense;
  Element element = Element::f32;  // of the dense values, slopes or table
  Broadcast4 dense = {};
  const void* values = nullptr;    // slope: [Hq]; table: [buckets, Hq]
  std::int64_t value_stride = 1;   // slope, table: between heads
  std::int64_t bucket_stride = 0;  // table: between buckets
  std::int64_t buckets = 0;
  std::int64_t max_distance = 128;
  bool bidirectional = true;
  // table: the bucket of each distance 0 ... max_distance; larger distances share the last
  const std::int32_t* bucket_of = nullptr;
  bool bottom_right = false;
  bool symmetric = false;  // slope: by the absolute distance

  /// slope: returns the factor of the slope, from the distance.
  std::int64_t times(std::int64_t distance) const { return symmetric && distance > 0 ? -distance : distance; }
  /// table: returns its row, from the distance.
  std::int64_t bucket(std::int64_t distance) const {
    const bool ahead = bidirectional && distance > 0;
    const std::int64_t back = ahead ? distance : -distance;
    const std::int64_t clamped = back < 0 ? 0 : back > max_distance ? max_distance : back;
    return bucket_of[clamped] + (ahead ? buckets / 2 : 0);
  }
};

enum class ScoreOp : std::uint8_t { dot, additive };

/// Rows and keys that are computed separately within a batch item: a packed sequence or a document. Blocks of keys are
/// counted from its first key.
struct Sequence {
  std::int64_t batch = 0;  // the batch item that contains it
  std::int64_t rows_begin = 0, rows_end = 0;
  std::int64_t keys_begin = 0, keys_end = 0;
  // number used in place of the batch item: that of the packed sequence, or `batch`
  std::int64_t item = 0;
  std::int64_t first_position = 0;  // of key keys_begin
  // how many positions later the next 64 keys begin: 64, or more if other ranks have the blocks between
  std::int64_t key_block_step = 64;
  std::int64_t row_offset[2] = {0, 0};  // position of row i minus i: top-left, bottom-right
  bool inside = false;                  // a document with all of its keys: the mask need not compare ids
};

/// The order of the tasks, which kernels use to prefetch rows. No bit depends on it.
struct ScheduleHints {
  std::int64_t rows_ahead = 0;   // how many rows earlier the thread's next query tile begins
  std::int64_t heads_ahead = 1;  // how many heads ahead the threads will be when a query tile is done
};

/// What a kernel computes at a time, and the memory that only this needs: one or several query tiles, or a step of the
/// backward pass. The rows are [row, row + rows) of heads [head, head + heads), head after head. The heads share a head
/// of K and V, so that a group of query heads fills the lanes in decode.
struct Task {
  std::int64_t batch = 0, head = 0, heads = 1, row = 0, rows = 0;
  std::int64_t block = 0;              // backward pass: index among the blocks of rows of the call
  const Sequence* sequence = nullptr;  // computed in place of its batch item; null: the whole item
  // Dropout by bytes: a weight is kept if keep[(row - first_row) * keep_stride + j] != 0; null: none.
  const std::uint8_t* keep = nullptr;
  std::int64_t keep_stride = 0, first_row = 0;
  // The weights of a query tile as vector kernels write them: [keys of the item or sequence][lane_rows], one row per
  // lane (missing rows are undefined); compute type, or null. lane_row: memory of k_rows elements for kernels that
  // compute weights row by row.
  void* lane_weights = nullptr;
  void* lane_average = nullptr;  // of the same shape, or null: the weights are added to it
  void* lane_row = nullptr;
  std::int64_t lane_rows = 0;  // rows of the kernel's query tile
  ScheduleHints hints = {};

  std::int64_t count() const { return heads * rows; }
  /// Returns the same task with other rows of one of its heads.
  Task with_rows(std::int64_t its_head, std::int64_t first, std::int64_t its_rows) const {
    Task part = *this;
    part.head = its_head, part.heads = 1, part.row = first, part.rows = its_rows;
    return part;
  }
  /// Calls piece(first lane, lanes, offset of the first lane's row, stride between rows) for each range of lanes whose
  /// rows are equally spaced in an array with these strides.
  template <class F>
  void for_each_piece(const std::int64_t (&stride)[3], F&& piece) const {
    const std::int64_t start = batch * stride[0] + head * stride[1] + row * stride[2];
    if (rows == 1) return piece(std::int64_t{0}, heads, start, stride[1]);
    for (std::int64_t n = 0; n < heads; ++n) piece(n * rows, rows, start + n * stride[1], stride[2]);
  }
};

/// The totals of a call that has only some of its keys: each row's maximum, sum and undivided output over the keys so
/// far ([B, Hq, Tq], [B, Hq, Tq], [B, Hq, Tq, Dv], compute type). -inf, 0 and 0 if the row has seen none.
struct RowTotals {
  void *max = nullptr, *sum = nullptr, *output = nullptr;
  bool begins = true;  // there are no earlier keys: nothing is read
  bool ends = true;    // there are no later keys: the results are written instead
};

struct Normalization;  // normalizer_problem.h

/// The call: sizes, memory, positions and all operations around the softmax. Strides count elements. It is constant
/// while the tasks run; what differs between them is in Task.
struct AttentionProblem {
  std::int64_t batch = 0, q_heads = 0, k_heads = 0, v_heads = 0, q_rows = 0, k_rows = 0, dim = 0, value_dim = 0;
  Element element = Element::f32;    // of q, k, v and output
  ScoreOp score = ScoreOp::dot;      // additive: q and k already projected, dim = A
  const void* additive_w = nullptr;  // [A], compute type

  const void* q = nullptr;
  std::int64_t q_stride[3] = {0, 0, 0};  // batch, head, row
  KvRows k, v;                           // base of (batch 0, head 0)
  std::int64_t k_stride[2] = {0, 0};     // batch, head
  std::int64_t v_stride[2] = {0, 0};
  void* out = nullptr;
  std::int64_t out_stride[3] = {0, 0, 0};

  // per batch item, or null for the default
  const std::int64_t* query_lengths = nullptr;
  const std::int64_t* key_lengths = nullptr;
  const std::int64_t* key_start = nullptr;
  const std::int64_t* query_start = nullptr;

  double scale = 1;  // rounded once to the compute type
  double softcap = 0;
  double temperature = 1;
  const void* sinks = nullptr;  // [Hq], compute type, or null
  MaskProgram mask;
  const BiasTerm* bias = nullptr;
  int bias_count = 0;
  ScoreProgram score_mod;  // the caller's expression, for any rows
  // The same expression for adjacent rows of one head, where values that depend on the distance only are computed once
  // for it; empty if that saves nothing.
  ScoreProgram score_mod_one_head;
  // The derivatives of the expression, for one head; set in the backward pass if there is an expression.
  const ScoreGradient* score_gradient = nullptr;
  ScoreCall score_callback;                      // the caller's callable
  const Normalization* normalization = nullptr;  // null: the plain softmax

  // Counter-based dropout (docs/numerics.md section 6): a weight is kept if its random word is at least drop_least, and
  // multiplied by keep_scale (rounded to the compute type).
  std::uint64_t drop_least = 0;  // 0: no dropout
  std::uint64_t drop_seed = 0;
  double keep_scale = 1;
  std::int64_t first_head = 0;  // the number of head 0 in the counters: a call may be some heads of a larger one

  // saved for the backward pass, [B, Hq, Tq] contiguous, compute type, or null
  void* max = nullptr;
  void* sum = nullptr;
  void* logsumexp = nullptr;  // natural log
  // Weights (or scores) of every pair, compute type, keys adjacent, or null.
  void* weights = nullptr;
  std::int64_t weights_stride[3] = {0, 0, 0};  // batch, head, row

  RowTotals totals;
  bool copy_rows = false;  // tasks of many query tiles copy K and V: cache conflicts, or odd rows of bf16

  // --- values that every kernel derives in the same way ------------------------------------------------------
  /// Return the head of k and of v that query head h reads, out of `heads` heads; without a division if every query
  /// head has its own.
  std::int64_t key_head(std::int64_t h) const { return shared_head(h, k_heads); }
  std::int64_t value_head(std::int64_t h) const { return shared_head(h, v_heads); }
  std::int64_t shared_head(std::int64_t h, std::int64_t heads) const {
    return heads == q_heads ? h : h / (q_heads / heads);
  }
  /// Return which keys and rows the task's sequence or batch item has.
  std::int64_t keys_end(const Task& t) const {
    return t.sequence ? t.sequence->keys_end : key_lengths ? key_lengths[t.batch] : k_rows;
  }
  std::int64_t keys_begin(const Task& t) const {
    return t.sequence ? t.sequence->keys_begin : key_start ? key_start[t.batch] : 0;
  }
  std::int64_t rows_end(const Task& t) const {
    return t.sequence ? t.sequence->rows_end : query_lengths ? query_lengths[t.batch] : q_rows;
  }
  /// Returns the position of key j. Those of a block of 64 keys, counted from the first key, follow each other.
  std::int64_t key_position(const Task& t, std::int64_t j) const {
    const std::int64_t key = j - keys_begin(t);
    if (t.sequence == nullptr) return key;
    return t.sequence->first_position + key + key / 64 * (t.sequence->key_block_step - 64);
  }
  /// Returns the number used as batch item.
  std::int64_t item(const Task& t) const { return t.sequence ? t.sequence->item : t.batch; }
  /// Returns whether dropout takes part: by counter, or by bytes.
  bool drops(const Task& t) const { return drop_least != 0 || t.keep != nullptr; }
  /// Returns the position of row i minus i.
  std::int64_t row_offset(const Task& t, bool bottom_right) const {
    if (t.sequence) return t.sequence->row_offset[bottom_right];
    if (query_start) return query_start[t.batch];
    return bottom_right ? (keys_end(t) - keys_begin(t)) - rows_end(t) : 0;
  }
};

}  // namespace attn::kernels
