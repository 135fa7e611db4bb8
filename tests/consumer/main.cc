// tests/consumer/main.cc: what a stranger's program does with attn: one attention whose result is known, and a caught
// mistake.
#include <attn/attn.h>

#include <cstdio>

int main() {
  // Two equal keys: each weight is 1/2, so the output is the mean of the values.
  const attn::Tensor q = attn::tensor<float>({1, 2}, {1, 2});
  const attn::Tensor k = attn::tensor<float>({3, 4, 3, 4}, {2, 2});
  const attn::Tensor v = attn::tensor<float>({1, 10, 3, 30}, {2, 2});
  const attn::Tensor output = attn::attention(q, k, v).output;
  if (output.to_vector() != std::vector<double>{2, 20}) {
    std::printf("wrong output: %s\n", output.to_string().c_str());
    return 1;
  }
  try {
    attn::attention(q, k, attn::tensor<float>({1, 2, 3}, {1, 3}));
    std::puts("a value of another length was accepted");
    return 1;
  } catch (const attn::ShapeError&) { std::printf("attn %s\n", attn::version().c_str()); }
}
