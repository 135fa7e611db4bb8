// tests/attention/cache_bytes_test.cc: random calls over caches of 8 bits that hold their numbers exactly: the bits of
// the same cache in its own dtype, however rows are read, whatever query sees them.
#include <attn/cache.h>
#include <attn/ops.h>

#include "attention/truth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

namespace attn::testing {
namespace {

/// A call, drawn.
class RandomCall {
 public:
  explicit RandomCall(unsigned seed) : random_(seed), seed_(seed) {
    dtype_ = one_of<Dtype>({Dtype::f32, Dtype::f32, Dtype::bf16, Dtype::bf16, Dtype::f16, Dtype::f64});
    const auto columns = [&] {
      return one_of<std::int64_t>(
          {16, 32, 48, 64, 64, 80, 96, 128, 144, 192, 256, 1, 7, 20, 24, 40, 65, 72, 83, 100, 120, 152});
    };
    dim_ = columns();
    value_dim_ = chance(50) ? dim_ : columns();
    key_heads_ = one_of<std::int64_t>({1, 2});
    value_heads_ = chance(75) ? key_heads_ : 1;
    heads_ = key_heads_ * one_of<std::int64_t>({1, 2, 3, 4, 8});
    // bf16 in groups is computed in f32
    group_ = dtype_ == Dtype::bf16 || chance(40) ? 0 : one_of<std::int64_t>({16, 16, 32, 64, 4, 5, 8, 24});
    page_rows_ = one_of<std::int64_t>({0, 16, 16, 32, 64, 256});
    fill();
    rows_ = chance(75) ? 1 + pick(9) : 10 + pick(90);
    draw_options();
  }

  /// Over the same rows in 8 bits and in the dtype itself.
  void compare() {
    const Tensor q = normal({static_cast<std::int64_t>(bytes_.size()), heads_, rows_, dim_}, seed_, dtype_);
    const AttentionResult given = attention_cached(q, *in_bytes_, bytes_, options_),
                          expected = attention_cached(q, *as_they_are_, plain_, options_);
    const std::string about = line() + given.plan.kernel();
    ASSERT_TRUE(same_bits(given.output, expected.output)) << about;
    ASSERT_TRUE(same_bits(given.logsumexp, expected.logsumexp)) << about;
    ASSERT_EQ(given.weights.defined(), expected.weights.defined());
    if (given.weights.defined()) { ASSERT_TRUE(same_bits(given.weights, expected.weights)) << about; }
  }

 private:
  std::int64_t pick(std::int64_t below) { return static_cast<std::int64_t>(random_() % static_cast<unsigned>(below)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[pick(static_cast<std::int64_t>(values.size()))];
  }
  std::string line() const {
    return (::testing::Message() << name_of(dtype_) << " D " << dim_ << " Dv " << value_dim_ << " heads " << heads_
                                 << "/" << key_heads_ << "/" << value_heads_ << " group " << group_ << " page "
                                 << page_rows_ << " lengths " << ::testing::PrintToString(lengths_) << " rows " << rows_
                                 << " mask " << options_.mask.to_string() << " dropout " << options_.dropout_p
                                 << " weights " << options_.weights.kind << " ")
        .GetString();
  }

  /// Whole numbers times a power of two for each of its groups, of which 127 is one: 8 bits hold them. Some rows are
  /// NaN.
  Tensor rows_of(std::int64_t heads, std::int64_t rows, std::int64_t columns) {
    const std::int64_t width = group_ == 0 ? columns : group_;
    std::vector<float> values;
    for (std::int64_t r = 0; r < heads * rows; ++r) {
      const bool nan = has_nan_ && pick(100) == 0;
      float step = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        if (c % width == 0) step = std::ldexp(1.0F, static_cast<int>(pick(5)) - 9);
        values.push_back(nan ? std::numeric_limits<float>::quiet_NaN()
                             : step * static_cast<float>(c % width == 0 ? 127 : pick(255) - 127));
      }
    }
    return tensor<float>(values).reshape({heads, rows, columns}).to(dtype_);
  }

