// src/tensor/einsum.cc: computes einsum: contracts the operands from left to right by batched matrix products.
#include "tensor/build.h"
#include "tensor/defined.h"

#include <attn/ops.h>

#include <algorithm>
#include <map>

namespace attn {
namespace {

// A label is the index of a letter in "A..Za..z" (the order of an implicit output), or 52 + i for dim i of the
// ellipsis.
constexpr int first_ellipsis = 52;
using Labels = std::vector<int>;

/// A tensor whose dim i has label labels[i]. No label occurs twice.
struct Labelled {
  Tensor x;
  Labels labels;
};

bool has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }

[[noreturn]] void fail(std::string_view equation, const std::string& text) {
  throw ValueError("einsum: equation \"" + std::string(equation) + "\" " + text);
}

/// Holds one subscript: its letters, and the position of the ellipsis (-1: none).
struct Subscript {
  Labels letters;
  int ellipsis = -1;
};

Subscript parse_subscript(std::string_view equation, std::string_view text) {
  Subscript result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == '.') {
      if (text.substr(i, 3) != "...") fail(equation, "has a '.' that is not part of \"...\"");
      if (result.ellipsis >= 0) fail(equation, "has two \"...\" in one subscript; there may be one");
      result.ellipsis = static_cast<int>(result.letters.size());
      i += 2;
    } else if (c >= 'A' && c <= 'Z') {
      result.letters.push_back(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      result.letters.push_back(26 + c - 'a');
    } else {
      fail(equation, std::string("has '") + c + "'; subscripts are letters and \"...\"");
    }
  }
  return result;
}

struct Equation {
  std::vector<Subscript> operands;
  std::optional<Subscript> output;  // none: the output is implicit
};

Equation parse(std::string_view equation) {
  Equation result;
  std::string_view left = equation;
  const std::size_t arrow = equation.find("->");
  if (arrow != std::string_view::npos) {
    left = equation.substr(0, arrow);
    result.output = parse_subscript(equation, equation.substr(arrow + 2));
  }
  for (std::size_t start = 0;;) {
    const std::size_t comma = left.find(',', start);
    result.operands.push_back(parse_subscript(equation, left.substr(start, comma - start)));
    if (comma == std::string_view::npos) return result;
    start = comma + 1;
  }
}

std::string name_of_label(int label) {
  if (label >= first_ellipsis) return "\"...\" dim " + std::to_string(label - first_ellipsis);
  return std::string("'") + static_cast<char>(label < 26 ? 'A' + label : 'a' + label - 26) + "'";
}

Tensor on_diagonal(const Tensor& values, const Dims& place, const Dims& sizes);

/// Returns a label for every dim. The ellipsis stands for the dims that the letters leave; of operands with ellipses of
/// different ranks the last dims of the ellipses have the same labels.
Labels expand_labels(const Subscript& subscript, int ellipsis_rank, int widest) {
  Labels labels;
  for (int i = 0; i <= static_cast<int>(subscript.letters.size()); ++i) {
    if (i == subscript.ellipsis)
      for (int d = 0; d < ellipsis_rank; ++d) labels.push_back(first_ellipsis + widest - ellipsis_rank + d);
    if (i < static_cast<int>(subscript.letters.size()))
      labels.push_back(subscript.letters[static_cast<std::size_t>(i)]);
  }
  return labels;
}

/// Returns a view of x where dim d of x becomes dim place[d]; dims with the same place become their diagonal.
Tensor diagonal(const Tensor& x, const Dims& place) {
  Dims sizes, strides;
  for (int d = 0; d < x.dim(); ++d) {
    const int at = static_cast<int>(place[d]);
    if (at == sizes.size()) {
      sizes.push_back(x.sizes()[d]);
      strides.push_back(0);
    }
    strides[at] += x.strides()[d];
  }
  return record_view("DiagonalBackward0", make_view(x, x.data(), sizes, strides), x,
                     [place, x_sizes = x.sizes()](auto& dy) { return on_diagonal(dy, place, x_sizes); });
}

/// Returns zeros of `sizes` with `values` on the diagonal.
Tensor on_diagonal(const Tensor& values, const Dims& place, const Dims& sizes) {
  const Tensor result = zeros(sizes, values.dtype());
  copy_values(diagonal(result, place), values);
  return record("DiagonalBackwardBackward0", result, wrt(values, [place](auto& dy) { return diagonal(dy, place); }));
}

