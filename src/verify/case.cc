// src/verify/case.cc: converts lines of text to cases and back, with one table of fields.
#include "verify/case.h"

#include <attn/error.h>

#include "runtime/format.h"

#include "attention/cache/row_storage_formats.h"
#include "verify/blocks.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace attn::cases {
namespace {

/// The largest size that a line may name, so that a typing error does not allocate all memory.
constexpr std::int64_t largest_size = std::int64_t{1} << 24;

struct Count {
  const char* name;
  std::int64_t Case::* value;
  std::int64_t Case::* follows = nullptr;  // the field whose value is used if this one is not given
  std::int64_t least = 1, most = largest_size;
};
constexpr Count counts[] = {{"B", &Case::batch},
                            {"Hq", &Case::q_heads},
                            {"Hk", &Case::k_heads, &Case::q_heads},
                            {"Hv", &Case::v_heads, &Case::k_heads},
                            {"Tq", &Case::q_rows},
                            {"Tk", &Case::k_rows, &Case::q_rows},
                            {"D", &Case::dim, nullptr, 0},  // 0: scores are sums over no products
                            {"Dv", &Case::value_dim, &Case::dim},
                            {"A", &Case::channels, &Case::dim},
                            {"M", &Case::m},
                            {"N", &Case::n},
                            {"K", &Case::k, nullptr, 0},  // 0: sums over no products
                            {"addend", &Case::bias_row, nullptr, 0, 1},
                            {"packed", &Case::packed, nullptr, 0, 1},
                            {"rows", &Case::rows},
                            {"sinks", &Case::sinks, nullptr, 0, 1},
                            {"delta", &Case::delta, nullptr, 0, 1},
                            {"idle_us", &Case::idle_us, nullptr, 0}};

struct Word {
  const char* name;
  std::string Case::* value;
};
constexpr Word words[] = {{"score", &Case::score},
                          {"mask", &Case::mask},
                          {"bias", &Case::bias},
                          {"score_mod", &Case::score_mod},
                          {"lengths", &Case::lengths},
                          {"layout", &Case::layout},
                          {"hidden", &Case::hidden},
                          {"weights", &Case::weights},
                          {"cache", &Case::cache},
                          {"storage", &Case::storage},
                          {"values", &Case::values},
                          {"blocks", &Case::blocks},
                          {"gate", &Case::gate},
                          {"normalizer", &Case::normalizer},
                          {"weight_mod", &Case::weight_mod}};

struct Number {
  const char* name;
  double Case::* value;
  double most = 1e6;
};
constexpr Number numbers[] = {{"scale", &Case::scale},
                              {"softcap", &Case::softcap},
                              {"temperature", &Case::temperature},
                              {"dropout", &Case::dropout, 1}};

constexpr const char* ops[] = {"attention",
                               "attention_decode",
                               "attention_backward",
                               "attention_jvp",
                               "attention_backward_tangent",
                               "matmul",
                               "softmax",
                               "log_softmax",
                               "layer_norm",
                               "rms_norm",
                               "sum",
                               "exp",
                               "log",
                               "tanh",
                               "sin",
                               "cos",
                               "sigmoid",
                               "silu",
                               "gelu",
                               "gelu_tanh",
                               "linear_attention",
                               "linear_attention_backward",
                               "causal_conv"};
template <typename T>
T number_of(const std::string& field, const std::string& text, T least, T greatest) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value >= least && value <= greatest))
    throw ValueError(runtime::format("case: {}={} is not understood; it must be a number from {} to {}", field, text,
                                     least, greatest));
  return value;
}

template <typename Words = std::initializer_list<const char*>>
void one_of(const char* field, const std::string& given, const Words& known) {
  for (const char* word : known)
    if (given == word) return;
  throw ValueError(
      runtime::format("case: {}={} is not understood; there are {}", field, given, runtime::join(known, ", ")));
}

