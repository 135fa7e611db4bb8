// src/attention/plain/c.cc: implements the C header by calls of plain.h.
#include <attn/c.h>
#include <attn/plain.h>

#include <cmath>
#include <limits>

namespace {

namespace plain = attn::plain;

static_assert(ATTN_F16 == static_cast<int>(plain::Element::f16));
static_assert(ATTN_PIECE == static_cast<int>(plain::Status::piece));

/// An invalid C value must stay invalid after narrowing; plain::attention then rejects it.
plain::Element element_of(attn_element element) {
  return static_cast<plain::Element>(element < 0 || element > ATTN_F16 ? UINT8_MAX : element);
}
plain::Strides strides_of(const attn_strides& s) { return {s.batch, s.head, s.row}; }
plain::ScoreStrides strides_of(const attn_score_strides& s) { return {s.batch, s.head, s.row, s.key}; }

plain::Attention call_of(const attn_attention& c) {
  plain::Attention call;
  call.batch = c.batch, call.q_heads = c.q_heads, call.k_heads = c.k_heads, call.v_heads = c.v_heads;
  call.q_rows = c.q_rows, call.k_rows = c.k_rows, call.dim = c.dim, call.value_dim = c.value_dim;
  call.element = element_of(c.element);
  call.q = c.q, call.k = c.k, call.v = c.v, call.output = c.output;
  call.logsumexp = c.logsumexp, call.max = c.max, call.sum = c.sum;
  call.q_strides = strides_of(c.q_strides), call.k_strides = strides_of(c.k_strides);
  call.v_strides = strides_of(c.v_strides), call.output_strides = strides_of(c.output_strides);
  if (!std::isnan(c.scale)) call.scale = c.scale;
  call.softcap = c.softcap, call.temperature = c.temperature, call.sinks = c.sinks;
  call.causal = c.causal != 0, call.bottom_right = c.bottom_right != 0, call.top_left = c.top_left != 0;
  call.window_left = c.window_left, call.window_right = c.window_right;
  call.mask = c.mask, call.mask_strides = strides_of(c.mask_strides);
  call.bias = c.bias, call.bias_element = element_of(c.bias_element), call.bias_strides = strides_of(c.bias_strides);
  call.query_lengths = c.query_lengths, call.key_lengths = c.key_lengths;
  call.key_start = c.key_start, call.query_start = c.query_start;
  call.totals = {c.totals_max, c.totals_sum, c.totals_output};
  call.begins = c.begins != 0, call.ends = c.ends != 0;
  call.first_key = c.first_key, call.row_block_step = c.row_block_step;
  return call;
}

plain::AttentionBackward call_of(const attn_attention_backward& c) {
  plain::AttentionBackward call;
  call.forward = call_of(c.forward);
  call.doutput = c.doutput, call.dlogsumexp = c.dlogsumexp;
  call.dq = c.dq, call.dk = c.dk, call.dv = c.dv, call.dsinks = c.dsinks, call.dbias = c.dbias;
  call.doutput_strides = strides_of(c.doutput_strides), call.dq_strides = strides_of(c.dq_strides);
  call.dk_strides = strides_of(c.dk_strides), call.dv_strides = strides_of(c.dv_strides);
  call.dq_totals = c.dq_totals, call.delta = c.delta, call.key_totals = c.key_totals;
  return call;
}

plain::Executor executor_of(const attn_executor* e) {
  return e == nullptr ? plain::Executor{} : plain::Executor{e->run, e->context, e->threads};
}

bool known(const attn_attention* call) { return call != nullptr && call->struct_size == sizeof(attn_attention); }
bool known(const attn_attention_backward* call) {
  return call != nullptr && call->struct_size == sizeof(attn_attention_backward) && known(&call->forward);
}

}  // namespace

attn_status attn_attention_init(attn_attention* call, size_t struct_size) {
  if (call == nullptr || struct_size != sizeof(attn_attention)) return ATTN_BAD_STRUCT;
  *call = {};
  call->struct_size = struct_size;
  call->batch = call->q_heads = call->k_heads = call->v_heads = 1;
  call->scale = std::numeric_limits<double>::quiet_NaN();
  call->temperature = 1;
  call->window_left = call->window_right = -1;
  call->begins = call->ends = 1;
  call->row_block_step = 64;
  call->mask_strides.key = call->bias_strides.key = plain::ScoreStrides::neighbours;
  return ATTN_OK;
}

attn_status attn_backward_init(attn_attention_backward* call, size_t struct_size) {
  if (call == nullptr || struct_size != sizeof(attn_attention_backward)) return ATTN_BAD_STRUCT;
  *call = {};
  call->struct_size = struct_size;
  return attn_attention_init(&call->forward, sizeof call->forward);
}

size_t attn_workspace_bytes(const attn_attention* call, const attn_executor* executor) {
  return known(call) ? plain::workspace_bytes(call_of(*call), executor_of(executor)) : 0;
}
size_t attn_backward_workspace_bytes(const attn_attention_backward* call, const attn_executor* executor) {
  return known(call) ? plain::workspace_bytes(call_of(*call), executor_of(executor)) : 0;
}
size_t attn_key_totals_bytes(const attn_attention_backward* call) {
  return known(call) ? plain::key_totals_bytes(call_of(*call)) : 0;
}

attn_status attn_forward(const attn_attention* call, void* workspace, size_t bytes, const attn_executor* executor) {
  if (!known(call)) return ATTN_BAD_STRUCT;
  return static_cast<attn_status>(plain::attention(call_of(*call), workspace, bytes, executor_of(executor)));
}
attn_status attn_backward(const attn_attention_backward* call, void* workspace, size_t bytes,
                          const attn_executor* executor) {
  if (!known(call)) return ATTN_BAD_STRUCT;
  return static_cast<attn_status>(plain::attention_backward(call_of(*call), workspace, bytes, executor_of(executor)));
}

const char* attn_status_text(attn_status status) {
  if (status == ATTN_BAD_STRUCT) return "attn: the call is NULL or of another size; begin with attn_attention_init";
  if (status < 0 || status > ATTN_PIECE) return "attn: no status has this number";
  return plain::text_of(static_cast<plain::Status>(status));
}

const char* attn_version(void) { return ATTN_VERSION; }
