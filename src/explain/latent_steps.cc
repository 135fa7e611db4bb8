// src/explain/latent_steps.cc: explains latent attention in the absorbed order: one row a token, whose first numbers
// are the value.
#include "explain/mechanism.h"
#include "explain/positions.h"
#include "explain/shown.h"

#include <attn/latent_attention.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include <cmath>

namespace attn {
namespace explain_detail {
namespace {

constexpr std::int64_t kRotary = 2, kMostLatent = 64;  // numbers of the rotary key; numbers of a latent row

class LatentSteps : Mechanism {
 public:
  LatentSteps(const std::string& text, std::int64_t latent, const ExplainOptions& given)
      : Mechanism(text, given, "q", {"w_query"}), latent_(latent) {}

  Explanation explain() {
    const Tensor x = result.step("x").values, q = values_of("q");
    const std::int64_t dim = x.size(-1), heads = q.size(1), dv = options.w_value.defined() ? 4 : options.dv;
    const Tensor w_latent = drawn({dim, latent_}), w_k_rope = drawn({dim, kRotary}),
                 w_q_rope = drawn({heads, dim, kRotary}), w_uk = drawn({heads, q.size(3), latent_}),
                 w_uv = drawn({heads, dv, latent_});
    add_parameter("w_latent", "W_DKV", w_latent);
    add_parameter("w_k_rope", "W_KR", w_k_rope);
    add_parameter("w_q_rope", "W_QR", w_q_rope);
    add_parameter("w_uk", "W_UK", w_uk);
    add_parameter("w_uv", "W_UVᵀ", w_uv.transpose(1, 2));
    const std::string from = source("rand");
    const LatentOperands o{.q_nope = q,
                           .q_rope = rotated(matmul(x, w_q_rope).unsqueeze(0)),
                           .latent = matmul(x, w_latent).unsqueeze(0),
                           .k_rope = rotated(matmul(x, w_k_rope).unsqueeze(0).unsqueeze(0)).squeeze(0),
                           .w_uk = w_uk,
                           .w_uv = w_uv};
    add(Kind::table,
        {"latent",
         {"latent rows", "潜在行"},
         "c = x W_DKV",
         {"keys and values of all heads are made of it", "所有头的键和值都由它得出"},
         {"project", {"x", "w_latent"}},
         from},
        o.latent);
    add(Kind::table,
        {"k_rope", {"rotary key", "旋转键"}, "rotate(x W_KR)", {"one for all heads", "所有头共用"}, {}, from},
        o.k_rope);
    add(Kind::table,
        {"row",
         {"what a cache keeps", "缓存保存的行"},
         "[c | k_rope]",
         {"one row a token, for all heads", "每个词一行，所有头共用"},
         {"join", {"latent", "k_rope"}}},
        cat({o.latent, o.k_rope}, 2));
    add(Kind::table, {"q_rope", {"rotary queries", "旋转查询"}, "rotate(x W_QR)", {"", ""}, {}, from}, o.q_rope);
    const Tensor absorbed = matmul(q, w_uk.unsqueeze(0)), asking = cat({absorbed, o.q_rope}, 3);
    add(Kind::table,
        {"q_absorbed",
         {"absorbed queries", "吸收后的查询"},
         "W_UKᵀ q",
         {"W_UK meets the query, so that no key is made", "W_UK 乘到查询上，不必算出键"},
         {"project", {"q", "w_uk"}}},
        absorbed);
    add(Kind::table,
        {"q_row",
         {"queries of the rows", "对行的查询"},
         "[W_UKᵀ q | q_rope]",
         {"", ""},
         {"join", {"q_absorbed", "q_rope"}}},
        asking);
    add_attention(o, asking);
    check_only(result);
    return std::move(result);
  }

 private:
  void add_attention(const LatentOperands& o, const Tensor& asking) {
    const Tensor row = cat({o.latent, o.k_rope}, 2).unsqueeze(1);
    const Tensor scores = matmul(asking, row.transpose(2, 3));
    const std::int64_t numbers = o.q_nope.size(3) + kRotary;
    const double root = std::sqrt(static_cast<double>(numbers));
    add(Kind::pairs, {"scores", {"scores", "打分"}, "q_row · row", {"", ""}, {"dot", {"q_row", "row"}}}, scores);
    const Tensor scaled = scores / root;
    add(Kind::pairs,
        {"scaled",
         {"scaled scores", "缩放后的打分"},
         runtime::format("scores / √{}", numbers),
         {"of the numbers of q and of the rotary part", "q 与旋转部分的长度之和"},
         {"divide", {"scores"}, root}},
        scaled);
    AttentionOptions call{.mask = options.mask, .weights = Weights::full};
    const AttentionResult absorbed = latent_attention(o, call, LatentForm::absorbed),
                          expanded = latent_attention(o, call, LatentForm::expanded);
    std::vector<Hidden> hidden;
    if (!options.mask.is_all()) {
      const Tensor seen = options.mask.dense(1, 1, scores.size(2), scores.size(3));
      for (std::int64_t h = 0; h < scores.size(1); ++h)
        for (const double sees : seen.to_vector()) hidden.push_back(sees != 0 ? Hidden::visible : Hidden::mask);
    }
    add(Kind::weights,
        {"weights",
         {"weights", "权重"},
         options.mask.is_all() ? "softmax(scaled)" : "softmax(scaled, mask)",
         {"", ""},
         {"softmax", {"scaled"}}},
        absorbed.weights)
        .hidden = hidden;
    const Tensor mean = matmul(absorbed.weights, o.latent.unsqueeze(1));
    add(Kind::table,
        {"mean",
         {"mean of latents", "潜在行的加权平均"},
         "weights · c",
         {"the value is the first numbers of the row itself: a view of the key",
          "值就是行的前几个数："
          "键的一个视图"},
         {"matmul", {"weights", "latent"}}},
        mean);
    const Operation up{"project", {"mean", "w_uv"}};
    add(Kind::table, {"context", {"context", "上下文"}, "W_UV (weights · c)", {"", ""}, up}, absorbed.output);
    add(Kind::table,
        {"expanded",
         {"the other order", "另一种次序"},
         "weights · (W_UV c)",
         {"keys and values of each head first: the same up to rounding",
          "先算每个头的键和值："
          "除舍入外相同"}},
        expanded.output);
  }

  std::int64_t latent_;
};

}  // namespace
}  // namespace explain_detail

Explanation explain_latent_attention(const std::string& text, std::int64_t latent, const ExplainOptions& options) {
  if (latent < 1 || latent > explain_detail::kMostLatent)
    throw ValueError(runtime::format("explain: latent is {}; it must be 1 to {}", latent, explain_detail::kMostLatent));
  explain_detail::refuse_options_but({"mask"}, "latent attention", options);
  return explain_detail::LatentSteps(text, latent, options).explain();
}

}  // namespace attn
