// src/ranks/heads_exchange.cc: exchanges rows of all heads for all rows of some heads, and back, around the attention
// of one process.
#include "ranks/heads_exchange.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/internal.h"
#include "attention/score/dropout.h"
#include "ranks/heads_call.h"
#include "ranks/messages.h"
#include "runtime/format.h"
#include "tensor/build.h"

#include <algorithm>
#include <cstring>

namespace attn {
namespace {

/// Returns x [B, H, T, D] with the rows of a head adjacent: itself or a copy.
Tensor with_adjacent_rows(const Tensor& x) {
  const bool columns = x.size(3) <= 1 || x.stride(3) == 1, rows = x.size(2) <= 1 || x.stride(2) == x.size(3);
  return columns && rows ? x.detach() : x.detach().contiguous();
}

/// Moves arrays of any number of heads. The rows of a head are one message, from where they are to where they belong:
/// nothing is packed. wait() must be called before the memory goes.
class HeadsExchange {
 public:
  HeadsExchange(const Ranks& ranks, const HeadsCall& call) : ranks_(ranks), call_(call), messages_(ranks.transport()) {}

  /// rows [B, H, own rows, D] -> heads [B, own heads, T, D]
  void to_heads(const Tensor& rows, const Tensor& heads) {
    each_pair(rows, heads, [&](int other, void* of_rows, void* of_heads, std::size_t bytes) {
      if (of_rows != nullptr) messages_.send(other, of_rows, bytes);
      else messages_.receive(other, of_heads, bytes);
    });
  }
  /// heads [B, own heads, T, D] -> rows [B, H, own rows, D]
  void to_rows(const Tensor& heads, const Tensor& rows) {
    each_pair(
        rows, heads,
        [&](int other, void* of_rows, void* of_heads, std::size_t bytes) {
          if (of_rows != nullptr) messages_.receive(other, of_rows, bytes);
          else messages_.send(other, of_heads, bytes);
        },
        true);
  }
  void wait() { messages_.wait(); }

 private:
  /// Calls move(rank, rows of another rank's head, null, bytes) and move(rank, null, another rank's rows of an own
  /// head, bytes), for each pair of ranks in the same order at both, and copies what stays here.
  template <typename Move>
  void each_pair(const Tensor& rows, const Tensor& heads, const Move& move, bool back = false) {
    const int own = ranks_.rank(), count = ranks_.size();
    const std::int64_t each = rows.size(1) / call_.units;
    const auto bytes_of = [&](const Span& some) {
      return static_cast<std::size_t>(some.size() * rows.size(3)) * size_of(rows.dtype());
    };
    const auto at = [](const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t row) {
      return advance(x, b * x.stride(0) + h * x.stride(1) + row * x.size(3));
    };
    const Span mine = share_of(call_.units, own, count);
    for (int step = 0; step < count; ++step) {  // each rank begins with another neighbour
      const int other = (own + step) % count;
      const Span theirs = share_of(call_.units, other, count), their_rows = share_of(call_.length, other, count);
      for (std::int64_t b = 0; b < call_.batch; ++b) {
        if (other == own) {
          for (std::int64_t h = 0; h < heads.size(1) && call_.rows.size() > 0; ++h) {
            void *of_rows = at(rows, b, mine.begin * each + h, 0), *of_heads = at(heads, b, h, call_.rows.begin);
            if (bytes_of(call_.rows) == 0) continue;
            back ? std::memcpy(of_rows, of_heads, bytes_of(call_.rows))
                 : std::memcpy(of_heads, of_rows, bytes_of(call_.rows));
          }
          continue;
        }
        for (std::int64_t h = theirs.begin * each; h < theirs.end * each; ++h)
          move(other, at(rows, b, h, 0), nullptr, bytes_of(call_.rows));
        for (std::int64_t h = 0; h < heads.size(1); ++h)
          move(other, nullptr, at(heads, b, h, their_rows.begin), bytes_of(their_rows));
      }
    }
  }

