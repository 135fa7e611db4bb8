// src/kernels/ref/attention.cc: computes the forward pass in plain loops. This order of operations is the definition;
// every kernel has its bits, except those of bf16 products (docs/numerics.md section 3.8).
#include "kernels/attention/reference.h"
#include "kernels/ref/attention_score.h"
#include "kernels/ref/dropped.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

constexpr std::int64_t block_keys = 64;  // fixed: part of the order of operations
constexpr std::int64_t kv_split = 1024;  // fixed: part of the order of operations

/// State of the online softmax: the largest score, the sum of exp2((s - m) log2e), and the sum of these weights times
/// v.
template <typename T>
struct Sums {
  T m, l;
  T* o;
  bool any;  // a visible pair was accumulated
};

/// Computes one head of a task, row by row.
template <typename T>
class Rows {
 public:
  static std::int64_t elements(const AttentionProblem& p) {
    return RowScores<T>::elements(p.dim) + 4 * p.value_dim + 2 * block_keys;
  }

  Rows(const AttentionProblem& p, const Task& task, T* scratch)
      : p_(p), task_(task), b_(task.batch), h_(task.head), group_(task.head / (p.q_heads / p.v_heads)),
        scores_(p, task, scratch) {
    v_ = scratch + RowScores<T>::elements(p.dim);
    block_o_ = v_ + p.value_dim;
    span_o_ = block_o_ + p.value_dim;
    total_o_ = span_o_ + p.value_dim;
    s_ = total_o_ + p.value_dim;
    kept_ = s_ + block_keys;
  }

  void attend(std::int64_t i) {
    i_ = i;
    Sums<T> total = before();
    if (i < p_.rows_end(task_)) {
      scores_.begin_row(i);
      over_keys(total);
      if (total.any && p_.sinks != nullptr && p_.totals.ends) add_sink(total, static_cast<const T*>(p_.sinks)[h_]);
    }
    if (!p_.totals.ends) return keep(total);
    write(total);
    if (p_.weights != nullptr || task_.lane_row != nullptr) write_weights(total);
  }

  void scores(std::int64_t i) {
    i_ = i;
    scores_.begin_row(i);
    for (std::int64_t j = 0; j < p_.k_rows; ++j) weights_row()[j] = canonical(scores_.score(j));
  }

 private:
  Sums<T> nothing(T* o) const {
    for (std::int64_t d = 0; d < p_.value_dim; ++d) o[d] = 0;
    return {-infinity<T>(), 0, o, false};
  }

  /// Returns the totals over earlier keys; `keep` writes those for later ones.
  Sums<T> before() const {
    Sums<T> total = nothing(total_o_);
    if (p_.totals.begins) return total;
    const std::int64_t row = (b_ * p_.q_heads + h_) * p_.q_rows + i_;
    for (std::int64_t d = 0; d < p_.value_dim; ++d)
      total.o[d] = static_cast<const T*>(p_.totals.output)[row * p_.value_dim + d];
    total.m = static_cast<const T*>(p_.totals.max)[row];
    total.l = static_cast<const T*>(p_.totals.sum)[row];
    total.any = total.l != 0;  // the largest score alone adds 1
    return total;
  }
  void keep(const Sums<T>& total) const {
    const std::int64_t row = (b_ * p_.q_heads + h_) * p_.q_rows + i_;
    for (std::int64_t d = 0; d < p_.value_dim; ++d)
      static_cast<T*>(p_.totals.output)[row * p_.value_dim + d] = canonical(total.o[d]);
    save(p_.totals.max, total.m);
    save(p_.totals.sum, total.l);
  }

  /// Sums over blocks of 64 keys from the first key on, within splits of 1,024 keys; then merges the splits in
  /// ascending order.
  void over_keys(Sums<T>& total) {
    const std::int64_t origin = p_.keys_begin(task_), end = p_.keys_end(task_);
    for (std::int64_t split = origin; split < end; split += kv_split) {
      const std::int64_t split_end = split + kv_split < end ? split + kv_split : end;
      Sums<T> part = nothing(span_o_);
      for (std::int64_t first = split; first < split_end; first += block_keys)
        accumulate_block(first, first + block_keys < split_end ? first + block_keys : split_end, part);
      if (part.any) merge(total, part);
    }
  }