  void fill() {
    KvCacheOptions options{.key_heads = key_heads_,
                           .value_heads = value_heads_,
                           .head_dim = dim_,
                           .value_dim = value_dim_,
                           .page_rows = page_rows_,
                           .pages = page_rows_ == 0 ? 4 : 5000 / page_rows_,
                           .dtype = dtype_};
    as_they_are_.emplace(options);
    options.storage = KvStorage::int8;
    options.scale_group = static_cast<int>(group_);
    in_bytes_.emplace(options);
    has_nan_ = chance(15);
    const auto both = [&](auto&& act) {
      act(*as_they_are_, plain_);
      act(*in_bytes_, bytes_);
    };
    const int kind = static_cast<int>(pick(10));
    for (std::int64_t b = 0, batch = 1 + pick(3); b < batch; ++b) {
      const bool shares = b > 0 && chance(30);
      both([&](KvCache& cache, std::vector<KvSequence>& all) {
        all.push_back(shares ? cache.fork(all.back()) : cache.create());
      });
      const std::int64_t wanted = kind < 5 ? pick(80) : kind < 9 ? pick(320) : 1000 + pick(200);
      for (std::int64_t count; (count = wanted - in_bytes_->length(bytes_.back())) > 0;) {
        count = std::min(count, 1 + pick(200));
        const Tensor k = rows_of(key_heads_, count, dim_), v = rows_of(value_heads_, count, value_dim_);
        both([&](KvCache& cache, const std::vector<KvSequence>& all) { cache.append(all.back(), k, v); });
      }
      if (const std::int64_t length = in_bytes_->length(bytes_.back()); chance(20)) {
        const std::int64_t first = pick(length + 1);
        both([&](KvCache& cache, const std::vector<KvSequence>& all) { cache.evict(all.back(), first); });
      }
      lengths_.push_back(in_bytes_->length(bytes_.back()));
    }
  }

  void draw_options() {
    const std::int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    switch (pick(7)) {
      case 0:
      case 1: break;
      case 2:
      case 3: options_.mask = Mask::causal(Align::bottom_right); break;
      case 4: options_.mask = Mask::window(pick(90), pick(3), Align::bottom_right); break;
      case 5: options_.mask = Mask::window(pick(9), 0, Align::bottom_right) | Mask::prefix(pick(40)); break;
      default:
        if (longest == 0) break;
        const Tensor sees = empty({1, heads_, rows_, longest}, Dtype::boolean);
        for (std::int64_t n = 0, run = 1 + pick(40); n < sees.numel(); ++n) sees.data<bool>()[n] = n / run % 2 == 0;
        options_.mask = Mask::attend(sees);
    }
    switch (pick(8)) {
      case 0: options_.softcap = 5; break;
      case 1: {
        const Tensor slopes = Bias::alibi_slopes(heads_);
        // bf16 with a bias of bf16 is computed in f32
        options_.bias = Bias::alibi(chance(50) ? slopes : slopes.to(dtype_), Align::bottom_right);
        break;
      }
      case 2: options_.temperature = 1.7; break;
      default: break;
    }
    if (chance(15)) options_.sinks = normal({heads_}, seed_ + 1, dtype_ == Dtype::f64 ? Dtype::f64 : Dtype::f32);
    if (chance(15)) {
      options_.dropout_p = 0.3;
      options_.dropout_seed = 7;
    }
    if (chance(25)) options_.weights = one_of<Weights>({Weights::full, Weights::head_average, Weights::column_sums});
  }

  std::mt19937 random_;
  unsigned seed_;
  Dtype dtype_ = Dtype::f32;
  std::int64_t dim_ = 0, value_dim_ = 0, heads_ = 0, key_heads_ = 0, value_heads_ = 0, group_ = 0, page_rows_ = 0,
               rows_ = 0;
  bool has_nan_ = false;
  std::vector<std::int64_t> lengths_;
  std::optional<KvCache> as_they_are_, in_bytes_;
  std::vector<KvSequence> plain_, bytes_;
  AttentionOptions options_;
};

TEST(CacheBytes, RandomCallsHaveTheBitsOfTheSameRowsInTheirOwnDtype) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    RandomCall(seed).compare();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace attn::testing
