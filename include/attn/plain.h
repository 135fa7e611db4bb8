// include/attn/plain.h: computes attention on raw pointers: the caller gives sizes, strides, workspace and threads;
// nothing is allocated.
#pragma once
#include <attn/export.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace attn::plain {

enum class Element : std::uint8_t { f32, f64, bf16, f16 };

/// Strides between adjacent batch items, heads and rows, in elements; the last dim is contiguous. All 0 means
/// row-major. Otherwise each stride must be given if there is more than one item, head or row, and its magnitude must
/// be at least the width of a row.
struct Strides {
  std::int64_t batch = 0, head = 0, row = 0;
};

/// Strides of a mask or bias over the scores [B, Hq, Tq, Tk]. The default is row-major. If any stride is set, a stride
/// of 0 broadcasts; {.key = 1} is one row for all rows.
struct ScoreStrides {
  static constexpr std::int64_t neighbours = INT64_MIN;  // the default key stride: adjacent keys, stride 1
  std::int64_t batch = 0, head = 0, row = 0, key = neighbours;
};

/// The running totals of rows whose keys come in pieces (several calls): for each row the largest score, the sum of the
/// weights, and the sum of weights times values over the keys so far, not yet divided.
struct RowTotals {
  void* max = nullptr;     // [B, Hq, Tq], compute type; -inf if the row has seen no key
  void* sum = nullptr;     // [B, Hq, Tq], compute type
  void* output = nullptr;  // [B, Hq, Tq, Dv], compute type, row-major
};

/// One call of attention. <attn/attention.h> says what each field means and which bits result. A null pointer means
/// "not given, use the default". If a size is 0 although the pointer to the data of that size is not null, the call
/// returns Status::size_left_out.
struct Attention {
  std::int64_t batch = 1, q_heads = 1, k_heads = 1, v_heads = 1;  // k_heads and v_heads each divide q_heads
  std::int64_t q_rows = 0, k_rows = 0, dim = 0, value_dim = 0;
  Element element = Element::f32;  // type of q, k, v and output; the compute type is f64 for f64, else f32

  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* output = nullptr;     // must not overlap k or v
  void* logsumexp = nullptr;  // [B, Hq, Tq], compute type
  void* max = nullptr;        // [B, Hq, Tq], compute type: the backward pass needs `max` and `sum`
  void* sum = nullptr;
  Strides q_strides = {}, k_strides = {}, v_strides = {}, output_strides = {};

  std::optional<double> scale = std::nullopt;  // default 1 / sqrt(dim)
  double softcap = 0;
  double temperature = 1;
  const void* sinks = nullptr;  // [Hq], compute type

  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;  // keys before and after the row's position; -1: no limit
  bool bottom_right = false;                         // if true, the last row is aligned to the last key
  // If true, row 0 is aligned to key 0. If q_rows != k_rows, causal masks and windows need top_left, bottom_right or
  // query_start.
  bool top_left = false;
  const std::uint8_t* mask = nullptr;  // bytes; if a pair's byte is not 0, the pair takes part
  ScoreStrides mask_strides = {};
  const void* bias = nullptr;  // added to the scores
  Element bias_element = Element::f32;
  ScoreStrides bias_strides = {};

  const std::int64_t* query_lengths = nullptr;  // [B] each
  const std::int64_t* key_lengths = nullptr;
  const std::int64_t* key_start = nullptr;
  const std::int64_t* query_start = nullptr;

  // Keys in pieces: each call has the keys from position `first_key` on, and `totals` carry the rows over from call to
  // call. The bits are those of one call if pieces begin at multiples of 1,024 and come in order. A call that does not
  // begin reads the totals; one that does not end writes them, and none of the results. Not with key_start or
  // bottom_right; masks, biases and key_lengths are those of the piece.
  RowTotals totals = {};
  bool begins = true, ends = true;
  std::int64_t first_key = 0;
  // Row i has position i / 64 * row_block_step + i % 64, plus query_start: blocks of 64 rows that are `row_block_step`
  // positions apart.
  std::int64_t row_block_step = 64;
};

