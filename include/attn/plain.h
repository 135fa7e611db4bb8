// include/attn/plain.h: attention below the tensors: your pointers, sizes, strides, workspace and threads; nothing is
// allocated.
#pragma once
#include <attn/export.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace attn::plain {

enum class Element : std::uint8_t { f32, f64, bf16, f16 };

/// Strides between neighbouring batch items, heads and rows, in elements; the last dim is contiguous. All 0: row-major.
/// Otherwise each is given where there is more than one of its kind, and is at least the width of a row.
struct Strides {
  std::int64_t batch = 0, head = 0, row = 0;
};

/// A dense operand of the scores [B, Hq, Tq, Tk]. Nothing given: row-major, all of it. Otherwise a stride of 0
/// broadcasts; one row for all is {.key = 1}.
struct ScoreStrides {
  static constexpr std::int64_t neighbours = INT64_MIN;  // 1
  std::int64_t batch = 0, head = 0, row = 0, key = neighbours;
};

/// One call of attention; what each field means and which bits come out: <attn/attention.h>. Null: not given, the
/// default. A size of 0 beside a pointer to what it counts was forgotten: Status::size_left_out.
struct Attention {
  std::int64_t batch = 1, q_heads = 1, k_heads = 1, v_heads = 1;  // k_heads and v_heads each divide q_heads
  std::int64_t q_rows = 0, k_rows = 0, dim = 0, value_dim = 0;
  Element element = Element::f32;  // of q, k, v, output; the compute type is f64 for f64, else f32

  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* output = nullptr;     // must not overlap k or v
  void* logsumexp = nullptr;  // [B, Hq, Tq], compute type
  void* max = nullptr;        // [B, Hq, Tq], compute type: with `sum` what the backward pass needs
  void* sum = nullptr;
  Strides q_strides = {}, k_strides = {}, v_strides = {}, output_strides = {};

  std::optional<double> scale = std::nullopt;  // default 1 / sqrt(dim)
  double softcap = 0;
  double temperature = 1;
  const void* sinks = nullptr;  // [Hq], compute type

  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;  // keys before and after the row's position; -1: no limit
  bool bottom_right = false;                         // the last row stands at the last key
  // row 0 at key 0; where q_rows != k_rows causal and windows need one of them, or query_start
  bool top_left = false;
  const std::uint8_t* mask = nullptr;  // not 0: takes part
  ScoreStrides mask_strides = {};
  const void* bias = nullptr;  // added to the scores
  Element bias_element = Element::f32;
  ScoreStrides bias_strides = {};

  const std::int64_t* query_lengths = nullptr;  // [B] each
  const std::int64_t* key_lengths = nullptr;
  const std::int64_t* key_start = nullptr;
  const std::int64_t* query_start = nullptr;
};

/// Your threads: `run` calls part(part_context, 0) ... part(part_context, parts - 1), each once, in any order, on up to
/// `threads` threads at a time, and returns when all are done. It must not throw. Null: the library's own pool.
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
};
/// One line: "plain::attention: k_heads and v_heads must each divide q_heads".
ATTN_API const char* text_of(Status status) noexcept;

/// The backward pass of a call: what each field means and which bits come out: the gradients of <attn/attention.h>.
struct AttentionBackward {
  // as it was called, f32, f64, or bf16 where the processor has its dot product: `output`, `max` and `sum` hold its
  // results
  Attention forward = {};
  const void* doutput = nullptr;     // the gradient that comes in, as output
  const void* dlogsumexp = nullptr;  // [B, Hq, Tq], or null
  void* dq = nullptr;                // as q
  void* dk = nullptr;                // as k, or null: not wanted
  void* dv = nullptr;                // as v, or null
  Strides doutput_strides = {}, dq_strides = {}, dk_strides = {}, dv_strides = {};
  void* dsinks = nullptr;  // [Hq], or null
  void* dbias = nullptr;   // added to, by bias_strides: a stride of 0 sums; compute type; or null
};

/// Bytes of workspace for a call, of any alignment; depends on dim, value_dim and the number of threads alone.
ATTN_API std::size_t workspace_bytes(const Attention& call, const Executor& executor = {}) noexcept;

/// The bits of attn::attention. Allocates nothing; with less than workspace_bytes but enough for one thread it runs on
/// fewer. Nothing is written unless the status is ok. Thread-safe for different outputs and workspaces.
ATTN_API Status attention(const Attention& call, void* workspace, std::size_t bytes,
                          const Executor& executor = {}) noexcept;

/// The same for the backward pass; grows with Tq (a cache line for 64 rows of a head), of bf16 with Tk (its sums in
/// f32: a thread's, or all heads' where they add to the same elements of dbias), never with Tq x Tk.
ATTN_API std::size_t workspace_bytes(const AttentionBackward& call, const Executor& executor = {}) noexcept;
ATTN_API Status attention_backward(const AttentionBackward& call, void* workspace, std::size_t bytes,
                                   const Executor& executor = {}) noexcept;

}  // namespace attn::plain