/// Replaces dims with the same label by one dim that runs along their diagonal.
Labelled take_diagonals(std::string_view equation, const Tensor& x, const Labels& labels) {
  Labels unique;
  Dims place, sizes;
  for (int d = 0; d < x.dim(); ++d) {
    const int label = labels[static_cast<std::size_t>(d)];
    const auto found = std::find(unique.begin(), unique.end(), label);
    place.push_back(found - unique.begin());
    if (found == unique.end()) {
      unique.push_back(label);
      sizes.push_back(x.sizes()[d]);
    } else if (sizes[static_cast<int>(place.back())] != x.sizes()[d]) {
      fail(equation, "repeats " + name_of_label(label) + " in one operand of shape " + to_string(x.sizes()) +
                         "; its sizes there must be equal");
    }
  }
  if (unique.size() == labels.size()) return {x, labels};
  return {diagonal(x, place), unique};
}

/// Removes dims of size 1 that broadcast against a larger size in another operand.
Labelled drop_broadcast(Labelled operand, const std::map<int, std::int64_t>& sizes) {
  for (int d = operand.x.dim() - 1; d >= 0; --d)
    if (operand.x.sizes()[d] == 1 && sizes.at(operand.labels[static_cast<std::size_t>(d)]) != 1) {
      operand.x = operand.x.squeeze(d);
      operand.labels.erase(operand.labels.begin() + d);
    }
  return operand;
}

/// Sums over the labels that are not in `needed`.
Labelled sum_out(const Labelled& operand, const Labels& needed) {
  Dims dims;
  Labels kept;
  for (int d = 0; d < operand.x.dim(); ++d) {
    const int label = operand.labels[static_cast<std::size_t>(d)];
    if (has(needed, label)) kept.push_back(label);
    else dims.push_back(d);
  }
  if (dims.empty()) return operand;
  return {sum(operand.x, dims), kept};
}

Tensor permuted(const Labelled& operand, const Labels& order) {
  Dims dims;
  for (const int label : order)
    dims.push_back(std::find(operand.labels.begin(), operand.labels.end(), label) - operand.labels.begin());
  return operand.x.permute(dims);
}

std::int64_t product_of(const Labels& labels, const std::map<int, std::int64_t>& sizes) {
  Dims found;
  for (const int label : labels) found.push_back(sizes.at(label));
  return found.product();
}

Labels joined(std::initializer_list<Labels> parts) {
  Labels result;
  for (const Labels& part : parts) result.insert(result.end(), part.begin(), part.end());
  return result;
}

/// Multiplies a and b as [batch, M, K] x [batch, K, N]. Sums over the labels that both have and that are not in
/// `needed`.
Labelled contract(const Labelled& a, const Labelled& b, const Labels& needed,
                  const std::map<int, std::int64_t>& sizes) {
  Labels batch, rows, inner, columns;
  for (const int label : a.labels) (!has(b.labels, label) ? rows : has(needed, label) ? batch : inner).push_back(label);
  for (const int label : b.labels)
    if (!has(a.labels, label)) columns.push_back(label);
  const std::int64_t count = product_of(batch, sizes), m = product_of(rows, sizes), k = product_of(inner, sizes),
                     n = product_of(columns, sizes);
  const Tensor left = permuted(a, joined({batch, rows, inner})).reshape({count, m, k});
  const Tensor right = permuted(b, joined({batch, inner, columns})).reshape({count, k, n});
  const Labels labels = joined({batch, rows, columns});
  Dims result;
  for (const int label : labels) result.push_back(sizes.at(label));
  return {bmm(left, right).reshape(result), labels};
}

/// Returns the labels of the implicit output: the ellipsis, then letters that occur once, in order.
Labels implicit_output(const std::vector<Labels>& given, int widest) {
  std::map<int, int> count;
  for (const Labels& labels : given)
    for (const int label : labels) ++count[label];
  Labels result;
  for (int d = 0; d < widest; ++d) result.push_back(first_ellipsis + d);
  for (const auto& [label, times] : count)
    if (label < first_ellipsis && times == 1) result.push_back(label);
  return result;
}

