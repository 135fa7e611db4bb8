// src/cli/call.cc: converts the tensors and settings of a file to the library's options.
#include "cli/call.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/ops.h>

#include "explain/options.h"

#include "runtime/format.h"

#include <cstdlib>

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
    if (!result.defined()) throw ValueError(runtime::format("run: {} is missing; a call needs q, k and v", name));
    return result;
  }
  const std::string* setting(const std::string& name) const {
    const auto found = call_.settings.find(name);
    return found == call_.settings.end() ? nullptr : &found->second;
  }
  bool is_option(const std::string& name) const { return call_.options.contains(name); }
  /// Calls read(name, text) for a setting. If the text cannot be parsed, that is a usage error (exit 2) if the text
  /// comes from the command line, else an error of the file (exit 1).
  template <typename F>
  auto read(const std::string& name, F read) const {
    const auto option = call_.options.find(name);
    if (option != call_.options.end()) return read(option->second, *setting(name));
    try {
      return read(name, *setting(name));
    } catch (const UsageError& error) { throw ValueError(runtime::format("run: {}: {}", call_.path, error.text)); }
  }
  double number(const std::string& name, double otherwise) const {
    if (setting(name) == nullptr) return otherwise;
    return read(name, [](const std::string& option, const std::string& text) {
      if (const std::string wrong = cli::number(text); !wrong.empty())
        throw UsageError{runtime::format("{}: {}", option, wrong)};
      return std::strtod(text.c_str(), nullptr);
    });
  }
  bool flag(const std::string& name) const {
    return setting(name) != nullptr && read(name, [](const std::string& option, const std::string& text) {
             return choose(option, text, {"false", "true", "False", "True", "0", "1"}) % 2 == 1;
           });
  }

 private:
  const Call& call_;
};

Mask mask_of(const Reader& reader) {
  Mask mask;
  const auto join = [&](const Mask& more) { mask = mask.is_all() ? more : mask & more; };
  if (reader.flag("causal")) join(Mask::causal());
  if (reader.setting("mask")) join(reader.read("mask", parse_mask));
  if (const Tensor allowed = reader.tensor("attend")) join(Mask::attend(allowed));
  if (const Tensor blocked = reader.tensor("block")) join(Mask::block(blocked));
  if (const Tensor padding = reader.tensor("key_padding")) join(Mask::key_padding(padding));
  const Tensor blocks = reader.tensor("blocks");
  if (blocks.defined() != (reader.setting("block_size") != nullptr))
    throw ValueError("run: blocks, the indices, and block_size go together");
  if (blocks.defined()) {
    const auto [rows, keys] = reader.read("block_size", parse_block_sizes);
    join(Mask::blocks(blocks, rows, keys));
  }
  return mask;
}

/// Throws a ValueError for matrices that the score does not use, because the file was meant for another score. With
/// --score there is no such check: it may choose any score for any file.
void check_matrices(const Reader& reader, const char* score) {
  if (reader.is_option("score")) return;
  for (const char* matrix : {"w_q", "w_k", "w"})
    if (reader.tensor(matrix).defined())
      throw ValueError(runtime::format(
          "run: {} is given, but the score is {}; general takes w, additive w_q, w_k and w", matrix, score));
}

Score score_of(const Reader& reader) {
  const auto kind = [](const std::string& option, const std::string& text) {
    return choose(option, text, {explain_detail::kScores.begin(), explain_detail::kScores.end()});
  };
  const std::size_t chosen = reader.setting("score") == nullptr ? 0 : reader.read("score", kind);
  if (chosen < 2) check_matrices(reader, chosen == 1 ? "dot" : "scaled_dot");
  switch (chosen) {
    case 1: return Score::dot();
    case 2: {
      if (!reader.tensor("w").defined()) throw ValueError("run: the general score needs w [D, Dk]");
      return Score::general(reader.tensor("w"));
    }
    case 3: {
      for (const char* matrix : {"w_q", "w_k", "w"})
        if (!reader.tensor(matrix).defined())
          throw ValueError(runtime::format("run: the additive score needs w_q, w_k and w; {} is missing", matrix));
      return Score::additive(reader.tensor("w_q"), reader.tensor("w_k"), reader.tensor("w"));
    }
    default: return Score::scaled_dot();
  }
}

}  // namespace

AttentionCall to_attention(const Call& call) {
  const Reader reader(call);
  ScoreExpression score_mod;
  if (reader.setting("score_mod"))
    score_mod = reader.read("score_mod", [&](const std::string& option, const std::string& text) {
      return parse_score_mod(option, text, {call.tables.begin(), call.tables.end()});
    });
  ScoreExpression weight_mod;
  if (reader.setting("weight_mod"))
    weight_mod = reader.read("weight_mod", [&](const std::string& option, const std::string& text) {
      return parse_score_mod(option, text, {call.tables.begin(), call.tables.end()});
    });
  check_tables(call);  // after score_mod is parsed: for a misspelt table name that error shows the place
  AttentionCall result{reader.needed("q"), reader.needed("k"), reader.needed("v"), {}};
  AttentionOptions& options = result.options;
  options.score = score_of(reader);
  if (reader.setting("scale")) options.scale = reader.number("scale", 1);
  options.mask = mask_of(reader);
  if (const Tensor bias = reader.tensor("bias")) options.bias = options.bias + Bias::dense(bias);
  if (const Tensor slopes = reader.tensor("alibi_slopes")) options.bias = options.bias + Bias::alibi(slopes);
  options.score_mod = score_mod;
  options.weight_mod = weight_mod;
  if (reader.setting("normalizer")) options.normalizer = reader.read("normalizer", parse_normalizer);
  options.softcap = reader.number("softcap", 0);
  options.temperature = reader.number("temperature", 1);
  options.sinks = reader.tensor("sinks");
  options.query_lengths = reader.tensor("query_lengths");
  options.key_lengths = reader.tensor("key_lengths");
  options.key_start = reader.tensor("key_start");
  options.query_start = reader.tensor("query_start");
  if (reader.setting("weights")) options.weights = reader.read("weights", parse_weights);
  if (reader.setting("dtype")) {
    const Dtype dtype = reader.read("dtype", parse_dtype);
    for (Tensor* tensor : {&result.q, &result.k, &result.v, &options.score.w_q, &options.score.w_k, &options.score.w})
      if (tensor->defined()) *tensor = tensor->to(dtype);
  }
  return result;
}

}  // namespace attn::cli
