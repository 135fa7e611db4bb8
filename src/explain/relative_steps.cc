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
  const std::int64_t rows = index.rows(), mid = (rows - 1) / 2, w = form.width;
  const bool distance = form.coordinate == Coordinate::position && form.steps == nullptr;
  std::string text;
  if (distance) text = runtime::format("clip(j − i, −{0}, {1}) + {0}", -form.first, form.first + form.entries - 1);
  else if (form.coordinate == Coordinate::position) text = runtime::format("bucket(i − j) + {}", rows / 2);
  else if (form.coordinate == Coordinate::row) text = runtime::format("⌊i / {0}⌋ − ⌊j / {0}⌋ + {1}", w, mid);
  else text = runtime::format("i mod {0} − j mod {0} + {1}", w, mid);
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

const char* say_in(Language language, const Said& said) { return language == Language::zh ? said.zh : said.en; }

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

/// The texts of one product: its formulas and the names of its steps.
struct RelativeSteps::Words {
  std::size_t n;
  std::string number, table, row, used;  // of the second product of keys: "2", "R2", "k", "k_rotated"
  std::string factor, from;              // "(k + b_R2)", "relative_operand_2"
  std::string name(const char* plain) const { return numbered_name(plain, n); }
};

Stage RelativeSteps::rows_of_table(const Words& at, const Tensor& places) const {
  return {.name = at.name("relative_rows"),
          .title = say_in(options_.language, {"row of the table", "读表的哪一行"}),
          .note = say_in(options_.language, {"which row of the table the pair of query i and key j reads",
                                             "第 i 个查询和第 j 个键的这一对，读表的第 n 行"}),
          .formula = row_formula(given_[at.n].index),
          .column = "n" + at.number,
          .operation = {"relative_rows", {}},
          .values = places};
}

Stage RelativeSteps::operand(const Words& at, const Tensor& x) const {
  return {.name = at.from,
          .title = given_[at.n].of_keys ? say_in(options_.language, {"keys for the table", "与表相乘的键"})
                                        : say_in(options_.language, {"queries for the table", "与表相乘的查询"}),
          .note = say_in(options_.language,
                         {"plus one learned vector, the same for every row; the first product keeps its own",
                          "加上一个可学习的向量，每行相同；第一个乘积不变"}),
          .formula = at.row + " + b_R" + at.number,
          .column = "",
          .operation = {"add_row", {at.used, at.name("relative_bias")}},
          .values = x,
          .kind = ExplainStep::Kind::table,
          .key_rows = given_[at.n].of_keys,
          .source = source(runtime::format("rand(1, {})", x.size(3)))};
}

Stage RelativeSteps::products(const Words& at, const Tensor& x, const Tensor& table) const {
  return {.name = at.name("relative_products"),
          .title = say_in(options_.language, {"products with the table", "与表的乘积"}),
          .note = say_in(options_.language, {"a number for each row n of the table", "表的每行 n 对应一个数"}),
          .formula = runtime::format("{} · {}_n", at.factor, at.table),
          .column = "",
          .operation = {"dot_table", {at.from, at.name("relative_table")}},
          .values = matmul(x, table.unsqueeze(0).transpose(2, 3)),
          .kind = ExplainStep::Kind::table,
          .key_rows = given_[at.n].of_keys,
          .columns = counted_from_0(table.size(1)),
          .source = source(runtime::format("rand({}, {})", table.size(1), x.size(3)))};
}

Stage RelativeSteps::term(const Words& at, const Run& run, double scale, const Tensor& values) const {
  const ExplainRelative& product = given_[at.n];
  const std::string factor = product.scale          ? runtime::format(" × {}", *product.scale)
                             : run.scaled.defined() ? runtime::format(" / √{}", run.q.size(3))
                                                    : "";
  const Said of_keys{"row j of the products, at the row of the table that the pair reads",
                     "取乘积的第 j 行中这一对所读的那一列"},
      of_queries{"row i of the products, at the row of the table that the pair reads",
                 "取乘积的第 i 行中这一对所读的那一列"};
  return {.name = at.name("relative"),
          .title = say_in(options_.language, {"relative term", "相对项"}),
          .note = say_in(options_.language, product.of_keys ? of_keys : of_queries),
          .formula = runtime::format("r{} = {} · {}_n{}", at.number, at.factor, at.table, factor),
          .column = "r" + at.number,
          .operation = {product.of_keys ? "read_table_of_keys" : "read_table",
                        {at.name("relative_products"), at.name("relative_rows")},
                        scale},
          .values = values};
}

Stage RelativeSteps::sum(const Words& at, const std::string& before, const Tensor& values) const {
  const Said of_keys{"content, q · k, plus position, k · R", "内容（q · k）加上位置（k · R）"},
      of_queries{"content, q · k, plus position, q · R", "内容（q · k）加上位置（q · R）"};
  return {.name = at.name("relative_added"),
          .title = say_in(options_.language, {"with the relative term", "加上相对项"}),
          .note = say_in(options_.language, given_[at.n].of_keys ? of_keys : of_queries),
          .formula = runtime::format("{} + r{}", before, at.number),
          .column = runtime::format("+ r{}", at.number),
          .operation = {"add", {before, at.name("relative")}},
          .values = values};
}

bool RelativeSteps::add_scores(const Run& run, const std::string& before, std::vector<Stage>& stages) const {
  if (given_.empty()) return false;
  const Call call = check("explain", run.q_used(), run.k_used(), run.v, run.call);
  const std::vector<Drawn> matrices = drawn(run);
  const auto first = static_cast<int>(run.call.bias.terms().size() - given_.size());
  Tensor scores = stages.empty() ? run.last_scores() : stages.back().values;
  std::string last = before;
  for (std::size_t n = 0; n < given_.size(); ++n) {
    const ExplainRelative& product = given_[n];
    const int term_number = first + static_cast<int>(n);
    const std::string number = n == 0 ? "" : std::to_string(n + 1), row = product.of_keys ? "k" : "q",
                      used = run.q_rotated.defined() ? row + "_rotated" : row;
    Words at{n, number, "R" + number, row, used, row, used};
    const Tensor places = rows_of_pairs(call, term_number);
    stages.push_back(rows_of_table(at, places));
    Tensor x = multiplied(run, product);
    if (product.operand) {
      x = x + matrices[n].bias;
      at.factor = runtime::format("({} + b_R{})", row, number);
      at.from = at.name("relative_operand");
      stages.push_back(operand(at, x));
    }
    stages.push_back(products(at, x, matrices[n].table));
    const Tensor values =
        call.bias.products->matrix(term_number, matrices[n].table, x, places.expand(scores.sizes()).contiguous());
    stages.push_back(term(at, run, product.scale.value_or(call.problem.scale), values));
    scores = scores + values;
    stages.push_back(sum(at, last, scores));
    last = stages.back().name;
  }
  return true;
}

}  // namespace attn::explain_detail
