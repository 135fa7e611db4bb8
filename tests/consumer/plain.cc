// tests/consumer/plain.cc: a C++17 program without exceptions that uses attention on raw pointers.
#include <attn/plain.h>

#include <cstddef>
#include <cstdio>
#include <vector>

int main() {
  const float q[2] = {1, 2}, k[4] = {3, 4, 3, 4}, v[4] = {1, 10, 3, 30};
  float output[2] = {0, 0};
  attn::plain::Attention call;
  call.q_rows = 1, call.k_rows = 2, call.dim = call.value_dim = 2;
  call.q = q, call.k = k, call.v = v, call.output = output;
  std::vector<std::byte> workspace(attn::plain::workspace_bytes(call));
  const attn::plain::Status status = attn::plain::attention(call, workspace.data(), workspace.size());
  if (status != attn::plain::Status::ok || output[0] < 2 || output[0] > 2 || output[1] < 20 || output[1] > 20) {
    std::printf("%s; output %g %g, it must be 2 20\n", attn::plain::text_of(status), double{output[0]},
                double{output[1]});
    return 1;
  }
  call.k_heads = 3;
  const attn::plain::Status wrong = attn::plain::attention(call, workspace.data(), workspace.size());
  std::printf("C++17 without exceptions: %s\n", attn::plain::text_of(wrong));
  return wrong == attn::plain::Status::heads_do_not_divide ? 0 : 1;
}
