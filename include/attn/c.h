/* include/attn/c.h: attention for C, and for any language that can call C: <attn/plain.h> with C names.
 *
 * Formula, shapes, dtypes and bits are those of <attn/plain.h>. The caller gives pointers, sizes, strides, workspace
 * and threads. The functions allocate nothing and throw nothing. Needs C99 or later.
 *
 *   attn_attention call;
 *   attn_attention_init(&call, sizeof call);
 *   call.q_rows = call.k_rows = 128;
 *   call.dim = call.value_dim = 64;
 *   call.q = q; call.k = k; call.v = v; call.output = output;
 *   size_t bytes = attn_workspace_bytes(&call, NULL);
 *   attn_status status = attn_forward(&call, malloc(bytes), bytes, NULL);
 *   if (status != ATTN_OK) puts(attn_status_text(status));
 */
#ifndef ATTN_C_H
#define ATTN_C_H

#include <attn/export.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t attn_element;
enum { ATTN_F32 = 0, ATTN_F64 = 1, ATTN_BF16 = 2, ATTN_F16 = 3 };

typedef int32_t attn_status;
enum {
  ATTN_OK = 0,
  ATTN_NEGATIVE_SIZE,
  ATTN_HEADS_DO_NOT_DIVIDE,
  ATTN_NULL_POINTER,
  ATTN_BAD_VALUE,
  ATTN_BAD_LENGTH,
  ATTN_SMALL_WORKSPACE,
  ATTN_BAD_ELEMENT,
  ATTN_NULL_SAVED,
  ATTN_FAILED,
  ATTN_SIZE_LEFT_OUT,
  ATTN_STRIDE_LEFT_OUT,
  ATTN_SHORT_STRIDE,
  ATTN_ALIGNMENT,
  ATTN_TOTALS_LEFT_OUT,
  ATTN_PIECE,
  ATTN_BAD_STRUCT = 100 /* struct_size is not that of this library, or the call is NULL */
};

/* Strides in elements. All 0 means row-major. Otherwise each stride must be given if there is more than one item, head
 * or row, and its magnitude must be at least the width of a row. */
typedef struct attn_strides {
  int64_t batch, head, row;
} attn_strides;

/* Strides of a mask or bias over the scores [B, Hq, Tq, Tk]. The values of attn_attention_init (key INT64_MIN, else 0)
 * mean row-major. With other values a stride of 0 broadcasts. */
typedef struct attn_score_strides {
  int64_t batch, head, row, key;
} attn_score_strides;

/* One call. Call attn_attention_init first: some defaults are not 0. */
typedef struct attn_attention {
  size_t struct_size;                       /* set by attn_attention_init */
  int64_t batch, q_heads, k_heads, v_heads; /* default 1 each; k_heads and v_heads each divide q_heads */
  int64_t q_rows, k_rows, dim, value_dim;
  attn_element element; /* of q, k, v, output; the compute type is f64 for f64, else f32 */
  int32_t causal;       /* not 0: a row sees no later key */
  int32_t bottom_right; /* not 0: the last row is aligned to the last key */
  /* not 0: row 0 is aligned to key 0. If q_rows != k_rows, causal and windows need one of both, or query_start */
  int32_t top_left;

  const void *q, *k, *v;
  void* output;    /* must not overlap k or v */
  void* logsumexp; /* [B, Hq, Tq], compute type; or NULL */
  void *max, *sum; /* [B, Hq, Tq], compute type: needed by the backward pass; or NULL */
  attn_strides q_strides, k_strides, v_strides, output_strides;

  double scale;       /* NaN: 1 / sqrt(dim) */
  double softcap;     /* 0: off */
  double temperature; /* default 1 */
  const void* sinks;  /* [Hq], compute type; or NULL */

  int64_t window_left, window_right; /* keys before and after the row's position; -1: no limit */
  const uint8_t* mask;               /* not 0: the pair takes part; or NULL */
  attn_score_strides mask_strides;
  const void* bias; /* added to the scores; or NULL */
  attn_score_strides bias_strides;
  attn_element bias_element;
  int32_t reserved; /* 0 */

  const int64_t *query_lengths, *key_lengths, *key_start, *query_start; /* [B] each; or NULL */

  /* Keys in pieces (<attn/plain.h>): the rows' totals, [B, Hq, Tq], [B, Hq, Tq] and [B, Hq, Tq, Dv], compute type.
   * A call that does not begin (0) reads them; one that does not end (0) writes them and no results. */
  void *totals_max, *totals_sum, *totals_output;
  int32_t begins, ends;   /* default 1 each */
  int64_t first_key;      /* the position of key 0, a multiple of 1024 */
  int64_t row_block_step; /* default 64: from a block of 64 rows to the next, in positions */
} attn_attention;

/* The backward pass of a call. `forward.output`, `max` and `sum` must hold its results. Call attn_backward_init
 * first. */
typedef struct attn_attention_backward {
  size_t struct_size;     /* set by attn_backward_init */
  attn_attention forward; /* the forward call: f32, f64, or bf16 if the processor has a bf16 dot product */
  const void* doutput;    /* the incoming gradient, shaped as output */
  const void* dlogsumexp; /* [B, Hq, Tq]; or NULL */
  void *dq, *dk, *dv;     /* shaped as q, k, v; dk or dv NULL: not computed */
  attn_strides doutput_strides, dq_strides, dk_strides, dv_strides;
  void* dsinks; /* [Hq]; or NULL */
  /* Compute type, or NULL. The gradient is added to its elements; bias_strides address them, and a stride of 0 sums. */
  void* dbias;
  /* Keys or rows in pieces (<attn/plain.h>); or NULL. */
  void *dq_totals, *delta, *key_totals;
} attn_attention_backward;

/* The caller's threads: `run` calls part(part_context, 0) ... part(part_context, parts - 1), each once, in any order,
 * on up to `threads` threads at a time, and returns when all are done. `run` NULL, or no executor: the library's own
 * pool. */
typedef struct attn_executor {
  void (*run)(void* context, int64_t parts, void (*part)(void* part_context, int64_t index), void* part_context);
  void* context;
  int32_t threads;
} attn_executor;

/* Sets the defaults; struct_size is sizeof of the struct. ATTN_BAD_STRUCT if this library has another size. */
ATTN_API attn_status attn_attention_init(attn_attention* call, size_t struct_size);
ATTN_API attn_status attn_backward_init(attn_attention_backward* call, size_t struct_size);

/* Returns the bytes of workspace, at any alignment; 0 for ATTN_BAD_STRUCT. `executor` may be NULL. */
ATTN_API size_t attn_workspace_bytes(const attn_attention* call, const attn_executor* executor);
ATTN_API size_t attn_backward_workspace_bytes(const attn_attention_backward* call, const attn_executor* executor);
/* Returns the bytes of key_totals: 0 in f32 and f64. */
ATTN_API size_t attn_key_totals_bytes(const attn_attention_backward* call);

/* Compute the forward and the backward pass. They write nothing unless they return ATTN_OK. Thread-safe for different
 * outputs and workspaces. */
ATTN_API attn_status attn_forward(const attn_attention* call, void* workspace, size_t bytes,
                                  const attn_executor* executor);
ATTN_API attn_status attn_backward(const attn_attention_backward* call, void* workspace, size_t bytes,
                                   const attn_executor* executor);

/* Returns one line: "plain::attention: k_heads and v_heads must each divide q_heads". */
ATTN_API const char* attn_status_text(attn_status status);
/* Returns "0.1.0". */
ATTN_API const char* attn_version(void);

#ifdef __cplusplus
}
#endif

#endif
