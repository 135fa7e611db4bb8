// src/explain/mechanism.h: builds the steps of a mechanism that `explain` does not run. Its texts stand beside the
// steps, in both languages, so that a program that explains softmax attention alone does not carry them.
#pragma once
#include "explain/random_parameters.h"
#include "explain/tokens.h"

#include <attn/explain_mechanisms.h>
#include <attn/random.h>

#include <span>
#include <string_view>
#include <vector>

namespace attn::explain_detail {

/// A text in each language.
struct Said {
  const char *en, *zh;
};

class Mechanism {
 public:
  using Kind = ExplainStep::Kind;
  using Operation = ExplainStep::Operation;

  /// Takes the steps of an explanation up to the step `last`, and the parameters named. `text` and `options` as in
  /// explain.
  Mechanism(const std::string& text, const ExplainOptions& options, const char* last,
            const std::vector<std::string>& parameters);

  struct What {
    const char* name;
    Said title;
    std::string formula;
    Said note;
    Operation operation = {};
    std::string source = {};
  };
  /// Adds a step. `values`: [.., rows, columns]; leading dims of one are left out. `rows`: labels; empty: the tokens.
  ExplainStep& add(Kind kind, const What& what, const Tensor& values, std::vector<std::string> rows = {});
  /// Adds a matrix that a model would have learned, [heads, rows, columns] or [rows, columns].
  void add_parameter(const char* name, const char* title, const Tensor& values);

  /// Draws rand(sizes) from the generator of these matrices.
  Tensor drawn(const Dims& sizes);
  std::string source(const std::string& what) const;
  std::string say(const Said& text) const { return result.language == Language::zh ? text.zh : text.en; }
  /// The values of a step as [1, H, rows, columns].
  Tensor values_of(const std::string& step) const;

  const ExplainOptions& options;
  Explanation result;

 private:
  Generator generator_;
};

/// Throws a ValueError that names an option which the mechanism does not have: the first that is given.
struct NotThere {
  const char* option;
  bool given;
};
void refuse_options(const char* mechanism, std::span<const NotThere> options);
/// The same for every option of an explanation beyond text, sizes, seed and matrices, but those in `has`.
void refuse_options_but(const std::vector<std::string_view>& has, const char* mechanism, const ExplainOptions& given);

/// Labels such as "k 1", "k 2".
std::vector<std::string> numbered(const char* name, std::int64_t count);

}  // namespace attn::explain_detail