  void accumulate_block(std::int64_t first, std::int64_t end, Sums<T>& sums) {
    const Visibility visibility = classify(p_, task_, {i_, i_ + 1, first, end, h_});
    if (visibility == Visibility::empty) return;
    // pass 1: scores of the pairs that the row sees; a block in which it sees no key is skipped
    std::int64_t key[block_keys];
    std::int64_t count = 0;
    for (std::int64_t j = first; j < end; ++j)
      if (scores_.visible(j, visibility == Visibility::partial, s_[count])) key[count++] = j;
    if (count == 0) return;
    // pass 2: the running maximum; `alpha` rescales the earlier sums
    T m = sums.m;
    for (std::int64_t n = 0; n < count; ++n) m = s_[n] > m ? s_[n] : m;
    const T alpha = sums.m == -infinity<T>() ? T(0) : weight_of(sums.m, m);
    // pass 3: exp2 and the sum of the block; dropout comes after the sum
    T sum = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      const T weight = weight_of(s_[n], m);
      sum = sum + weight;
      kept_[n] = dropped(key[n]) ? T(0) : kept(weight);
    }
    // pass 4: the output of the block, one chain over its keys, added with one fma
    for (std::int64_t d = 0; d < p_.value_dim; ++d) block_o_[d] = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      load_row(p_.v, p_.v_stride, b_, group_, key[n], p_.value_dim, v_);
      for (std::int64_t d = 0; d < p_.value_dim; ++d) block_o_[d] = fma(kept_[n], v_[d], block_o_[d]);
    }
    for (std::int64_t d = 0; d < p_.value_dim; ++d) sums.o[d] = fma(sums.o[d], alpha, block_o_[d]);
    sums.l = fma(sums.l, alpha, sum);
    sums.m = m;
    sums.any = true;
  }

  void merge(Sums<T>& total, const Sums<T>& part) const {
    const T m = part.m > total.m ? part.m : total.m;
    const T a = total.any ? weight_of(total.m, m) : T(0), b = weight_of(part.m, m);
    total.l = fma(total.l, a, part.l * b);
    for (std::int64_t d = 0; d < p_.value_dim; ++d) total.o[d] = fma(total.o[d], a, part.o[d] * b);
    total.m = m;
    total.any = true;
  }

  /// Adds a logit that takes weight and has no value.
  void add_sink(Sums<T>& total, T sink) const {
    const T m = sink > total.m ? sink : total.m;
    const T alpha = weight_of(total.m, m);
    total.l = fma(total.l, alpha, weight_of(sink, m));
    for (std::int64_t d = 0; d < p_.value_dim; ++d) total.o[d] = total.o[d] * alpha;
    total.m = m;
  }

  void write(const Sums<T>& total) const {
    const std::int64_t start = b_ * p_.out_stride[0] + h_ * p_.out_stride[1] + i_ * p_.out_stride[2];
    const T inverse = total.any ? T(1) / total.l : T(0);
    if (p_.out != nullptr)
      for (std::int64_t d = 0; d < p_.value_dim; ++d)
        store(p_.out, p_.element, start + d, fma(total.o[d], inverse, T(0)));
    save(p_.max, total.m);
    save(p_.sum, total.l);
    save(p_.logsumexp, total.any ? fma(log2(total.l), Constants<T>::ln2, total.m) : -infinity<T>());
  }

  void save(void* array, T value) const {
    if (array != nullptr) static_cast<T*>(array)[(b_ * p_.q_heads + h_) * p_.q_rows + i_] = canonical(value);
  }

  /// Writes exp2((s - m) log2e) (1 / l) with the final m and l, after dropout; exactly 0 if the row does not see the
  /// key.
  void write_weights(const Sums<T>& total) {
    const T inverse = T(1) / total.l;
    for (std::int64_t j = 0; j < p_.k_rows; ++j) {
      T s;
      // dropped() takes the key's position, which only a visible key has
      const bool some = total.any && scores_.visible(j, true, s) && !dropped(j);
      weights_row()[j] = some ? canonical(kept(weight_of(s, total.m) * inverse)) : T(0);
    }
  }

  bool dropped(std::int64_t j) const { return is_dropped(p_, task_, h_, i_, j); }
  T kept(T weight) const { return p_.drops(task_) ? weight * static_cast<T>(p_.keep_scale) : weight; }

  T* weights_row() const {
    if (task_.lane_row != nullptr) return static_cast<T*>(task_.lane_row);
    return static_cast<T*>(p_.weights) + b_ * p_.weights_stride[0] + h_ * p_.weights_stride[1] +
           i_ * p_.weights_stride[2];
  }

  const AttentionProblem& p_;
  const Task& task_;
  std::int64_t b_, h_, group_, i_ = 0;
  RowScores<T> scores_;
  T* v_;        // a row of V
  T* block_o_;  // output of a block, of a split, of all splits
  T* span_o_;
  T* total_o_;
  T* s_;     // scores of the visible pairs of a block
  T* kept_;  // weights of these pairs after dropout
};

std::size_t scratch_bytes(const AttentionProblem& p) noexcept { return bytes_for<Rows>(p); }

enum class Want : bool { output, scores };

template <Want want>
void rows(const AttentionProblem& p, const Task& task, void* scratch) noexcept {
  by_compute_type(p.element, [&]<typename T>(T) {
    Rows<T> rows(p, task, static_cast<T*>(scratch));
    for (std::int64_t i = task.row; i < task.row + task.rows; ++i)
      want == Want::output ? rows.attend(i) : rows.scores(i);
  });
}

void score_mod(const AttentionProblem& p, const Task& task) noexcept {
  by_compute_type(p.element, [&]<typename T>(T) {
    for (std::int64_t i = task.row; i < task.row + task.rows; ++i) {
      T* s = static_cast<T*>(p.weights) + task.batch * p.weights_stride[0] + task.head * p.weights_stride[1] +
             i * p.weights_stride[2];
      for (std::int64_t j = 0; j < p.k_rows; ++j)
        if (exists(p, task, i, j)) s[j] = canonical(ScoreMachine<T>(p, {task, task.head, i, j}).run(s[j]));
    }
  });
}

}  // namespace

extern const AttentionReference attention_table;
const AttentionReference attention_table = {
    .scratch_bytes = scratch_bytes,
    .rows = rows<Want::output>,
    .scores = rows<Want::scores>,
    .score_mod = score_mod,
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
