// tests/tutorials/examples_test.cc: the example programs print what the tutorials print, in their order and to their
// digits.
#include "support/tutorial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#ifdef ATTN_EXAMPLES_DIR
namespace attn::testing {
namespace {

std::string output_of(const std::string& program) {
  const std::string command = ATTN_EXAMPLES_DIR "/" + program + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start " + program);
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t read; (read = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), read);
  EXPECT_EQ(pclose(pipe), 0) << text;
  return text;
}

/// One "tensor(...)" of a text.
struct Printed {
  Tensor values;
  std::string suffix;  // "grad_fn=<MmBackward0>"
};

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  std::vector<Printed> all() {
    std::vector<Printed> found;
    while ((at_ = text_.find("tensor(", at_)) != std::string::npos) {
      at_ += 7;
      found.push_back(one());
    }
    return found;
  }

 private:
  Printed one() {
    values_.clear();
    sizes_ = {};
    element(0);
    const std::size_t end = text_.find(')', at_);
    std::string suffix = text_.substr(at_, end - at_);
    std::erase_if(suffix, [](char c) { return c == ' ' || c == '\n' || c == ','; });
    return {tensor<double>(values_, sizes_), suffix};
  }

  /// A number, or a list of elements; `depth` lists are open. The first list of each depth says how long all are.
  void element(int depth) {
    skip();
    if (text_[at_] != '[') return number();
    if (depth == sizes_.size()) sizes_.push_back(0);
    const bool is_first = sizes_[depth] == 0;
    do {
      ++at_;  // the bracket, or the comma
      element(depth + 1);
      if (is_first) ++sizes_[depth];
      skip();
    } while (text_[at_] == ',');
    ++at_;  // the closing bracket
  }

  void number() {
    for (const auto& [word, value] : {std::pair("True", 1.0), std::pair("False", 0.0)})
      if (text_.compare(at_, std::string(word).size(), word) == 0) {
        at_ += std::string(word).size();
        values_.push_back(value);
        return;
      }
    char* end = nullptr;
    values_.push_back(std::strtod(text_.c_str() + at_, &end));  // "-inf" and "nan" included
    const auto next = static_cast<std::size_t>(end - text_.c_str());
    if (next == at_) throw std::runtime_error("not a number: " + text_.substr(at_, 40));
    at_ = next;
  }

  void skip() { at_ = std::min(text_.size(), text_.find_first_not_of(" \n", at_)); }

  const std::string& text_;
  std::size_t at_ = 0;
  std::vector<double> values_;
  Dims sizes_;
};

/// The tutorial's numbers are among what the program prints, in this order; more may stand between them.
void expect_prints(const std::string& program, const std::string& number, const std::vector<std::string>& steps) {
  const Tutorial g(number);
  const std::string text = output_of(program);
  const std::vector<Printed> printed = Reader(text).all();
  std::size_t next = 0;
  for (const std::string& step : steps) {
    const Tensor expected = g(step).to(Dtype::f64);
    ::testing::AssertionResult same = ::testing::AssertionFailure() << "nothing is left";
    std::size_t found = next;
    while (found < printed.size() && !(same = prints_as(expected, printed[found].values, 5.2e-5))) ++found;
    if (!same) {
      ADD_FAILURE() << program << " does not print " << step << " after tensor " << next << ": " << same.message()
                    << "\n"
                    << g(step).to_string();
      continue;
    }
    next = found + 1;
  }
  for (const std::string& step : g.printed())
    EXPECT_NE(std::ranges::count(steps, step), 0)
        << "the tutorial prints " << step << ", which is not looked for in " << program;
}

