// src/explain/random_parameters.cc: draws random matrices or checks given ones, and splits them into heads.
#include "explain/random_parameters.h"

#include <attn/ops.h>
#include <attn/random.h>

#include "runtime/format.h"

#include <algorithm>

namespace attn::explain_detail {
namespace {

void check_size(const char* name, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most)
    throw ValueError(runtime::format("explain: {} is {}; it must be 1 to {}", name, value, most));
}

/// Returns the hint for matrices that would fit as their transposes, such as the weight [out, in] of a torch.nn.Linear.
const char* hint(bool transposed) { return transposed ? "; it looks transposed: give its transpose" : ""; }

/// Returns the size of a matrix's last dim; -1 for a tensor that is not 2-D.
std::int64_t columns(const Tensor& w) { return w.dim() == 2 ? w.size(1) : -1; }

/// Reshapes [dim, heads * d] to [heads, dim, d]; accepts [heads, dim, d] unchanged.
Tensor split_heads(const char* name, const Tensor& w, std::int64_t heads) {
  if (!is_floating(w.dtype()))
    throw DtypeError(runtime::format("explain: {} is {}; it must be a floating type", name, name_of(w.dtype())));
  if (w.numel() == 0)
    throw ShapeError(runtime::format("explain: {} has shape {}; it must not be empty", name, to_string(w.sizes())));
  if (w.dim() == 3 && w.size(0) == heads) return w;
  if (w.dim() == 2 && w.size(1) % heads == 0)
    return w.reshape({w.size(0), heads, w.size(1) / heads}).permute({1, 0, 2});
  throw ShapeError(
      runtime::format("explain: {} has shape {}; it must be [dim, {} * d] or [{}, dim, d] for heads = {}{}", name,
                      to_string(w.sizes()), heads, heads, heads, hint(w.dim() == 2 && w.size(0) % heads == 0)));
}

void take_projections(const ExplainOptions& options, Matrices& m) {
  if (!options.w_key.defined() || !options.w_query.defined() || !options.w_value.defined())
    throw ValueError("explain: w_query, w_key and w_value come together; one of them is missing");
  m.w_query = split_heads("w_query", options.w_query, options.heads);
  m.w_key = split_heads("w_key", options.w_key, options.heads);
  m.w_value = split_heads("w_value", options.w_value, options.heads);
  if (!(m.w_key.sizes() == m.w_query.sizes()))
    throw ShapeError(
        runtime::format("explain: w_key has shape {}; it must be {} to match w_query{}",
                        to_string(options.w_key.sizes()), to_string(options.w_query.sizes()),
                        hint(options.w_key.dim() == 2 && options.w_key.t().sizes() == options.w_query.sizes())));
  if (m.w_value.size(1) != m.dim()) {
    const bool all =
        columns(options.w_value) == columns(options.w_query) && columns(options.w_query) == columns(options.w_key);
    throw ShapeError(runtime::format(
        "explain: w_value has shape {}; its dim must be {} to match w_query {}{}", to_string(options.w_value.sizes()),
        m.dim(), to_string(options.w_query.sizes()),
        all ? "; the three look transposed: give their transposes" : hint(columns(options.w_value) == m.dim())));
  }
  m.own_projections = true;
}

void draw_projections(const ExplainOptions& options, std::int64_t dim, Generator& generator, Matrices& m) {
  std::vector<Tensor> query, key, value;
  for (std::int64_t head = 0; head < options.heads; ++head) {
    query.push_back(rand({dim, options.dk}, generator));
    key.push_back(rand({dim, options.dk}, generator));
    value.push_back(rand({dim, options.dv}, generator));
  }
  m.w_query = stack(query);
  m.w_key = stack(key);
  m.w_value = stack(value);
}

/// Returns the first `ids` rows or more of the whole table randn({rows, dim}). randn computes its numbers in memory
/// order, 16 at a time, so a shorter table has the same first ones, except for the whole table's last 16: randn draws
/// these again if its length is not a multiple of 16.
Tensor draw_embedding(std::int64_t rows, std::int64_t dim, std::int64_t ids, Generator& generator) {
  const std::int64_t used = (std::min(ids, rows) + 15) / 16 * 16;
  return randn({used * dim + 16 <= rows * dim ? used : rows, dim}, generator);
}

Tensor own_output(const Tensor& w, const Matrices& m) {
  const std::int64_t rows = m.heads() * m.dv();
  if (w.dim() != 2 || w.size(0) != rows || !is_floating(w.dtype()))
    throw ShapeError(runtime::format("explain: w_output is {} {}; it must be floating [{}, any]: the joined heads{}",
                                     name_of(w.dtype()), to_string(w.sizes()), rows, hint(columns(w) == rows)));
  return w;
}

/// Takes the caller's matrices of the score; their shapes are checked by the call.
void take_score(const ExplainOptions& options, Matrices& m) {
  const bool additive = options.score == Score::Kind::additive;
  if (!additive && options.score != Score::Kind::general)
    throw ValueError("explain: score_w, score_w_query and score_w_key belong to the scores general and additive");
  if (!options.score_w.defined() || options.score_w_query.defined() != additive ||
      options.score_w_key.defined() != additive)
    throw ValueError(additive ? "explain: score_w_query, score_w_key and score_w come together; one of them is missing"
                              : "explain: the score general takes score_w alone");
  m.score_w = additive ? options.score_w.reshape({options.score_w.numel()}) : options.score_w;
  m.score_q = options.score_w_query;
  m.score_k = options.score_w_key;
}

Tensor own_query(const Tensor& vector, std::int64_t dim) {
  if (vector.numel() != dim || !is_floating(vector.dtype()))
    throw ShapeError(
        runtime::format("explain: query_vector is {} {}; it must be floating with {} numbers, the dim of "
                        "the embedding",
                        name_of(vector.dtype()), to_string(vector.sizes()), dim));
  return vector.reshape({1, dim});
}

}  // namespace

