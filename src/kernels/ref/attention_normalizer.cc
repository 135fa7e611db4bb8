// src/kernels/ref/attention_normalizer.cc: computes attention with other normalizers than softmax and with functions of
// the weight, in plain loops. This order of operations is the definition (docs/numerics.md section 13); every kernel
// has its bits.
#include "kernels/ref/attention_gradient.h"
#include "kernels/ref/dropped.h"
#include "kernels/ref/normalizer_pairs.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

/// Computes the rows of one (batch, head).
template <typename T>
class NormalizedRows {
 public:
  static std::int64_t elements(const AttentionProblem& p) {
    return RowScores<T>::elements(p.dim) + 3 * p.value_dim + p.k_rows;
  }

  NormalizedRows(const AttentionProblem& p, const Task& tile, T* scratch)
      : p_(p), stage_(*p.normalization), task_(tile), b_(tile.batch), h_(tile.head), scores_(p, tile, scratch) {
    v_ = scratch + RowScores<T>::elements(p.dim);
    chain_ = v_ + p.value_dim;
    total_ = chain_ + p.value_dim;
    s_ = total_ + p.value_dim;
    begin_ = p.keys_begin(tile);
    end_ = p.keys_end(tile);
  }

  void row(std::int64_t i) {
    i_ = i;
    clear(total_);
    m_ = -infinity<T>();
    t_ = 0;
    if (i < p_.rows_end(task_) && find_scores()) {
      find_numbers();
      for (std::int64_t first = begin_; first < end_; first += block_keys)
        block(first, first + block_keys < end_ ? first + block_keys : end_);
    }
    const std::int64_t out = b_ * p_.out_stride[0] + h_ * p_.out_stride[1] + i * p_.out_stride[2];
    if (p_.out != nullptr)
      for (std::int64_t d = 0; d < p_.value_dim; ++d) store(p_.out, p_.element, out + d, total_[d]);
    save(p_.max, stage_.is_coupled() ? m_ : T(0));
    save(p_.sum, t_);
    if (stage_.op == NormalizerOp::softmax)
      save(p_.logsumexp, t_ != 0 ? fma(log2(t_), Constants<T>::ln2, m_) : -infinity<T>());
  }

 private:
  /// pass 1: the scores of the row, -inf where it does not see the key. Returns whether it sees some key.
  bool find_scores() {
    bool any = false;
    scores_.begin_row(i_);
    for (std::int64_t j = begin_; j < end_; ++j) {
      T s;
      const bool seen = scores_.visible(j, true, s);
      s_[j - begin_] = seen ? s : -infinity<T>();
      if (task_.lane_weights != nullptr) return_weight(j, 0);
      any = any || seen;
    }
    return any;
  }

  /// pass 2: the maximum m, and t: softmax's l or the threshold.
  void find_numbers() {
    for (std::int64_t n = 0; n < end_ - begin_; ++n) m_ = s_[n] > m_ ? s_[n] : m_;
    switch (stage_.op) {
      case NormalizerOp::softmax: return find_sum();
      case NormalizerOp::sparsemax:
      case NormalizerOp::entmax15: return find_threshold();
      default: t_ = 1;
    }
  }
  /// Calls visit(score) for the visible keys of a block.
  template <typename F>
  void each_key(std::int64_t first, F&& visit) const {
    const std::int64_t last = first + block_keys < end_ ? first + block_keys : end_;
    for (std::int64_t j = first; j < last; ++j)
      if (s_[j - begin_] != -infinity<T>()) visit(s_[j - begin_]);
  }
  T reference() const { return m_ == -infinity<T>() ? T(0) : m_; }
  void find_sum() {
    const bool sink = p_.sinks != nullptr;
    const T extra = sink ? static_cast<const T*>(p_.sinks)[h_] : T(0);
    if (sink && extra > m_) m_ = extra;
    for (std::int64_t first = begin_; first < end_; first += block_keys) {
      T chain = 0;
      each_key(first, [&](T s) { chain = chain + weighed(NormalizerOp::softmax, s, reference(), T(1)).weight; });
      t_ = t_ + chain;
    }
    if (sink) t_ = t_ + weighed(NormalizerOp::softmax, extra, reference(), T(1)).weight;
  }
  void find_threshold() {
    t_ = -1;
    for (;;) {
      T first = 0, second = 0;
      for (std::int64_t block = begin_; block < end_; block += block_keys) {
        T a = 0, b = 0;
        each_key(block, [&](T s) {
          const T z = below_maximum(stage_.op, s, reference());
          if (!(z > t_)) return;
          const T x = z - t_;
          a = stage_.op == NormalizerOp::sparsemax ? a + z : fma(x, x, a);
          b = b + (stage_.op == NormalizerOp::sparsemax ? T(1) : x);
        });
        first = first + a;
        second = second + b;
      }
      const T root = sqrt(first);
      const T next = stage_.op == NormalizerOp::sparsemax ? (first - 1) / second : t_ + (root - 1) * root / second;
      if (!(next > t_)) return;
      t_ = next;
    }
  }