  const Ranks& ranks_;
  const HeadsCall& call_;
  Messages messages_;
};

/// Operands of which this rank has rows, and memory for all rows of its heads.
struct HeadsOperand {
  Tensor rows, heads;
  HeadsOperand(const HeadsCall& call, const Tensor& x)
      : rows(with_adjacent_rows(x)), heads(empty(call.of_heads(x.size(1), x.size(3)), x.dtype())) {}
};

/// A result of which this rank has its heads, and memory for its rows of all heads.
struct HeadsResult {
  Tensor heads, rows;
  HeadsResult() = default;
  /// `memory`: receives the rows; undefined: new.
  HeadsResult(const HeadsCall& call, const Tensor& x, std::int64_t count, const Tensor& memory = {})
      : heads(with_adjacent_rows(x)),
        rows(memory.defined() ? memory : empty(call.of_rows(count, x.size(3)), x.dtype())) {}
};

/// Gives every rank the heads of all, along one dim of a gradient.
class WholeGradient {
 public:
  WholeGradient(const Ranks& ranks, const HeadsCall& call, const Tensor& own, int dim)
      : ranks_(ranks), dim_(dim), own_(own.contiguous()) {
    Dims sizes = own.sizes();
    sizes[dim] = call.q_heads;
    result = empty(sizes, own.dtype());
    const std::int64_t each = call.q_heads / call.units;
    for (int other = 0; other < ranks.size(); ++other) {
      const Span units = share_of(call.units, other, ranks.size());
      sizes[dim] = units.size() * each;
      parts_.push_back(other == ranks.rank() ? own_ : empty(sizes, own.dtype()));
    }
  }
  void start(Messages& messages) {
    const auto bytes = [](const Tensor& x) { return static_cast<std::size_t>(x.numel()) * size_of(x.dtype()); };
    for (int other = 0; other < ranks_.size(); ++other) {
      if (other == ranks_.rank()) continue;
      const Tensor& part = parts_[static_cast<std::size_t>(other)];
      messages.receive(other, part.data(), bytes(part));
      messages.send(other, own_.data(), bytes(own_));
    }
  }
  void finish() {
    std::int64_t at = 0;
    for (const Tensor& part : parts_) {
      copy_values(result.narrow(dim_, at, part.size(dim_)), part);
      at += part.size(dim_);
    }
  }
  Tensor result;

