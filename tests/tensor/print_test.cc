// tests/tensor/print_test.cc: every printed case of PyTorch, character for character.
#include "support/errors.h"
#include "support/golden.h"
#include "tensor/record.h"

#include <limits>
#include <sstream>

namespace attn::testing {
namespace {

/// The tensor as the case made it: a leaf, the result of the named operation on one, or what says so.
Tensor made_by(const nlohmann::json& entry) {
  const std::string op = entry.value("op", "");
  Tensor x = golden_tensor(entry.at("values"), Dims(entry.at("shape").get<std::vector<std::int64_t>>()),
                           dtype_from_name(entry.at("dtype").get<std::string>()));
  if (op == "t") {  // the values are those of the transposed view
    Tensor leaf = x.t().clone();
    return leaf.requires_grad_().t();
  }
  if (op == "neg") x = neg(x);
  if (entry.value("requires_grad", false) || !op.empty()) x.requires_grad_();
  if (op == "mul") return x * 1.0;
  if (op == "add") return x + 0.0;
  if (op == "neg") return neg(x);
  if (entry.contains("grad_fn")) {
    const Tensor leaf = zeros({}).requires_grad_();
    return record(entry.at("grad_fn").get_ref<const std::string&>().c_str(), x, wrt(leaf, [](auto& dy) { return dy; }));
  }
  return x;
}

TEST(Print, IsWhatTorchPrints) {
  const auto& cases = golden("torch_print.json").at("cases");
  ASSERT_GE(cases.size(), 100u);
  for (const auto& entry : cases) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    PrintOptions options;
    if (entry.contains("options")) {
      const auto& given = entry.at("options");
      options.precision = given.value("precision", options.precision);
      options.threshold = given.value("threshold", options.threshold);
      options.edge_items = given.value("edgeitems", options.edge_items);
      options.line_width = given.value("linewidth", options.line_width);
    }
    EXPECT_EQ(attn::to_string(made_by(entry), options), entry.at("text").get<std::string>());
  }
}

TEST(Print, GoesToStreams) {
  std::ostringstream out;
  out << tensor<float>({1, 2.5f});
  EXPECT_EQ(out.str(), "tensor([1.0000, 2.5000])");
  EXPECT_EQ(tensor<float>({1}).to_string(), "tensor([1.])");
}

TEST(Print, ShapesAndDtypesGoToStreams) {
  std::ostringstream out;
  const Tensor x = zeros({2, 3}, Dtype::bf16);
  out << x.sizes() << " " << x.strides() << " " << Dims{} << " " << x.dtype() << " " << Tensor();
  EXPECT_EQ(out.str(), "[2, 3] [3, 1] [] bf16 tensor(undefined)");
}

TEST(Print, StridesDoNotMatter) {
  const Tensor x = arange(24).reshape({2, 3, 4});
  EXPECT_EQ(x.permute({2, 0, 1}).to_string(), x.permute({2, 0, 1}).contiguous().to_string());
  EXPECT_EQ(Tensor().to_string(), "tensor(undefined)");
}

TEST(Print, OptionsWithoutSenseAreErrorsAndLargeOnesNoLimit) {
  constexpr int most = std::numeric_limits<int>::max(), least = std::numeric_limits<int>::min();
  const Tensor x = arange(40.0f).reshape({20, 2});
  const std::string all = to_string(x, {.threshold = most});
  for (const int edge : {20, 1 << 30, (1 << 30) + 1, most})
    EXPECT_EQ(to_string(x, {.threshold = 0, .edge_items = edge}), all) << edge;
  EXPECT_EQ(to_string(tensor<float>({1, 2}), {.line_width = most}), "tensor([1., 2.])");
  for (const PrintOptions& wrong : {PrintOptions{.precision = -1}, PrintOptions{.threshold = least},
                                    PrintOptions{.edge_items = -1}, PrintOptions{.line_width = least}})
    EXPECT_NE(error_of<ValueError>([&] { to_string(x, wrong); }).find("; it must be at least 0"), std::string::npos);
  EXPECT_EQ(error_of<ValueError>([&] { to_string(x, {.precision = most}); }),
            "to_string: precision is 2147483647; it must be at most 1000");
  EXPECT_FALSE(to_string(x, {.precision = 0, .threshold = 0, .edge_items = 0, .line_width = 0}).empty());
}

}  // namespace
}  // namespace attn::testing
