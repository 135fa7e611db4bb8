// fuzz/einsum.cc: runs einsum equations on integers, whose sums are exact: operands in another order must give the same
// result.
#include "fuzz.h"

#include <algorithm>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  const Dtype dtype = in.pick({Dtype::f64, Dtype::i64, Dtype::f32, Dtype::boolean, Dtype::bf16});
  std::vector<Tensor> operands(static_cast<std::size_t>(in.below(4)));
  for (Tensor& operand : operands) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(in.below(5)));
    for (std::int64_t& rows : sizes) rows = in.below(4);
    operand = randint(0, 2, Dims(sizes)).to(dtype);
  }
  const std::string equation = in.rest();
  if (equation.size() > 60) return -1;
  Tensor result, turned;
  if (!answers([&] { result = einsum(equation, operands); })) return 0;
  const std::size_t arrow = std::min(equation.find("->"), equation.size());
  std::string reversed;  // the subscripts of the operands, from last to first
  for (std::size_t end = arrow; end != std::string::npos;) {
    const std::size_t comma = end == 0 ? std::string::npos : equation.rfind(',', end - 1);
    reversed += (end == arrow ? "" : ",") + equation.substr(comma + 1, end - comma - 1);
    end = comma;
  }
  std::reverse(operands.begin(), operands.end());
  check(answers([&] { turned = einsum(reversed + equation.substr(arrow), operands); }),
        "not understood with its operands turned: " + equation);
  check(turned.sizes() == result.sizes() && all(eq(turned, result)),
        "another result with its operands turned: " + equation);
  return 0;
}
