/* tests/consumer/call.c: a C program that uses attn: two equal keys share the weight, and a mistake has a text. */
#include <attn/c.h>

#include <stdio.h>
#include <stdlib.h>

int main(void) {
  const float q[2] = {1, 2}, k[4] = {3, 4, 3, 4}, v[4] = {1, 10, 3, 30};
  float output[2] = {0, 0};
  attn_attention call;
  if (attn_attention_init(&call, sizeof call) != ATTN_OK) return 1;
  call.q_rows = 1, call.k_rows = 2, call.dim = call.value_dim = 2;
  call.q = q, call.k = k, call.v = v, call.output = output;
  size_t bytes = attn_workspace_bytes(&call, NULL);
  void* workspace = malloc(bytes);
  attn_status status = attn_forward(&call, workspace, bytes, NULL);
  if (status != ATTN_OK || output[0] != 2 || output[1] != 20) {
    printf("%s; output %g %g, it must be 2 20\n", attn_status_text(status), output[0], output[1]);
    return 1;
  }
  call.k_heads = 3;
  status = attn_forward(&call, workspace, bytes, NULL);
  free(workspace);
  printf("attn %s from C: %s\n", attn_version(), attn_status_text(status));
  return status == ATTN_HEADS_DO_NOT_DIVIDE ? 0 : 1;
}