/// The caller's threads: `run` calls part(part_context, 0) ... part(part_context, parts - 1), each once, in any order,
/// on up to `threads` threads at a time, and returns when all are done. It must not throw. Null: the library's own
/// pool.
struct Executor {
  void (*run)(void* context, std::int64_t parts, void (*part)(void* part_context, std::int64_t index),
              void* part_context) = nullptr;
  void* context = nullptr;
  int threads = 1;
};

enum class [[nodiscard]] Status : std::uint8_t {
  ok,
  negative_size,
  heads_do_not_divide,
  null_pointer,
  bad_value,
  bad_length,
  small_workspace,
  element,
  null_saved,
  failed,
  size_left_out,
  stride_left_out,
  short_stride,
  alignment,
  totals_left_out,
  piece,
};
/// Returns one line: "plain::attention: k_heads and v_heads must each divide q_heads".
ATTN_API const char* text_of(Status status) noexcept;

/// The backward pass of a call. The gradients and their bits are those of <attn/attention.h>.
struct AttentionBackward {
  // The forward call as it was made, in f32, f64, or bf16 if the processor has a bf16 dot product. `output`, `max` and
  // `sum` hold its results.
  Attention forward = {};
  const void* doutput = nullptr;     // the incoming gradient, shaped as output
  const void* dlogsumexp = nullptr;  // [B, Hq, Tq], or null
  void* dq = nullptr;                // shaped as q
  void* dk = nullptr;                // shaped as k; null: not computed
  void* dv = nullptr;                // shaped as v; null: not computed
  Strides doutput_strides = {}, dq_strides = {}, dk_strides = {}, dv_strides = {};
  void* dsinks = nullptr;  // [Hq], or null
  // Compute type, or null. The gradient is added to its elements; bias_strides address them, and a stride of 0 sums.
  void* dbias = nullptr;

  // Keys or rows in pieces: two passes, one for dq and one for dk and dv; without dbias.
  //  Rows: dq of all rows, without dk and dv; pieces of keys as in the forward pass (forward.begins, ends, first_key).
  // dq_totals, [B, Hq, Tq, D] of the compute type, carry its sums; dsinks comes with the call that ends. `delta`,
  // [B, Hq, Tq] of the compute type, is written by the call that begins and read by the others.
  //  Keys: dk and dv of all keys, without dq; pieces of rows, whose first row is at forward.query_start. A piece has a
  // multiple of 64 rows unless it is the last of a head. All rows of a head come before the next head that shares its
  // keys: with grouped heads a call has all rows, or one query head of each group. `delta` is read. In f32 and f64, dk
  // and dv carry the sums; in bf16 it is key_totals, of key_totals_bytes(call) bytes at the same address in each call.
  void* dq_totals = nullptr;
  void* delta = nullptr;
  void* key_totals = nullptr;
};

/// Returns the bytes of key_totals: 0 in f32 and f64.
ATTN_API std::size_t key_totals_bytes(const AttentionBackward& call) noexcept;

/// Returns the bytes of workspace for a call, at any alignment. In f32 and f64 the size depends only on dim, value_dim
/// and the thread count. In bf16 and f16 it also depends on q_rows and k_rows, because converted blocks of k and v are
/// cached, up to a limit: with dim = value_dim = 64 at most 2.3 MB (bf16) and 0.6 MB (f16) per thread.
ATTN_API std::size_t workspace_bytes(const Attention& call, const Executor& executor = {}) noexcept;

/// Computes the same bits as attn::attention, and allocates nothing. If the workspace is smaller than workspace_bytes,
/// but large enough for one thread, it uses fewer threads. It writes nothing unless it returns Status::ok. Several
/// threads may call it at the same time with different outputs and workspaces.
ATTN_API Status attention(const Attention& call, void* workspace, std::size_t bytes,
                          const Executor& executor = {}) noexcept;

/// Returns the bytes of workspace for the backward pass. The size grows with Tq: 64 bytes, and the head's element of
/// dsinks, for each 64 rows of a head. In bf16 it also grows with Tk, for f32 sums: one set for each thread, and one
/// for each head of K or V if there are few of them for the threads or heads share elements of dbias. It never grows
/// with Tq x Tk.
ATTN_API std::size_t workspace_bytes(const AttentionBackward& call, const Executor& executor = {}) noexcept;
ATTN_API Status attention_backward(const AttentionBackward& call, void* workspace, std::size_t bytes,
                                   const Executor& executor = {}) noexcept;

}  // namespace attn::plain
