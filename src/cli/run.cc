// src/cli/run.cc: implements attn run: computes attention on the tensors of a file.
#include "cli/call.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/safetensors.h>

#include "explain/json_values.h"

#include "runtime/format.h"

#include <memory>
#include <utility>

namespace attn::cli {
namespace {

struct RunArguments {
  std::string file, out;
  std::map<std::string, std::string> settings;  // the settings on the command line, which override those of the file
  std::map<std::string, Option> given;
  bool causal = false, json = false;
};

using Named = std::vector<std::pair<std::string, Tensor>>;

std::string as_json(const Named& tensors, const Plan& plan) {
  std::string result =
      runtime::format("{{\n  \"attn_run\": 1,\n  \"kernel\": {}", explain_detail::json_string(plan.kernel()));
  for (const auto& [name, tensor] : tensors)
    result += runtime::format(",\n  \"{}\": {{\"dtype\": \"{}\", \"shape\": {}, \"values\": {}}}", name,
                              name_of(tensor.dtype()), to_string(tensor.sizes()), explain_detail::json_values(tensor));
  return result + "\n}\n";
}

std::string as_text(const Named& tensors) {
  std::string result;
  for (const auto& [name, tensor] : tensors)
    result +=
        runtime::format("{} {} {}\n{}\n", name, name_of(tensor.dtype()), to_string(tensor.sizes()), tensor.to_string());
  return result;
}

/// Parses those settings of the command line that can be checked before the file is read.
void check_words(const RunArguments& arguments) {
  const auto check = [&](const char* name, auto parse) {
    if (const Option option = arguments.given.at(name); option.given())
      parse(option.name(), arguments.settings.at(name));
  };
  check("mask", parse_mask);
  check("dtype", parse_dtype);
  check("weights", parse_weights);
  check("normalizer", parse_normalizer);
}

void run(const RunArguments& arguments) {
  if (arguments.file.empty()) throw UsageError{"a file is missing: JSON or safetensors with q, k and v"};
  check_words(arguments);
  check_apart("--out", arguments.out, arguments.json);
  Call call = load_call(arguments.file);
  for (const auto& [name, option] : arguments.given) {
    if (!option.given()) continue;
    call.settings[name] = arguments.settings.at(name);
    call.options[name] = option.name();
  }
  if (arguments.causal) call.settings["causal"] = "true";
  const AttentionCall attention_call = to_attention(call);
  const AttentionResult result =
      attention(attention_call.q, attention_call.k, attention_call.v, attention_call.options);
  Named tensors{{"output", result.output}};
  if (result.logsumexp.defined()) tensors.emplace_back("logsumexp", result.logsumexp);
  if (result.weights.defined()) tensors.emplace_back("weights", result.weights);
  if (result.weight_keys.defined()) tensors.emplace_back("weight_keys", result.weight_keys);
  if (arguments.out == standard_stream) {
    const std::vector<std::byte> bytes = safetensors_bytes(tensors);
    return print({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  if (!arguments.out.empty()) save_safetensors(arguments.out, tensors);
  if (arguments.json) return print(as_json(tensors, result.plan));
  if (arguments.out.empty()) print(as_text(tensors));
}

Run add_run_options(Parser parser) {
  auto arguments = std::make_shared<RunArguments>();
  RunArguments& a = *arguments;
  parser.option("FILE", a.file, "JSON or safetensors: q, k, v, and what else the call takes; - is stdin").type_name("");
  const auto setting = [&](const char* option, const char* name, const char* type, const char* text) {
    return a.given[name] = parser.option(option, a.settings[name], text).type_name(type);
  };
  parser.flag("--causal", a.causal, "No row sees a later key");
  setting("--mask", "mask", "EXPRESSION", "causal, window(2, 0), prefix(3), all, none, with & | ~ ( )");
  setting("--block-size", "block_size", "ROWS,KEYS", "Of the mask blocks of FILE; one number: both");
  setting("--score", "score", "NAME", "scaled_dot, dot, general (needs w) or additive (needs w_q, w_k, w)");
  setting("--score-mod", "score_mod", "EXPRESSION",
          "The score as an expression of s, b, h, i, j: s - slope[h] * (i - j), with slope from FILE");
  setting("--normalizer", "normalizer", "NAME",
          "softmax, softmax1, sigmoid(-3), sparsemax, entmax15 or relu_squared(0.1); without a number the usual one");
  setting("--weight-mod", "weight_mod", "EXPRESSION",
          "The weight (s) as an expression of s, b, h, i, j: s * gate[h, j], with gate from FILE");
  setting("--scale", "scale", "X", "Of the scaled dot product; 1 / sqrt(D) without it").check(number);
  setting("--softcap", "softcap", "X", "Scores become X tanh(score / X)").check(number);
  setting("--temperature", "temperature", "X", "Scores are divided by it").check(number);
  setting("--return-weights", "weights", "NAME", "full, head_average, column_sums, rows(0, 5), top_k(3)");
  setting("--dtype", "dtype", "NAME", "q, k, v are converted: f32, f64, bf16, f16");
  parser.flag("--json", a.json, "The result as JSON, in full precision");
  parser.option("--out", a.out, "The result into a safetensors file; - is stdout").type_name("FILE").check(file_name);
  parser.footer(
      "The file may also hold attend, block, key_padding, blocks (masks); bias, alibi_slopes, sinks; query_lengths, "
      "key_lengths,\n"
      "key_start, query_start; tensors that --score-mod looks up, under their names; and, in JSON or as metadata, the "
      "options\n"
      "above without their dashes; --return-weights is weights there.\n"
      "\nExample\n  echo '{\"q\": [[1, 0]], \"k\": [[1, 0], [0, 1]], \"v\": [[1, 2], [3, 4]]}' > call.json && attn run "
      "call.json");
  return [arguments](const std::vector<std::string>& rest) {
    if (arguments->file.empty() && rest.size() == 1) arguments->file = rest[0];
    else no_more(rest);
    run(*arguments);
  };
}

}  // namespace

const Verb run_verb{"run", "Attention on the tensors q, k, v of a file", add_run_options};

}  // namespace attn::cli
