// src/ranks/head_options.cc: takes from masks, biases and score expressions what belongs to some heads.
#include "ranks/head_options.h"

#include <attn/ops.h>

#include "attention/lower.h"
#include "attention/mask/mask_expression.h"
#include "attention/score/score_expression.h"

#include <algorithm>
#include <map>
#include <memory>

namespace attn {
namespace {

using ScoreNode = ScoreExpression::Node;

Tensor dense_of_heads(const Tensor& x, const HeadRange& heads) {
  return is_by_head(x, heads.total) ? x.narrow(-3, heads.begin, heads.size()) : x;
}

/// Returns the lists of the mask blocks (B, H, blocks of rows, n), one for each of these heads. H divides the heads of
/// the call, which share lists in groups.
Tensor lists_of_heads(const Tensor& lists, const HeadRange& heads) {
  const std::int64_t groups = lists.size(1);
  if (groups <= 1) return lists;
  std::vector<Tensor> own;
  for (std::int64_t head = heads.begin; head < heads.end; ++head)
    own.push_back(lists.narrow(1, head * groups / heads.total, 1));
  return own.empty() ? lists.narrow(1, 0, 0) : cat(own, 1);
}

/// Returns the bits of the dims that a lookup indexes by the head alone.
unsigned dims_of_head(const ScoreNode& lookup) {
  unsigned dims = 0;
  for (std::size_t d = 0; d < lookup.parts.size(); ++d)
    if (lookup.parts[d]->op == ScoreNode::Op::head) dims |= 1U << d;
  return dims;
}

/// Returns each tensor that the expression looks up.
std::vector<HeadTable> tables_of(const ScoreExpression& expression, const HeadRange& heads) {
  std::vector<std::pair<Tensor, unsigned>> found;
  for_each_part(expression.node(), [&](const ScoreNode::Part& part) {
    if (part->op != ScoreNode::Op::lookup) return;
    const auto known = std::find_if(found.begin(), found.end(),
                                    [&](const auto& each) { return each.first.impl() == part->tensor.impl(); });
    if (known == found.end()) found.emplace_back(part->tensor, dims_of_head(*part));
    else known->second &= dims_of_head(*part);
  });
  std::vector<HeadTable> tables;
  for (const auto& [tensor, dims] : found) {
    HeadTable table{.whole = tensor, .own = tensor};
    for (int d = 0; d < tensor.dim() && table.dim < 0; ++d)
      if ((dims >> d & 1U) != 0) table.dim = d;
    if (table.dim >= 0) table.own = tensor.narrow(table.dim, heads.begin, heads.size());
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace

HeadScore score_of_heads(const ScoreExpression& expression, const HeadRange& heads) {
  if (expression.empty()) return {};
  const std::vector<HeadTable> tables = tables_of(expression, heads);
  const ScoreNode::Part head = ScoreExpression::head().node(),
                        numbered = (ScoreExpression::head() + ScoreExpression(heads.begin)).node();
  std::map<const ScoreNode*, ScoreNode::Part> made;
  for_each_part(expression.node(), [&](const ScoreNode::Part& part) {
    if (part->op == ScoreNode::Op::head) {
      made[part.get()] = heads.begin == 0 ? head : numbered;
      return;
    }
    if (part->parts.empty() && part->op != ScoreNode::Op::lookup) {
      made[part.get()] = part;
      return;
    }
    ScoreNode node = *part;
    for (ScoreNode::Part& each : node.parts) each = made.at(each.get());
    if (node.op == ScoreNode::Op::lookup) {
      const HeadTable& table = *std::find_if(tables.begin(), tables.end(), [&](const HeadTable& each) {
        return each.whole.impl() == part->tensor.impl();
      });
      node.tensor = table.own;
      if (table.dim >= 0) node.parts[static_cast<std::size_t>(table.dim)] = head;
    }
    for (const ScoreNode::Part& each : node.parts) node.depth = std::max(node.depth, each->depth + 1);
    made[part.get()] = std::make_shared<const ScoreNode>(std::move(node));
  });
  HeadScore result{.expression = ScoreExpression(made.at(expression.node().get())), .tables = {}};
  for (const HeadTable& table : tables)
    if (is_floating(table.whole.dtype())) result.tables.push_back(table);
  return result;
}

Mask mask_of_heads(const Mask& mask, const HeadRange& heads) {
  if (mask.is_all()) return mask;
  using Expression = Mask::Expression;
  std::map<const Expression*, Expression::Part> made;
  std::vector<const Expression::Part*> next{&mask.expression()};  // a list, because a tree may be deep
  while (!next.empty()) {
    const Expression::Part& part = *next.back();
    const std::size_t before = next.size();
    for (const Expression::Part* each : {&part->a, &part->b})
      if (*each && !made.contains(each->get())) next.push_back(each);
    if (next.size() > before) continue;
    next.pop_back();
    Expression e = *part;
    if (e.a) e.a = made.at(e.a.get());
    if (e.b) e.b = made.at(e.b.get());
    if (e.kind == Expression::Kind::dense) e.first = dense_of_heads(e.first, heads);
    if (e.kind == Expression::Kind::blocks) e.first = lists_of_heads(e.first, heads);
    made[part.get()] = std::make_shared<const Expression>(std::move(e));
  }
  return Mask(made.at(mask.expression().get()));
}

Bias bias_of_heads(const Bias& bias, const HeadRange& heads) {
  Bias result;
  for (const Bias::Term& term : bias.terms()) {
    const auto own = [&](int dim) { return term.values.narrow(dim, heads.begin, heads.size()); };
    result = result + with_values(term, term.kind == Bias::Kind::dense   ? dense_of_heads(term.values, heads)
                                        : term.kind == Bias::Kind::alibi ? own(0)
                                                                         : own(1));
  }
  return result;
}

AttentionOptions options_of_heads(const AttentionOptions& options, const HeadRange& heads) {
  AttentionOptions own = options;
  own.out = {};
  if (own.score.kind == Score::Kind::general && own.score.w.dim() == 3)
    own.score.w = own.score.w.narrow(0, heads.begin, heads.size());
  own.mask = mask_of_heads(options.mask, heads);
  own.bias = bias_of_heads(options.bias, heads);
  own.score_mod = score_of_heads(options.score_mod, heads).expression;
  if (options.sinks.defined()) own.sinks = options.sinks.narrow(0, heads.begin, heads.size());
  if (options.score_callback.function && heads.begin != 0)
    own.score_callback = ScoreCallback(
        [function = options.score_callback.function, first = heads.begin](const ScoreTile& tile) {
          ScoreTile numbered = tile;
          numbered.head += first;
          function(numbered);
        },
        options.score_callback.align);
  return own;
}

}  // namespace attn
