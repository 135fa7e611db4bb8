// src/ranks/sum_ordered.cc: the sum of parts that the ranks have, at every rank, in an order that does not depend on
// their number.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "ranks/exchange.h"

#include "runtime/format.h"

#include <functional>

namespace attn {
namespace {

/// Throws unless these are the parts that this rank must give.
void check_parts(const std::vector<Tensor>& parts, std::int64_t count, const Ranks& ranks) {
  if (count < ranks.size())
    throw ValueError(
        runtime::format("sum_ordered: {} parts on {} ranks; each rank needs one or more", count, ranks.size()));
  const Span mine = share_of(count, ranks.rank(), ranks.size());
  if (static_cast<std::int64_t>(parts.size()) != mine.size())
    throw ValueError(runtime::format("sum_ordered: {} parts are given; of {} on {} ranks this one must have {}",
                                     parts.size(), count, ranks.size(), mine.size()));
  for (const Tensor& x : parts) {
    if (!x.defined() || !is_floating(x.dtype()))
      throw DtypeError("sum_ordered: a part must be a tensor of f32, f64, bf16 or f16");
    if (!(x.sizes() == parts[0].sizes()) || x.dtype() != parts[0].dtype())
      throw ShapeError("sum_ordered: the parts must have one shape and one dtype");
  }
}

/// Returns the sum of the parts of a node; `first` is the number of parts[0].
Tensor sum_of(const std::vector<Tensor>& parts, std::int64_t first, const Span& node) {
  if (node.size() == 1) return parts[static_cast<std::size_t>(node.begin - first)].detach().contiguous();
  const std::int64_t middle = middle_of(node);
  const Tensor left = sum_of(parts, first, {node.begin, middle}), right = sum_of(parts, first, {middle, node.end});
  const Dtype wide = left.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  return left.to(wide) + right.to(wide);
}

}  // namespace

Tensor sum_ordered(const std::vector<Tensor>& parts, std::int64_t count, const Ranks& ranks) {
  const NoGrad guard;
  std::exception_ptr failure;
  try {
    check_parts(parts, count, ranks);
  } catch (...) { failure = std::current_exception(); }
  ranks.agree(failure);
  ranks.same("sum_ordered: a part",
             runtime::format("{} of {}", name_of(parts[0].dtype()), to_string(parts[0].sizes())));
  const Dtype dtype = parts[0].dtype();
  const Buckets buckets(parts[0].numel(), ranks.size());
  std::vector<Tensor> mine;
  Tensor result;
  std::unique_ptr<OrderedSum> sum;
  try {
    result = empty(parts[0].sizes(), dtype);
    sum = std::make_unique<OrderedSum>(ranks, count, dtype, buckets);
    for (const Span& node : OrderedSum::nodes(count, ranks.rank(), ranks.size()))
      mine.push_back(sum_of(parts, share_of(count, ranks.rank(), ranks.size()).begin, node));
  } catch (...) { failure = std::current_exception(); }
  ranks.agree(failure);

  // The buckets of the others come straight into the result; one of this rank leaves as soon as it is added.
  constexpr int channel = 3;
  Transport& transport = ranks.transport();
  const std::size_t element = size_of(dtype);
  char* const data = static_cast<char*>(result.data());
  std::vector<Transport::Request> requests;
  const auto at = [&](const Span& bucket) { return data + static_cast<std::size_t>(bucket.begin) * element; };
  const auto bytes = [&](const Span& bucket) { return static_cast<std::size_t>(bucket.size()) * element; };
  for (std::int64_t k = buckets.rounds() - 1; k >= 0; --k)
    for (int from = 0; from < ranks.size(); ++from)
      if (const Span bucket = buckets.bucket(from, k); from != ranks.rank() && bucket.size() > 0)
        requests.push_back(transport.receive(from, channel, at(bucket), bytes(bucket)));
  sum->start(data);
  for (std::size_t i = 0; i < mine.size(); ++i) sum->give(i, mine[i]);
  sum->finish(/*failed=*/false, [&](const Span& bucket) {
    for (int step = 1; step < ranks.size(); ++step)
      requests.push_back(transport.send((ranks.rank() + step) % ranks.size(), channel, at(bucket), bytes(bucket)));
  });
  for (const Transport::Request request : requests) transport.wait(request);
  return result;
}

}  // namespace attn