TEST(Examples, SelfAttention) {
  expect_prints("self_attention", "000",
                {"token_indices",
                 "embedded_sentence",
                 "queries",
                 "query_2",
                 "queries",
                 "keys",
                 "values",
                 "omega_24",
                 "omega_2",
                 "attention_weights_2",
                 "context_vector_2",
                 "self_attention",
                 "self_attention_dv1",
                 "multi_head_4",
                 "embedded_sentence",
                 "second_sequence",
                 "cross_attention",
                 "attention_scores",
                 "attention_weights",
                 "tril_mask",
                 "masked_weights",
                 "masked_weights_renormalized",
                 "causal_values",
                 "causal_context",
                 "triu_mask",
                 "masked_scores",
                 "masked_scores_softmax",
                 "masked_scores_softmax_scaled"});
}

TEST(Examples, AttentionScores) {
  expect_prints("attention_scores", "001",
                {"additive_score",
                 "dot_score",
                 "self_attention_score",
                 "attn_score",
                 "masked_score",
                 "attn_weights",
                 "context",
                 "output",
                 "in_proj_weight",
                 "in_proj_bias",
                 "out_proj_weight",
                 "out_proj_bias",
                 "keep_mask",
                 "torch_output_attn_mask",
                 "torch_weights_attn_mask",
                 "torch_output_key_padding_mask",
                 "torch_weights_key_padding_mask",
                 "attention_class_output",
                 "attention_class_weights",
                 "split_heads",
                 "mha2_torch_weights",
                 "own_weights_first",
                 "mha2_torch_output",
                 "own_output_first",
                 "mha2_torch_weights",
                 "mha2_own_weights",
                 "mha2_torch_output",
                 "mha2_own_output"});
}

TEST(Examples, PrefixMeans) {
  expect_prints("prefix_means", "002",
                {"x", "xbow_0", "a", "prefix_mean_weights", "xbow2", "softmax_of_masked_zeros", "xbow3", "scores_0",
                 "causal_weights_0", "var_k", "var_q", "var_wei", "logits", "softmax_logits", "softmax_10_logits",
                 "cell47_out_as_written_0", "cell47_out_corrected_0"});
}

TEST(Examples, EinsumHeads) {
  expect_prints("einsum_heads", "003",
                {"self_output", "self_padding_output", "self_causal_output", "self_padding_causal_output",
                 "self_fully_masked_output", "cross_output", "cross_padding_output", "cross_memory_output",
                 "cross_padding_memory_output", "base_qkv_output"});
}

TEST(Examples, SixteenDimensions) {
  expect_prints("sixteen_dimensions", "004",
                {"token_indices", "embedded_sentence", "omega_24", "omega_2", "attention_weights_2", "context_vector_2",
                 "multihead_omega_2", "multihead_attention_weights_2", "multihead_context_vector_2", "cross_omega_2",
                 "cross_attention_weights_2", "cross_context_vector_2"});
}

TEST(Examples, ImportanceRatio) {
  const std::string text = output_of("importance_ratio");
  EXPECT_NE(text.find("importance ratios that are exactly 1.0: 60 of 60\n"), std::string::npos) << text;
  EXPECT_NE(text.find("their mean is above 1\n"), std::string::npos) << text;
}

/// What torch writes behind the numbers: the operation that made them.
TEST(Examples, NameTheOperationAsTorchDoes) {
  const std::string text = output_of("self_attention");
  std::vector<std::string> suffixes;
  for (const Printed& printed : Reader(text).all())  // grad_fn=<MmBackward0>: Mm
    suffixes.push_back(printed.suffix.empty() ? "" : printed.suffix.substr(9, printed.suffix.find("Backward") - 9));
  const std::vector<std::string> torchs = {
      "",   "",        "Mm",  "Squeeze", "Mm",  "Mm", "Mm", "Dot", "Squeeze",    "Softmax", "Squeeze",  // one query
      "Mm", "Mm",      "Cat", "",        "",    "Mm",                                                   // modules
      "Mm", "Softmax", "",    "Mul",     "Div", "Mm", "Mm", "",    "MaskedFill", "Softmax"};            // causal
  ASSERT_GE(suffixes.size(), torchs.size());
  suffixes.resize(torchs.size());
  EXPECT_EQ(suffixes, torchs);
}

}  // namespace
}  // namespace attn::testing
#endif
