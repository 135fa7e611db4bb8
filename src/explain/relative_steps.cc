// src/explain/relative_steps.cc: the steps of relative products: which row of the table each pair reads, the products
// with all rows, each pair's term, and the scores with it.
#include "explain/relative_steps.h"

#include "explain/mechanism.h"
#include "explain/words.h"

#include <attn/ops.h>

#include "attention/call/check.h"
#include "attention/relative/relative_terms.h"
#include "kernels/attention/mask/mask_program.h"

#include "runtime/format.h"

namespace attn::explain_detail {
namespace {

/// The row that a pair reads, as a formula of i and j.
std::string row_formula(const RelativeIndex& index) {
  using Coordinate = RelativeIndex::Coordinate;
  const RelativeIndex::Form& form = index.form();
  const std::int64_t rows = index.rows(), middle = (rows - 1) / 2, width = form.width;
  const bool distance = form.coordinate == Coordinate::position && form.steps == nullptr;
  std::string text;
  if (distance) text = runtime::format("clip(j − i, −{0}, {1}) + {0}", -form.first, form.first + form.entries - 1);
  else if (form.coordinate == Coordinate::position) text = runtime::format("bucket(i − j) + {}", rows / 2);
  else if (form.coordinate == Coordinate::row) text = runtime::format("⌊i / {0}⌋ − ⌊j / {0}⌋ + {1}", width, middle);
  else text = runtime::format("i mod {0} − j mod {0} + {1}", width, middle);
  return form.backwards == distance ? runtime::format("n = {} − ({})", rows - 1, text) : "n = " + text;
}

/// [B, 1, Tq, Tk]: the row of each pair; 0 where a pair does not exist.
Tensor rows_of_pairs(const Call& call, int term) {
  const kernels::AttentionProblem& p = call.problem;
  const Tensor result = zeros({p.batch, 1, p.q_rows, p.k_rows}, Dtype::i64);
  auto* at = result.data<std::int64_t>();
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const kernels::Task item{.batch = b};
    for (std::int64_t i = 0; i < p.q_rows; ++i)
      for (std::int64_t j = 0; j < p.k_rows; ++j, ++at)
        if (kernels::exists(p, item, i, j)) *at = call.bias.products->row_of(term, p, item, i, j);
  }
  return result;
}

std::string numbered_name(const char* name, std::size_t n) {
  return n == 0 ? std::string(name) : runtime::format("{}_{}", name, n + 1);
}

std::vector<std::string> counted_from_0(std::int64_t count) {
  std::vector<std::string> labels;
  for (std::int64_t n = 0; n < count; ++n) labels.push_back(std::to_string(n));
  return labels;
}

ExplainStep matrix_of(const std::string& name, const std::string& title, const Tensor& values) {
  ExplainStep step;
  step.name = name;
  step.title = title;
  step.heads = values.size(0);
  step.values = step.heads == 1 ? values.select(0, 0).contiguous() : values;
  step.shape = step.values.sizes();
  step.rows = {counted_from_0(values.size(1))};
  return step;
}

Tensor multiplied(const Run& run, const ExplainRelative& product) {
  return product.of_keys ? run.k_used() : run.q_used();
}

}  // namespace

std::vector<RelativeSteps::Drawn> RelativeSteps::drawn(const Run& run) const {
  Generator generator(options_.seed + 1);
  std::vector<Drawn> result;
  for (const ExplainRelative& product : given_) {
    const Tensor& q = run.q_used();
    Drawn one{.table = rand({q.size(1), product.index.rows(), q.size(3)}, generator).to(q.dtype()), .bias = {}};
    if (product.operand) one.bias = rand({q.size(1), 1, q.size(3)}, generator).to(q.dtype());
    result.push_back(one);
  }
  return result;
}

std::string RelativeSteps::source(const std::string& what) const {
  return runtime::format(fmt::runtime(say(options_.language, Phrase::source_random)), what, options_.seed + 1);
}

void RelativeSteps::set(const Run& run, AttentionOptions& call) const {
  const std::vector<Drawn> matrices = drawn(run);
  for (std::size_t n = 0; n < given_.size(); ++n) {
    const ExplainRelative& product = given_[n];
    RelativeProductOptions as{
        .of_keys = product.of_keys, .scale = product.scale, .align = options_.to ? Align::top_left : Align::unset};
    if (product.operand) as.operand = multiplied(run, product) + matrices[n].bias;
    call.bias = call.bias + Bias::relative_product(matrices[n].table, product.index, as);
  }
}

std::vector<ExplainStep> RelativeSteps::parameters(const Run& run) const {
  const std::vector<Drawn> matrices = drawn(run);
  std::vector<ExplainStep> result;
  for (std::size_t n = 0; n < given_.size(); ++n) {
    const std::string number = n == 0 ? "" : std::to_string(n + 1);
    result.push_back(matrix_of(numbered_name("relative_table", n), "R" + number, matrices[n].table));
    if (matrices[n].bias.defined())
      result.push_back(matrix_of(numbered_name("relative_bias", n), "b_R" + number, matrices[n].bias));
  }
  return result;
}

