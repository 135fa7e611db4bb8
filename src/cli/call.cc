// src/cli/call.cc: names and words of a file as the library's options.
#include "cli/call.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/ops.h>

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>

namespace attn::cli {
namespace {

class Reader {
 public:
  explicit Reader(const Call& call) : call_(call) {}

  Tensor tensor(const std::string& name) const {
    const auto found = call_.tensors.find(name);
    return found == call_.tensors.end() ? Tensor() : found->second;
  }
  Tensor needed(const std::string& name) const {
    const Tensor result = tensor(name);
    if (!result.defined()) throw ValueError(fmt::format("run: {} is missing; a call needs q, k and v", name));
    return result;
  }
  const std::string* setting(const std::string& name) const {
    const auto found = call_.settings.find(name);
    return found == call_.settings.end() ? nullptr : &found->second;
  }
  double number(const std::string& name, double otherwise) const {
    const std::string* text = setting(name);
    if (text == nullptr) return otherwise;
    char* end = nullptr;
    const double value = std::strtod(text->c_str(), &end);
    if (text->empty() || *end != '\0') throw ValueError(fmt::format("run: {} is \"{}\"; it must be a number", name, *text));
    return value;
  }
  bool flag(const std::string& name) const {
    const std::string* text = setting(name);
    return text != nullptr && choose(name, *text, {"false", "true", "False", "True", "0", "1"}) % 2 == 1;
  }

 private:
  const Call& call_;
};

Mask mask_of(const Reader& reader) {
  Mask mask;
  const auto join = [&](const Mask& more) { mask = mask.is_all() ? more : mask & more; };
  if (reader.flag("causal")) join(Mask::causal());
  if (const std::string* text = reader.setting("mask")) join(Mask::parse(*text));
  if (const Tensor allowed = reader.tensor("attend")) join(Mask::attend(allowed));
  if (const Tensor blocked = reader.tensor("block")) join(Mask::block(blocked));
  if (const Tensor padding = reader.tensor("key_padding")) join(Mask::key_padding(padding));
  return mask;
}

Score score_of(const Reader& reader) {
  const std::string* name = reader.setting("score");
  switch (name == nullptr ? 0 : choose("score", *name, {"scaled_dot", "dot", "general", "additive"})) {
    case 1: return Score::dot();
    case 2: {
      if (!reader.tensor("w").defined()) throw ValueError("run: the general score needs w [D, Dk]");
      return Score::general(reader.tensor("w"));
    }
    case 3: {
      for (const char* matrix : {"w_q", "w_k", "w"})
        if (!reader.tensor(matrix).defined())
          throw ValueError(fmt::format("run: the additive score needs w_q, w_k and w; {} is missing", matrix));
      return Score::additive(reader.tensor("w_q"), reader.tensor("w_k"), reader.tensor("w"));
    }
    default: return Score::scaled_dot();
  }
}

}  // namespace

Weights weights_of(const std::string& text) {
  const std::size_t open = text.find('(');
  const auto kind = choose("weights", text.substr(0, open), {"none", "full", "head_average", "column_sums", "rows", "top_k"});
  const bool listed = kind > Weights::column_sums;
  if (listed != (open != std::string::npos && text.ends_with(')')))
    throw UsageError{fmt::format("weights: \"{}\"; rows take their numbers, rows(0, 5), top_k how many, top_k(3), the others nothing", text)};
  if (!listed) return static_cast<Weights::Kind>(kind);
  std::vector<std::int64_t> numbers;
  std::istringstream list(text.substr(open + 1, text.size() - open - 2));
  for (std::string word; std::getline(list, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    if (const std::string wrong = whole_number(word); !wrong.empty()) throw UsageError{fmt::format("weights: {}: a number {}", text, wrong)};
    numbers.push_back(std::stoll(word));
  }
  if (kind == Weights::row_subset) return Weights::rows(tensor<std::int64_t>(numbers));
  if (numbers.size() != 1) throw UsageError{fmt::format("weights: \"{}\"; top_k takes one number", text)};
  return Weights::top_k(numbers[0]);
}

AttentionCall to_attention(const Call& call) {
  check_tables(call);
  const Reader reader(call);
  AttentionCall result{reader.needed("q"), reader.needed("k"), reader.needed("v"), {}};
  AttentionOptions& options = result.options;
  options.score = score_of(reader);
  if (reader.setting("scale")) options.scale = reader.number("scale", 1);
  options.mask = mask_of(reader);
  if (const Tensor bias = reader.tensor("bias")) options.bias = options.bias + Bias::dense(bias);
  if (const Tensor slopes = reader.tensor("alibi_slopes")) options.bias = options.bias + Bias::alibi(slopes);
  if (const std::string* text = reader.setting("score_mod")) options.score_mod = ScoreExpression::parse(*text, {call.tables.begin(), call.tables.end()});
  options.softcap = reader.number("softcap", 0);
  options.temperature = reader.number("temperature", 1);
  options.sinks = reader.tensor("sinks");
  options.query_lengths = reader.tensor("query_lengths");
  options.key_lengths = reader.tensor("key_lengths");
  options.key_start = reader.tensor("key_start");
  options.query_start = reader.tensor("query_start");
  if (const std::string* weights = reader.setting("weights"))
    options.weights = weights_of(*weights);
  if (const std::string* name = reader.setting("dtype")) {
    const Dtype dtype = dtype_from_name(*name);
    for (Tensor* tensor : {&result.q, &result.k, &result.v, &options.score.w_q, &options.score.w_k, &options.score.w})
      if (tensor->defined()) *tensor = tensor->to(dtype);
  }
  return result;
}

}  // namespace attn::cli