Dtype dtype_of(const std::string& op, const std::string& word) {
  try {
    if (const Dtype dtype = dtype_from_name(word); is_floating(dtype)) return dtype;
  } catch (const ValueError&) {  // its text lists dtypes that a case cannot have
  }
  throw ValueError(runtime::format("case: behind {} stands {}; it must be f32, f64, bf16 or f16", op,
                                   word.empty() ? "nothing" : runtime::format("\"{}\"", word)));
}

/// The elements of the tensors, and the products.
std::pair<double, double> recurrent_cost(const Case& c) {
  const auto product = [](auto... sizes) { return (static_cast<double>(sizes) * ...); };
  if (c.op == "causal_conv") return {product(c.batch, c.n, c.q_rows + c.k), product(c.batch, c.n, c.q_rows, c.k)};
  const double rows = product(c.batch, c.v_heads, c.q_rows);
  return {rows * product(std::max(c.dim, c.value_dim)) + product(c.batch, c.v_heads, c.dim, c.value_dim),
          8 * rows * product(c.dim, c.value_dim)};
}

/// Throws ValueError if the tensors are too large or the computation too long: a line that takes all memory or a day is
/// a typing error too.
void check_cost(const Case& c) {
  constexpr double most_elements = 0x1p32, most_products = 0x1p42;
  const auto product = [](auto... sizes) { return (static_cast<double>(sizes) * ...); };
  const bool attends = c.is_attention();
  const double pairs = product(c.batch, c.q_heads, c.q_rows, c.k_rows);
  const auto [recurrent_elements, recurrent_products] = recurrent_cost(c);
  const double products =
      c.is_recurrent()   ? recurrent_products
      : attends          ? pairs * (c.score == "additive" ? product(c.channels) : product(c.dim) + product(c.value_dim))
      : c.op == "matmul" ? product(c.m, c.n, c.k)
                         : 0;
  const bool dense =
      c.mask == "bool" || c.bias == "dense" || c.bias == "pairs" || c.bias == "item" || c.weights != "none";
  const double elements = c.is_recurrent() ? recurrent_elements
                          : attends ? product(c.batch) * (product(c.q_heads, c.q_rows) + product(c.k_heads, c.k_rows)) *
                                              product(std::max(c.dim, c.value_dim)) +
                                          (dense ? pairs : 0)
                          : c.op == "matmul" ? product(c.m, c.k) + product(c.k, c.n) + product(c.m, c.n)
                                             : product(c.rows, c.n);
  if (elements > most_elements || products > most_products)
    throw ValueError(runtime::format(
        "case: the sizes make {:.2g} elements and {:.2g} products; at most {:.2g} and {:.2g} are possible", elements,
        products, most_elements, most_products));
}

void set_field(Case& c, const std::string& name, const std::string& value) {
  for (const Count& count : counts)
    if (name == count.name) return void(c.*count.value = number_of<std::int64_t>(name, value, count.least, count.most));
  for (const Word& word : words)
    if (name == word.name) return void(c.*word.value = value);
  for (const Number& number : numbers)
    if (name == number.name) return void(c.*number.value = number_of<double>(name, value, 0, number.most));
  std::vector<std::string> known;
  for (const Count& count : counts) known.emplace_back(count.name);
  for (const Word& word : words) known.emplace_back(word.name);
  for (const Number& number : numbers) known.emplace_back(number.name);
  throw ValueError(runtime::format("case: there is no field \"{}\"; there are {}", name, runtime::join(known, ", ")));
}

}  // namespace

