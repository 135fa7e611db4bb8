// src/explain/linear_steps.cc: explains linear attention: the state, and what one row changes in it and reads from it.
#include "explain/mechanism.h"
#include "explain/shown.h"

#include <attn/linear_attention.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include <cmath>

namespace attn {
namespace explain_detail {
namespace {

constexpr double kLeastSquares = 1e-6;  // as linear_attention's l2norm

class LinearSteps : Mechanism {
 public:
  LinearSteps(const std::string& text, LinearRule rule, const ExplainOptions& given)
      : Mechanism(text, given, "v", {"w_query", "w_key", "w_value"}), rule_(rule) {}

  Explanation explain() {
    const bool rotary = options.positions == Positions::rotary;
    q_ = values_of("q"), k_ = values_of("k"), v_ = values_of("v");
    if (rotary) rotate();
    rows_ = q_.size(2), heads_ = q_.size(1);
    const std::int64_t wanted = options.query.value_or(-1);
    if (wanted < -rows_ || wanted >= rows_)
      throw ValueError(
          runtime::format("explain: query {} is not there; the tokens are 0 to {}, or -{} to -1 from the end", wanted,
                          rows_ - 1, rows_));
    row_ = wanted < 0 ? wanted + rows_ : wanted;
    result.query = row_;
    if (deltas()) add_unit_rows();
    add_gates();
    add_row();
    add_reading();
    const LinearAttentionResult all = run(0, rows_, {});
    add(Kind::table,
        {"context",
         {"context of every row", "每一行的上下文"},
         "Sᵀ q / √d",
         {"each row reads after it has written", "每行先写后读"}},
        all.output);
    check_only(result);
    return std::move(result);
  }

 private:
  bool deltas() const { return rule_ == LinearRule::delta || rule_ == LinearRule::gated_delta; }
  bool decays() const { return rule_ == LinearRule::decay || rule_ == LinearRule::gated_delta; }

  /// The name of the embeddings, with positions added if there are such.
  const char* placed() const { return options.positions == Positions::sinusoidal ? "x_positions" : "x"; }

  void rotate() {
    for (ExplainStep& step : result.steps) {
      if (step.name == "q_rotated") q_ = values_of("q_rotated");
      if (step.name == "k_rotated") k_ = values_of("k_rotated");
    }
  }

  static Tensor unit(const Tensor& x) { return x / sqrt(sum(x * x, {-1}, /*keepdim=*/true) + kLeastSquares); }
  void add_unit_rows() {
    add(Kind::table, {"q_unit", {"queries of length 1", "长度为 1 的查询"}, "q / |q|", {"", ""}, {"unit", {"q"}}},
        unit(q_));
    add(Kind::table,
        {"k_unit",
         {"keys of length 1", "长度为 1 的键"},
         "k / |k|",
         {"so that a written value reads back", "这样写入的值能原样读出"},
         {"unit", {"k"}}},
        unit(k_));
  }

  /// The decay e^g and beta: of each head, or of each token by a learned vector.
  void add_gates() {
    const Dims sizes{1, heads_, rows_, 1};
    const auto by_token = [&](const char* name, const char* title) {
      const Tensor x = result.step(placed()).values, w = drawn({heads_, x.size(-1), 1});
      add_parameter(name, title, w);
      return sigmoid(matmul(x.unsqueeze(0), w)).unsqueeze(0);
    };
    if (rule_ == LinearRule::decay) {  // RetNet's: 1 - 2^-(3 + head)
      std::vector<double> values;
      for (std::int64_t h = 0; h < heads_; ++h) values.push_back(1 - std::exp2(-3 - static_cast<double>(h)));
      decay_ = tensor<double>(values, {1, heads_, 1, 1}).to(q_.dtype()).expand(sizes).contiguous();
      add(Kind::table,
          {"decay",
           {"decay", "衰减"},
           "e^g = 1 − 1 / 2^(3 + h)",
           {"what a row leaves of the state; one for each head", "每行保留状态的多少；每个头一个"}},
          decay_);
    }
    if (rule_ == LinearRule::gated_delta) {
      decay_ = by_token("w_decay", "w_g");
      add(Kind::table,
          {"decay",
           {"decay", "衰减"},
           "e^g = σ(x w_g)",
           {"what a row leaves of the state, made of its token", "每行保留状态的多少，由词得出"},
           {"sigmoid", {placed(), "w_decay"}},
           source("rand")},
          decay_);
    }
    if (!deltas()) return;
    beta_ = by_token("w_beta", "w_β");
    add(Kind::table,
        {"beta",
         {"strength of writing", "写入强度"},
         "β = σ(x w_β)",
         {"1: the old value of this key is replaced", "为 1 时，这个键的旧值被完全替换"},
         {"sigmoid", {placed(), "w_beta"}},
         source("rand")},
        beta_);
  }