  /// pass 3: the weights of a block, and their products with the rows of V: a chain over its keys, then one sum.
  void block(std::int64_t first, std::int64_t last) {
    const bool coupled = stage_.is_coupled();
    const T m = coupled ? reference() : number_of_item<T>(p_, task_),
            t = stage_.op == NormalizerOp::softmax ? T(1) / t_ : t_;
    clear(chain_);
    for (std::int64_t j = first; j < last; ++j) {
      const T s = s_[j - begin_];
      if (s == -infinity<T>()) continue;
      T weight = weighed(stage_.op, s, m, t).weight;
      if (!stage_.weight_mod.empty()) weight = ScoreMachine<T>(stage_.weight_mod, p_, {task_, h_, i_, j}).run(weight);
      if (p_.drops(task_)) weight = is_dropped(p_, task_, h_, i_, j) ? T(0) : weight * static_cast<T>(p_.keep_scale);
      if (task_.lane_weights != nullptr) return_weight(j, canonical(weight) + T(0));
      load_row(p_.v, p_.v_stride, b_, h_ / (p_.q_heads / p_.v_heads), j, p_.value_dim, v_);
      for (std::int64_t d = 0; d < p_.value_dim; ++d) chain_[d] = fma(v_[d], weight, chain_[d]);
    }
    for (std::int64_t d = 0; d < p_.value_dim; ++d) total_[d] = total_[d] + chain_[d];
  }

  void return_weight(std::int64_t j, T weight) const {
    static_cast<T*>(task_.lane_weights)[(j - begin_) * task_.lane_rows + (i_ - task_.row)] = weight;
  }
  void save(void* array, T value) const {
    if (array != nullptr) static_cast<T*>(array)[(b_ * p_.q_heads + h_) * p_.q_rows + i_] = canonical(value);
  }
  void clear(T* x) const {
    for (std::int64_t d = 0; d < p_.value_dim; ++d) x[d] = 0;
  }

  const AttentionProblem& p_;
  const Normalization& stage_;
  const Task& task_;
  std::int64_t b_, h_, i_ = 0, begin_ = 0, end_ = 0;
  RowScores<T> scores_;
  T *v_, *chain_, *total_;
  T* s_;  // the row's scores
  T m_ = 0, t_ = 0;
};

std::size_t normalized_bytes(const AttentionProblem& p) { return bytes_for<NormalizedRows>(p); }
bool normalized_rows(const AttentionProblem& p, const Task& tile, void* scratch) {
  by_compute_type(p.element, [&]<typename T>(T) {
    NormalizedRows<T> of_head(p, tile, static_cast<T*>(scratch));
    for (std::int64_t i = tile.row; i < tile.row + tile.rows; ++i) of_head.row(i);
  });
  return true;
}

template <typename T>
using NormalizedStep = Step<T, NormalizedPairs<T>>;

}  // namespace

extern const NormalizerKernel normalizer_kernel;
const NormalizerKernel normalizer_kernel = {
    .scratch_bytes = normalized_bytes,
    .rows = normalized_rows,
    .gradient = step_kernel<NormalizedStep>(),
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
