// src/explain/tangent_steps.cc: explains forward mode: how scores, weights and context change along a direction of q, k
// and v.
#include "explain/mechanism.h"
#include "explain/run_attention.h"
#include "explain/shown.h"

#include <attn/attention_jvp.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include <cmath>

namespace attn {
namespace explain_detail {
namespace {

class TangentSteps : Mechanism {
 public:
  TangentSteps(const std::string& text, const ExplainOptions& given)
      : Mechanism(text, given, "", {"w_query", "w_key", "w_value", "w_output"}) {
    const TokenizedTexts tokens = tokenize({text}, given);
    run_ = run_attention(tokens, make_matrices(given, tokens.ids()), given, false);
    keys_ = tokens.to.tokens;
  }

  Explanation explain() {
    const Tensor q = run_.q_used(), k = run_.k_used(), v = run_.v;
    const AttentionTangents along{.q = drawn(q.sizes()), .k = drawn(k.sizes()), .v = drawn(v.sizes())};
    const bool rotary = run_.q_rotated.defined();
    const char *q_name = rotary ? "q_rotated" : "q", *k_name = rotary ? "k_rotated" : "k";
    const std::string from = source("rand");
    const Said given{"the direction in which it moves", "它移动的方向"};
    add(Kind::table, {"q_tangent", {"tangent of the queries", "查询的切向量"}, "q′", given, {}, from}, along.q);
    const What of_keys{"k_tangent", {"tangent of the keys", "键的切向量"}, "k′", given, {}, from};
    add(Kind::table, of_keys, along.k, keys_[0]).key_rows = true;
    const What of_values{"v_tangent", {"tangent of the values", "值的切向量"}, "v′", given, {}, from};
    add(Kind::table, of_values, along.v, keys_[0]).key_rows = true;
    const bool scales = run_.scaled.defined();
    const double root = scales ? std::sqrt(static_cast<double>(q.size(3))) : 1;
    const Tensor product = matmul(along.q, k.transpose(2, 3)) + matmul(q, along.k.transpose(2, 3));
    Operation operation{"product_tangent", {q_name, k_name, "q_tangent", "k_tangent"}};
    if (scales) operation.operand = root;
    Tensor moved = scales ? product / root : product;
    pairs({"scores_tangent",
           {"tangent of the scores", "打分的切向量"},
           scales ? runtime::format("(q′ · k + q · k′) / √{}", q.size(3)) : "q′ · k + q · k′",
           {"both factors of q · k move", "q · k 的两个因子都在动"},
           operation},
          Kind::pairs, moved);
    std::string last = "scores_tangent";
    for (const Stage& stage : run_.stages) {
      if (std::string_view(stage.name) == "capped") {
        const Tensor level = stage.values / run_.call.softcap;
        moved = moved * (1 - level * level);
        pairs({"capped_tangent",
               {"after the softcap", "软截断之后"},
               runtime::format("s′ (1 − (capped / {})²)", run_.call.softcap),
               {"the slope of tanh", "tanh 的斜率"},
               {"softcap_backward", {last, "capped"}, run_.call.softcap}},
              Kind::pairs, moved);
        last = "capped_tangent";
      }
      if (std::string_view(stage.name) == "tempered") {
        moved = moved / run_.call.temperature;
        pairs({"tempered_tangent",
               {"after the temperature", "温度之后"},
               runtime::format("s′ / {}", run_.call.temperature),
               {"", ""},
               {"divide", {last}, run_.call.temperature}},
              Kind::pairs, moved);
        last = "tempered_tangent";
      }
    }
    add_results(along, moved, last);
    check_only(result);
    return std::move(result);
  }

 private:
  void pairs(const What& what, Kind kind, const Tensor& values) {
    ExplainStep& step = add(kind, what, values);
    step.columns = keys_;
    step.hidden = run_.hidden;
  }

  void add_results(const AttentionTangents& along, const Tensor& moved, const std::string& last) {
    const Tensor weights = run_.weights, mu = sum(where_seen(weights, moved), {-1}, /*keepdim=*/true);
    const AttentionJvp jvp = attention_jvp(run_.q_used(), run_.k_used(), run_.v, along, run_.call);
    add(Kind::table,
        {"logsumexp_tangent",
         {"their mean, by weight", "按权重的平均"},
         "μ = Σ weights s′",
         {"how the sum of the softmax moves: the tangent of the logsumexp",
          "softmax 的和如何变化："
          "logsumexp 的切向量"},
         {"weighted_sum", {"weights", last}}},
        jvp.tangent.logsumexp.unsqueeze(-1));
    pairs({"weights_tangent",
           {"tangent of the weights", "权重的切向量"},
           "weights (s′ − μ)",
           {"a row of them sums to 0: what one key gains, others lose", "每行之和为 0：此消彼长"},
           {"softmax_backward", {"weights", last}}},
          Kind::pairs, where_seen(weights, moved - mu));
    add(Kind::table,
        {"context_tangent",
         {"tangent of the context", "上下文的切向量"},
         "weights′ · v + weights · v′",
         {"a Jacobian-vector product: how the context moves with the direction",
          "雅可比–向量积："
          "上下文沿该方向的变化"},
         {"matmul_tangent", {"weights", "v", "weights_tangent", "v_tangent"}}},
        jvp.tangent.output);
  }
  /// weights * x, and 0 where a weight is 0: a masked score may be -inf.
  static Tensor where_seen(const Tensor& weights, const Tensor& x) { return where(gt(weights, 0), weights * x, 0); }

  Run run_;
  std::vector<std::vector<std::string>> keys_;
};

}  // namespace
}  // namespace explain_detail

Explanation explain_tangent(const std::string& text, const ExplainOptions& options) {
  const explain_detail::NotThere not_there[] = {
      {"score", options.score != Score::Kind::scaled_dot && options.score != Score::Kind::dot},
      {"score_mod", !options.score_mod.empty()},
      {"dropout_p", options.dropout_p != 0},
      {"weights", !(options.weights == Weights::none)},
      {"learned_query", options.learned_query}};
  explain_detail::refuse_options("forward mode", not_there);
  return explain_detail::TangentSteps(text, options).explain();
}

}  // namespace attn
