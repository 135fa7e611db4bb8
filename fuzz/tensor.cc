// fuzz/tensor.cc: runs random programs on tensors (views, changes in place, sums, gradients): each step works or throws
// an error with a reason.
#include "operations.h"

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  manual_seed(1);
  std::vector<Tensor> all{randn({2, 3}),
                          arange(6).reshape({3, 2}),
                          full({}, 2.0, Dtype::f64),
                          zeros({0, 3}),
                          randn({2, 3, 4}).to(Dtype::bf16),
                          lt(rand({3}), 0.5),
                          randn({3, 1}).requires_grad_()};
  for (int step = 0; step < 30 && !in.empty(); ++step)
    answers([&] {
      const auto any = [&] { return all[static_cast<std::size_t>(in.below(static_cast<int>(all.size())))]; };
      const Tensor a = any(), made = operation(in, a, any());
      if (made.numel() > 5000) return;
      const PrintOptions print{.precision = static_cast<int>(in.below(9)),
                               .threshold = in.below(30),
                               .edge_items = static_cast<int>(in.below(4))};
      check_clean(to_string(made, print), /*lines=*/true);
      check(same_bits(made, made.clone()) && same_bits(made.contiguous(), made), "a copy is another tensor");
      all.push_back(made);
      if (in.below(6) == 0) made.sum().backward();
    });
  return 0;
}