 private:
  const Ranks& ranks_;
  int dim_;
  Tensor own_;
  std::vector<Tensor> parts_;
};

Tensor one_column(const Tensor& x) { return x.unsqueeze(-1); }

/// Returns the options with rank 0's seed. Every rank draws one, so that their generators stay equal.
AttentionOptions with_seed(const AttentionOptions& options, const Ranks& ranks) {
  AttentionOptions seeded = options;
  if (options.dropout_p <= 0 || options.dropout_seed) return seeded;
  std::uint64_t seed = dropout_seed(options.dropout_p, std::nullopt, options.generator);
  const std::string first = ranks.from_first({reinterpret_cast<const char*>(&seed), sizeof seed});
  std::memcpy(&seed, first.data(), sizeof seed);
  seeded.dropout_seed = seed;
  return seeded;
}

/// Throws unless `memory`, if it is given, can receive rows.
void check_memory_of_rows(const HeadsCall& call, const Tensor& memory, const Dims& sizes, Dtype dtype,
                          const char* name) {
  if (!memory.defined()) return;
  check_rows(call, memory, sizes, name);
  if (memory.dtype() != dtype)
    throw DtypeError(
        runtime::format("{}: {} is {}; it must be {}", call.function, name, name_of(memory.dtype()), name_of(dtype)));
}

/// Throws if a gradient is wanted that is a sum over heads of several ranks.
void check_shared(const HeadsCall& call, const AttentionOptions& options, const AttentionBackwardOptions& wanted) {
  for (const Bias::Term& term : options.bias.terms())
    if (wanted.bias && term.kind == Bias::Kind::dense && !is_by_head(term.values, call.q_heads))
      throw ValueError(runtime::format(
          "{}: a dense bias has shape {}: its gradient is a sum over heads, which are at several ranks; give a bias "
          "for each of the {} heads, or ask for no gradient of it",
          call.function, to_string(term.values.sizes()), call.q_heads));
  if (!wanted.score_mod) return;
  for (const HeadTable& table : score_of_heads(options.score_mod, call.heads).tables)
    if (table.dim < 0)
      throw ValueError(runtime::format(
          "{}: score_mod looks up a tensor {} without h alone as an index: its gradient is a sum over heads, which are "
          "at several ranks; ask for no gradient of it",
          call.function, to_string(table.whole.sizes())));
}

void check_backward(const HeadsCall& call, const AttentionSaved& saved, const AttentionBackwardOptions& wanted) {
  const Dims output = call.of_rows(call.q_heads, call.value_dim), row{call.batch, call.q_heads, call.rows.size()};
  check_rows(call, saved.output, output, "saved.output");
  check_rows(call, saved.max, row, "saved.max");
  check_rows(call, saved.sum, row, "saved.sum");
  check_rows(call, wanted.grad_output, output, "grad_output");
  if (wanted.grad_logsumexp.defined()) check_rows(call, wanted.grad_logsumexp, row, "grad_logsumexp");
  for (const auto& [memory, name] :
       {std::pair{&wanted.grad_q, "grad_q"}, {&wanted.grad_k, "grad_k"}, {&wanted.grad_v, "grad_v"}})
    if (memory->defined())
      throw ValueError(
          runtime::format("{}: {} is given; with ranks the gradients are new tensors", call.function, name));
}

/// Returns a text of what must be equal at all ranks, besides the call.
std::string text_of_backward(const AttentionSaved& saved, const AttentionBackwardOptions& wanted) {
  const auto dtype = [](const Tensor& x) { return x.defined() ? std::string(name_of(x.dtype())) : "none"; };
  return runtime::format(", saved {} {} {}{}, dropout_seed {}, gradients {} {} {}{}{}{}{}", dtype(saved.output),
                         dtype(saved.max), dtype(saved.sum), saved.exact ? " exact" : "", saved.dropout_seed,
                         dtype(wanted.grad_output), dtype(wanted.grad_logsumexp), wanted.k ? "k" : "",
                         wanted.v ? "v" : "", wanted.sinks ? " sinks" : "", wanted.bias ? " bias" : "",
                         wanted.score_mod ? " score_mod" : "");
}

}  // namespace

AttentionResult attention_by_heads(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                   const Ranks& ranks, const AttentionOptions& options, AttentionSaved* saved) {
  HeadsCall call;
  std::vector<HeadsOperand> operands;
  at_every_rank(ranks, [&] {
    call = check_heads_call("rank_attention", q, k, v, length, ranks, options);
    if (saved == nullptr && grad_enabled() && call.wants_grad)
      throw ValueError(
          "rank_attention: an operand requires a gradient, and what ranks compute is not recorded; call it under "
          "NoGrad, or rank_attention_forward, and rank_attention_backward later");
    if (call.alone) return;
    check_memory_of_rows(call, options.out, call.of_rows(call.q_heads, call.value_dim), call.dtype, "out");
    if (saved != nullptr)
      for (const auto& [memory, name] : {std::pair{&saved->max, "max"}, {&saved->sum, "sum"}})
        check_memory_of_rows(call, *memory, {call.batch, call.q_heads, call.rows.size()}, call.compute_dtype(), name);
    call.text += saved == nullptr ? "" : saved->exact ? ", saved exactly" : ", saved";
    for (const Tensor* x : {&q, &k, &v}) operands.emplace_back(call, *x);
  });
  const NoGrad no_grad;
  if (call.alone) return saved ? attention_forward(q, k, v, options, *saved) : attention(q, k, v, options);
  ranks.same("rank_attention: the call", call.text);
  const AttentionOptions seeded = with_seed(options, ranks);
  HeadsExchange exchange(ranks, call);
  for (const HeadsOperand& x : operands) exchange.to_heads(x.rows, x.heads);
  exchange.wait();

  AttentionResult own;
  AttentionSaved own_saved{.output = {}, .max = {}, .sum = {}, .exact = saved != nullptr && saved->exact};
  HeadsResult output, logsumexp, weights, keys, max, sum, exact;
  at_every_rank(ranks, [&] {
    own = attention_call(
        operands[0].heads, operands[1].heads, operands[2].heads, options_of_heads(seeded, call.heads),
        {.function = call.function, .saved = saved != nullptr ? &own_saved : nullptr, .first_head = call.heads.begin});
    output = HeadsResult(call, own.output, call.q_heads);
    logsumexp = HeadsResult(call, one_column(own.logsumexp), call.q_heads);
    if (own.weights.defined()) weights = HeadsResult(call, own.weights, call.q_heads);
    if (own.weight_keys.defined()) keys = HeadsResult(call, own.weight_keys, call.q_heads);
    if (saved == nullptr) return;
    max = HeadsResult(call, one_column(own_saved.max), call.q_heads);
    sum = HeadsResult(call, one_column(own_saved.sum), call.q_heads);
    if (saved->exact && own_saved.output.dtype() != call.dtype)
      exact = HeadsResult(call, own_saved.output, call.q_heads);
  });
  for (const HeadsResult* x : {&output, &logsumexp, &weights, &keys, &max, &sum, &exact})
    if (x->rows.defined()) exchange.to_rows(x->heads, x->rows);
  exchange.wait();

  const auto given = [](const Tensor& memory, const Tensor& x) {
    if (!memory.defined()) return x;
    copy_values(memory, x);
    memory.bump_version();
    return memory;
  };
  AttentionResult result{.output = given(options.out, output.rows),
                         .weights = weights.rows,
                         .weight_keys = keys.rows,
                         .logsumexp = logsumexp.rows.squeeze(-1),
                         .dropout_seed = own.dropout_seed,
                         .plan = own.plan};
  if (saved != nullptr) {
    saved->output = exact.rows.defined() ? exact.rows : result.output.detach();
    saved->max = given(saved->max, max.rows.squeeze(-1));
    saved->sum = given(saved->sum, sum.rows.squeeze(-1));
    saved->dropout_seed = own.dropout_seed;
    saved->weight_keys = keys.rows;
  }
  return result;
}

AttentionGradients attention_backward_by_heads(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                               const Ranks& ranks, const AttentionOptions& options,
                                               const AttentionSaved& saved, const AttentionBackwardOptions& wanted) {
  const NoGrad no_grad;
  HeadsCall call;
  std::vector<HeadsOperand> operands;
  at_every_rank(ranks, [&] {
    call = check_heads_call("rank_attention_backward", q, k, v, length, ranks, options);
    if (call.alone) return;
    check_backward(call, saved, wanted);
    check_shared(call, options, wanted);
    call.text += text_of_backward(saved, wanted);
    for (const Tensor* x : {&q, &k, &v, &saved.output, &wanted.grad_output}) operands.emplace_back(call, *x);
    for (const Tensor* x : {&saved.max, &saved.sum, &wanted.grad_logsumexp})
      if (x->defined()) operands.emplace_back(call, one_column(*x));
  });
  if (call.alone) return attention_backward(q, k, v, options, saved, wanted);
  ranks.same("rank_attention_backward: the call", call.text);
  HeadsExchange exchange(ranks, call);
  for (const HeadsOperand& x : operands) exchange.to_heads(x.rows, x.heads);
  exchange.wait();

  AttentionGradients own, result;
  HeadsResult grad_q, grad_k, grad_v;
  std::vector<std::pair<Tensor*, WholeGradient>> whole;
  const std::size_t terms = options.bias.terms().size();
  at_every_rank(ranks, [&] {
    AttentionOptions of_heads = options_of_heads(options, call.heads);
    const HeadScore score = score_of_heads(options.score_mod, call.heads);
    of_heads.score_mod = score.expression;
    of_heads.weights = Weights::none;  // gradients come in through output and logsumexp
    const AttentionSaved of_saved{.output = operands[3].heads,
                                  .max = operands[5].heads.squeeze(-1),
                                  .sum = operands[6].heads.squeeze(-1),
                                  .dropout_seed = saved.dropout_seed,
                                  .exact = saved.exact};
    AttentionBackwardOptions of_wanted = wanted;
    of_wanted.grad_output = operands[4].heads;
    if (wanted.grad_logsumexp.defined()) of_wanted.grad_logsumexp = operands[7].heads.squeeze(-1);
    own = attention_backward_call(operands[0].heads, operands[1].heads, operands[2].heads, of_heads, of_saved,
                                  of_wanted, call.heads.begin);
    grad_q = HeadsResult(call, own.q, call.q_heads);
    if (wanted.k) grad_k = HeadsResult(call, own.k, call.k_heads);
    if (wanted.v) grad_v = HeadsResult(call, own.v, call.v_heads);
    const auto gather = [&](Tensor& to, const Tensor& x, int dim) {
      whole.emplace_back(&to, WholeGradient(ranks, call, x, dim));
    };
    result.bias.resize(terms);
    result.score_mod.reserve(own.score_mod.size());
    if (wanted.sinks && own.sinks.defined()) gather(result.sinks, own.sinks, 0);
    for (std::size_t n = 0; n < terms; ++n) {
      const Tensor& x = own.bias[n];
      if (!x.defined()) continue;
      const Bias::Kind kind = options.bias.terms()[n].kind;
      gather(result.bias[n], x, kind == Bias::Kind::alibi ? 0 : kind == Bias::Kind::relative ? 1 : x.dim() - 3);
    }
    for (const auto& [table, x] : own.score_mod) {
      const auto from = std::find_if(score.tables.begin(), score.tables.end(),
                                     [&](const HeadTable& each) { return each.own.impl() == table.impl(); });
      result.score_mod.emplace_back(from->whole, Tensor());
      if (x.defined()) gather(result.score_mod.back().second, x, from->dim);
    }
  });
  for (const HeadsResult* x : {&grad_q, &grad_k, &grad_v})
    if (x->rows.defined()) exchange.to_rows(x->heads, x->rows);
  Messages messages(ranks.transport());
  for (auto& [to, gradient] : whole) gradient.start(messages);
  exchange.wait();
  messages.wait();
  result.q = grad_q.rows, result.k = grad_k.rows, result.v = grad_v.rows;
  for (auto& [to, gradient] : whole) {
    gradient.finish();
    *to = gradient.result;
  }
  return result;
}

}  // namespace attn