void check_output(std::string_view equation, const Labels& output, const std::map<int, std::int64_t>& sizes) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (sizes.find(output[i]) == sizes.end())
      fail(equation, "has " + name_of_label(output[i]) + " in the output but in no operand");
    if (std::find(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(i), output[i]) !=
        output.begin() + static_cast<std::ptrdiff_t>(i))
      fail(equation, "has " + name_of_label(output[i]) + " twice in the output; each may come once");
  }
}

/// Returns the size of every label. A size of 1 is broadcast to the label's other size; two other sizes that differ
/// are an error.
std::map<int, std::int64_t> label_sizes(std::string_view equation, const std::vector<Labelled>& terms,
                                        const std::vector<Tensor>& operands) {
  std::map<int, std::int64_t> sizes;
  for (std::size_t i = 0; i < terms.size(); ++i)
    for (int d = 0; d < terms[i].x.dim(); ++d) {
      const int label = terms[i].labels[static_cast<std::size_t>(d)];
      const std::int64_t size = terms[i].x.sizes()[d];
      std::int64_t& known = sizes.try_emplace(label, size).first->second;
      if (known == 1) known = size;
      if (size != known && size != 1)
        fail(equation, "gives " + name_of_label(label) + " the sizes " + std::to_string(known) + " and " +
                           std::to_string(size) + " (operand " + std::to_string(i) + " has shape " +
                           to_string(operands[i].sizes()) + "); they must be equal or 1");
    }
  return sizes;
}

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands) {
  if (operands.empty()) fail(equation, "has no operands; at least one is needed");
  const Equation parsed = parse(equation);
  if (parsed.operands.size() != operands.size())
    fail(equation, "has " + std::to_string(parsed.operands.size()) + " subscripts for " +
                       std::to_string(operands.size()) + " operands; they must match");

  // pass 1: assign a label to every dim; after this no operand has a label twice
  std::vector<int> ellipsis_rank;
  int widest = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].defined()) check_defined("einsum", ("operand " + std::to_string(i)).c_str(), operands[i]);
    const int letters = static_cast<int>(parsed.operands[i].letters.size()), rank = operands[i].dim();
    if (parsed.operands[i].ellipsis < 0 ? rank != letters : rank < letters)
      fail(equation, "gives operand " + std::to_string(i) + " " + std::to_string(letters) + " letters; its shape is " +
                         to_string(operands[i].sizes()));
    ellipsis_rank.push_back(rank - letters);
    widest = std::max(widest, rank - letters);
    if (operands[i].dtype() != operands[0].dtype())
      throw DtypeError("einsum: operand " + std::to_string(i) + " is " + std::string(name_of(operands[i].dtype())) +
                       ", operand 0 " + std::string(name_of(operands[0].dtype())) + "; they must be the same");
  }
  std::vector<Labels> labels;
  for (std::size_t i = 0; i < operands.size(); ++i)
    labels.push_back(expand_labels(parsed.operands[i], ellipsis_rank[i], widest));
  std::vector<Labelled> terms;
  for (std::size_t i = 0; i < operands.size(); ++i) terms.push_back(take_diagonals(equation, operands[i], labels[i]));
  const auto sizes = label_sizes(equation, terms, operands);
  const Labels output = parsed.output ? expand_labels(*parsed.output, parsed.output->ellipsis < 0 ? 0 : widest, widest)
                                      : implicit_output(labels, widest);
  check_output(equation, output, sizes);

  // pass 2: remove broadcast dims, and sum over labels that only one operand has
  for (Labelled& term : terms) term = drop_broadcast(term, sizes);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    Labels needed = output;
    for (std::size_t j = 0; j < terms.size(); ++j)
      if (j != i) needed = joined({needed, terms[j].labels});
    terms[i] = sum_out(terms[i], needed);
    // A sum of integers is i64. It stays i64 if no other operand multiplies it.
    if (terms.size() > 1) terms[i].x = terms[i].x.to(operands[i].dtype());
  }

  // pass 3: contract from left to right
  Labelled result = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) {
    Labels needed = output;
    for (std::size_t j = i + 1; j < terms.size(); ++j) needed = joined({needed, terms[j].labels});
    result = contract(result, terms[i], needed, sizes);
  }
  return permuted(result, output);
}

}  // namespace attn