Matrices make_matrices(const ExplainOptions& options, std::int64_t ids) {
  check_size("heads", options.heads, 64);
  check_size("dim", options.dim, 1024);
  check_size("dk", options.dk, 1024);
  check_size("dv", options.dv, 1024);
  check_size("vocabulary", options.vocabulary, std::int64_t{1} << 30);
  Matrices m;
  const bool own = options.w_query.defined() || options.w_key.defined() || options.w_value.defined();
  if (own) take_projections(options, m);
  if (options.embedding.defined()) {
    if (options.embedding.dim() != 2 || !is_floating(options.embedding.dtype()))
      throw ShapeError(runtime::format("explain: embedding is {} {}; it must be floating [ids, dim]",
                                       name_of(options.embedding.dtype()), to_string(options.embedding.sizes())));
    m.embedding = options.embedding;
    m.embedding_rows = options.embedding.size(0);
    m.own_embedding = true;
  } else {
    Generator generator(options.seed);
    m.embedding_rows = options.vocabulary;
    m.embedding = draw_embedding(options.vocabulary, own ? m.dim() : options.dim, ids, generator);
  }
  Generator generator(options.seed);
  if (!own) draw_projections(options, m.embedding.size(1), generator, m);
  if (m.embedding.size(1) != m.dim())
    throw ShapeError(runtime::format("explain: embedding has shape {}; its last dim must be {} to match w_query{}",
                                     to_string(m.embedding.sizes()), m.dim(),
                                     columns(options.w_query) == m.embedding.size(1)
                                         ? "; w_query, w_key and w_value look transposed: give their transposes"
                                         : hint(m.embedding.size(0) == m.dim())));

  const std::int64_t dk = m.dk();
  m.own_output = options.w_output.defined();
  if (m.own_output) m.w_output = own_output(options.w_output, m);
  else if (options.output_projection) m.w_output = rand({m.heads() * m.dv(), m.dim()}, generator);
  const bool additive = options.score == Score::Kind::additive;
  m.own_score = options.score_w.defined() || options.score_w_query.defined() || options.score_w_key.defined();
  if (m.own_score) take_score(options, m);
  else if (additive) m.score_q = rand({dk, dk}, generator), m.score_k = rand({dk, dk}, generator);
  if (!m.own_score && (additive || options.score == Score::Kind::general))
    m.score_w = rand(additive ? Dims{dk} : Dims{dk, dk}, generator);
  m.own_query = options.query_vector.defined();
  if (m.own_query) m.learned_query = own_query(options.query_vector, m.dim());
  else if (options.learned_query) m.learned_query = randn({1, m.dim()}, generator);
  const Dtype dtype = m.w_query.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  for (Tensor* w : {&m.embedding, &m.w_query, &m.w_key, &m.w_value, &m.w_output, &m.score_q, &m.score_k, &m.score_w,
                    &m.learned_query})
    if (w->defined()) *w = w->to(dtype).contiguous();
  return m;
}

Score score_of(Score::Kind kind, const Matrices& matrices) {
  switch (kind) {
    case Score::Kind::dot: return Score::dot();
    case Score::Kind::general: return Score::general(matrices.score_w);
    case Score::Kind::additive: return Score::additive(matrices.score_q, matrices.score_k, matrices.score_w);
    case Score::Kind::scaled_dot: break;
  }
  return Score::scaled_dot();
}

}  // namespace attn::explain_detail