Case parse_case(const std::string& line) {
  std::istringstream text(line);
  Case c;
  std::string dtype, word;
  text >> c.op >> dtype;
  bool known = false;
  for (const char* op : ops) known |= c.op == op;
  if (!known)
    throw ValueError(runtime::format("case: there is no op \"{}\"; there are {}", c.op, runtime::join(ops, ", ")));
  c.dtype = dtype_of(c.op, dtype);
  while (text >> word) {
    const auto equals = word.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ValueError(runtime::format("case: \"{}\" is not understood; a field reads name=value", word));
    set_field(c, word.substr(0, equals), word.substr(equals + 1));
  }
  if (c.op == "matmul" && c.layout == "plain") c.layout = "nn";
  one_of("score", c.score, {"dot", "general", "additive"});
  one_of("bias", c.bias,
         {"none", "dense", "pairs", "item", "key", "alibi", "relative", "alibi_symmetric", "relative_keys", "conformer",
          "disentangled", "picture"});
  if (c.has_relative_products() && (size_of(c.dtype) == 2 || c.score != "dot" || c.is_cached()))
    throw ValueError(runtime::format("case: bias={} needs f32 or f64, score=dot and no cache", c.bias));
  one_of("lengths", c.lengths, {"none", "keys", "rows", "starts", "all", "packed"});
  one_of("hidden", c.hidden, {"plain", "nan"});
  one_of("weights", c.weights, {"none", "full", "head_average", "column_sums", "rows", "top_k"});
  one_of("cache", c.cache, {"none", "block", "pages16", "pages32", "pages64", "pages128", "pages256"});
  one_of("storage", c.storage, storage_names);
  one_of("values", c.values, {"own", "in_keys"});
  one_of("blocks", c.blocks, block_format_names());
  one_of("gate", c.gate, {"none", "head", "channel"});
  if (c.op == "matmul") one_of("layout", c.layout, {"nn", "nt", "tn"});
  else one_of("layout", c.layout, {"plain", "turned"});
  for (const Count& count : counts)
    if (count.follows != nullptr && c.*count.value == 0) c.*count.value = c.*count.follows;
  if (c.is_recurrent()) {
    if (c.k_heads != c.q_heads || c.v_heads % c.q_heads != 0)
      throw ValueError(runtime::format("case: Hk={} must be Hq={}, and divide Hv={}", c.k_heads, c.q_heads, c.v_heads));
    for (const auto& [name, least] : {std::pair{"D", c.dim}, std::pair{"K", c.k}})
      if (least == 0) throw ValueError(runtime::format("case: {}=0 is not possible for {}", name, c.op));
    check_cost(c);
    return c;
  }
  for (const auto& [name, heads] : {std::pair{"Hk", c.k_heads}, std::pair{"Hv", c.v_heads}})
    if (c.q_heads % heads != 0)
      throw ValueError(runtime::format("case: {}={} does not divide Hq={}", name, heads, c.q_heads));
  if (c.is_jvp() && (c.score != "dot" || c.has_relative_products() || c.weights != "none" || c.is_cached() ||
                     (c.is_backward_tangent() && c.score_mod != "none")))
    throw ValueError(
        "case: forward mode has score=dot, no relative products, no returned weights and no cache; tangents of "
        "gradients no score_mod");
  if (c.values == "in_keys" && (c.v_heads != c.k_heads || c.value_dim > c.dim || c.storage != "same"))
    throw ValueError("case: values=in_keys needs Hv=Hk, Dv of at most D, and storage=same");
  check_cost(c);
  return c;
}

std::string to_line(const Case& c) {
  const Case standard;
  std::string line = runtime::format("{} {}", c.op, name_of(c.dtype));
  for (const Count& count : counts) {
    const std::int64_t value = c.*count.value;
    if (value != (count.follows ? c.*count.follows : standard.*count.value))
      line += runtime::format(" {}={}", count.name, value);
  }
  for (const Word& word : words)
    if (c.*word.value != standard.*word.value) line += runtime::format(" {}={}", word.name, c.*word.value);
  for (const Number& number : numbers)
    if (c.*number.value != standard.*number.value) line += runtime::format(" {}={}", number.name, c.*number.value);
  return line;
}

}  // namespace attn::cases