bool RelativeSteps::add_scores(const Run& run, const std::string& before, std::vector<Stage>& stages) const {
  if (given_.empty()) return false;
  const Call call = check("explain", run.q_used(), run.k_used(), run.v, run.call);
  const std::vector<Drawn> matrices = drawn(run);
  const auto first = static_cast<int>(run.call.bias.terms().size() - given_.size());
  const auto words = [&](const Said& said) { return options_.language == Language::zh ? said.zh : said.en; };
  Tensor scores = stages.empty() ? run.last_scores() : stages.back().values;
  std::string last = before;
  for (std::size_t n = 0; n < given_.size(); ++n) {
    const ExplainRelative& product = given_[n];
    const auto name = [&](const char* plain) { return numbered_name(plain, n); };
    const std::string number = n == 0 ? "" : std::to_string(n + 1), table = "R" + number,
                      row = product.of_keys ? "k" : "q", used = run.q_rotated.defined() ? row + "_rotated" : row;
    const Tensor places = rows_of_pairs(call, first + static_cast<int>(n));
    stages.push_back({.name = name("relative_rows"),
                      .title = words({"row of the table", "读表的哪一行"}),
                      .note = words({"which row of the table the pair of query i and key j reads",
                                     "第 i 个查询和第 j 个键的这一对，读表的第 n 行"}),
                      .formula = row_formula(product.index),
                      .column = "n" + number,
                      .operation = {"relative_rows", {}},
                      .values = places});
    Tensor x = multiplied(run, product);
    std::string factor = row, from = used;
    if (product.operand) {
      x = x + matrices[n].bias;
      from = name("relative_operand");
      factor = "(" + row + " + b_R" + number + ")";
      stages.push_back(
          {.name = from,
           .title = product.of_keys ? words({"keys for the table", "与表相乘的键"})
                                    : words({"queries for the table", "与表相乘的查询"}),
           .note = words({"plus one learned vector, the same for every row; the first product keeps its own",
                          "加上一个可学习的向量，每行相同；第一个乘积不变"}),
           .formula = row + " + b_R" + number,
           .column = "",
           .operation = {"add_row", {used, name("relative_bias")}},
           .values = x,
           .kind = ExplainStep::Kind::table,
           .key_rows = product.of_keys,
           .source = source(runtime::format("rand({}, {})", 1, x.size(3)))});
    }
    stages.push_back({.name = name("relative_products"),
                      .title = words({"products with the table", "与表的乘积"}),
                      .note = words({"one number for each row n of the table", "表的每一行 n 对应一个数"}),
                      .formula = runtime::format("{} · {}_n", factor, table),
                      .column = "",
                      .operation = {"dot_table", {from, name("relative_table")}},
                      .values = matmul(x, matrices[n].table.unsqueeze(0).transpose(2, 3)),
                      .kind = ExplainStep::Kind::table,
                      .key_rows = product.of_keys,
                      .columns = counted_from_0(product.index.rows()),
                      .source = source(runtime::format("rand({}, {})", product.index.rows(), x.size(3)))});
    const bool root = !product.scale && run.scaled.defined();
    const std::string scale = root            ? runtime::format(" / √{}", run.q.size(3))
                              : product.scale ? runtime::format(" × {}", *product.scale)
                                              : "";
    const Tensor of_heads = places.expand(scores.sizes()).contiguous();
    const Tensor term = call.bias.products->matrix(first + static_cast<int>(n), matrices[n].table, x, of_heads);
    stages.push_back({.name = name("relative"),
                      .title = words({"relative term", "相对项"}),
                      .note = product.of_keys
                                  ? words({"row j of the products, at the row of the table that the pair reads",
                                           "取乘积的第 j 行中这一对所读的那一列"})
                                  : words({"row i of the products, at the row of the table that the pair reads",
                                           "取乘积的第 i 行中这一对所读的那一列"}),
                      .formula = runtime::format("r{} = {} · {}_n{}", number, factor, table, scale),
                      .column = "r" + number,
                      .operation = {product.of_keys ? "read_table_of_keys" : "read_table",
                                    {name("relative_products"), name("relative_rows")},
                                    product.scale.value_or(call.problem.scale)},
                      .values = term});
    scores = scores + term;
    stages.push_back({.name = name("relative_added"),
                      .title = words({"with the relative term", "加上相对项"}),
                      .note = product.of_keys
                                  ? words({"content, q · k, plus position, k · R", "内容（q · k）加上位置（k · R）"})
                                  : words({"content, q · k, plus position, q · R", "内容（q · k）加上位置（q · R）"}),
                      .formula = runtime::format("{} + r{}", last, number),
                      .column = runtime::format("+ r{}", number),
                      .operation = {"add", {last, name("relative")}},
                      .values = scores});
    last = name("relative_added");
  }
  return true;
}

}  // namespace attn::explain_detail