  /// Runs rows [first, last) from a state.
  LinearAttentionResult run(std::int64_t first, std::int64_t last, const Tensor& state) const {
    const auto part = [&](const Tensor& x) { return x.slice(2, first, last).contiguous(); };
    LinearAttentionOptions call{.initial_state = state, .l2norm = deltas()};
    if (decay_.defined()) call.g = log(part(decay_)).squeeze(-1);
    if (beta_.defined()) call.beta = part(beta_).squeeze(-1);
    return linear_attention(part(q_), part(k_), part(v_), call);
  }

  /// The row: state, decay, read, write, state, read.
  void add_row() {
    const std::string token = result.step("tokens").rows[0][static_cast<std::size_t>(row_)];
    const std::string of = result.language == Language::zh ? runtime::format("第 {} 行“{}”", row_, token)
                                                           : runtime::format("row {} \"{}\"", row_, token);
    const std::vector<std::string> channels = numbered("k", k_.size(3)), one{token};
    const auto row_of = [&](const Tensor& x) { return x.slice(2, row_, row_ + 1); };
    const Tensor before = row_ == 0 ? zeros({1, heads_, k_.size(3), v_.size(3)}, v_.dtype()) : run(0, row_, {}).state;
    add(Kind::table,
        {"state_before",
         {"state before the row", "该行之前的状态"},
         of,
         {"all that is kept of the earlier rows: keys as rows, values as columns",
          "之前所有行只留下它：行是键，列是值"}},
        before, channels);
    Tensor state = before;
    const char* held = "state_before";
    if (decays()) {
      state = state * row_of(decay_);
      held = "state_decayed";
      add(Kind::table,
          {held, {"the state fades", "状态衰减"}, "S = e^g S", {"", ""}, {"scale_row", {"state_before", "decay"}}},
          state, channels);
    }
    Tensor written = row_of(v_);
    if (deltas()) {
      const Tensor found = matmul(unit(row_of(k_)), state);
      add(Kind::table,
          {"found",
           {"what the state holds for this key", "状态里这个键已有的值"},
           "Sᵀ k",
           {"", ""},
           {"read_state", {held, "k_unit"}}},
          found, one);
      written = row_of(beta_) * (written - found);
    }
    add(Kind::table,
        {"written",
         {"what the row writes", "该行写入的值"},
         deltas() ? "u = β (v − Sᵀ k)" : "u = v",
         deltas() ? Said{"the difference to what is there", "与已有值之差"} : Said{"", ""},
         deltas() ? Operation{"delta_write", {"v", "found", "beta"}} : Operation{"row", {"v"}}},
        written, one);
    const LinearAttentionResult after = run(row_, row_ + 1, row_ == 0 ? Tensor() : before);
    add(Kind::table,
        {"state",
         {"state after the row", "该行之后的状态"},
         "S + k uᵀ",
         {"goes on to the next row", "传给下一行"},
         {"add_outer", {held, deltas() ? "k_unit" : "k", "written"}}},
        after.state, channels);
    add(Kind::table,
        {"read",
         {"what the row reads", "该行读出的值"},
         runtime::format("Sᵀ q / √{}", k_.size(3)),
         {"its context", "即它的上下文"},
         {"read_state", {"state", deltas() ? "q_unit" : "q"}, std::sqrt(static_cast<double>(k_.size(3)))}},
        after.output, one);
  }

  /// What each row reads of what each row wrote: the same sum without a state, as in softmax attention.
  void add_reading() {
    const Tensor query = deltas() ? unit(q_) : q_, key = deltas() ? unit(k_) : k_,
                 products = matmul(query, key.transpose(2, 3)) / std::sqrt(static_cast<double>(k_.size(3)));
    std::vector<double> values = products.to_vector(), decay;
    if (decay_.defined()) decay = decay_.to_vector();
    std::vector<Hidden> hidden;
    auto value = values.begin();
    for (std::int64_t h = 0; h < heads_; ++h)
      for (std::int64_t i = 0; i < rows_; ++i)
        for (std::int64_t j = 0; j < rows_; ++j, ++value) {
          hidden.push_back(j > i ? Hidden::causal : Hidden::visible);
          for (std::int64_t t = j + 1; t <= i && !decay.empty(); ++t)
            *value *= decay[static_cast<std::size_t>(h * rows_ + t)];
        }
    const char* const what = decays() ? "q · k / √d × e^g …" : "q · k / √d";
    add(Kind::pairs,
        {"weights",
         {"what a row reads of each row", "每行从各行读出的份量"},
         what,
         {"the context is their sum, times what each row wrote; the state makes it without the pairs",
          "上下文是它们与各行写入值的乘积之和；有了状态就不必算出每一对"}},
        tensor<double>(values, products.sizes()).to(products.dtype()))
        .hidden = hidden;
  }

  LinearRule rule_;
  Tensor q_, k_, v_, decay_, beta_;
  std::int64_t rows_ = 0, heads_ = 0, row_ = 0;
};

}  // namespace
}  // namespace explain_detail

Explanation explain_linear_attention(const std::string& text, LinearRule rule, const ExplainOptions& options) {
  explain_detail::refuse_options_but({"query", "positions"}, "linear attention", options);
  return explain_detail::LinearSteps(text, rule, options).explain();
}

}  // namespace attn
