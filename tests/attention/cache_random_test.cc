// tests/attention/cache_random_test.cc: a million random operations on a cache, each compared with a plain model of
// rows and shared pages, and the bits of what is decoded from it.
#include <attn/cache.h>
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace attn::testing {
namespace {

constexpr std::int64_t page_rows = 16, pages = 24;
constexpr int evicted = -1;

/// A sequence as one would write it without a thought of speed: a number a row, a page by its name.
struct Plain {
  KvSequence handle;
  std::vector<float> rows;
  std::int64_t first = 0;
  std::vector<int> table;
  std::int64_t length() const { return static_cast<std::int64_t>(rows.size()); }
};

class Model {
 public:
  explicit Model(unsigned seed) : random_(seed) {}

  void step() {
    const int what = pick(100);
    if (plain_.empty() || what < 4) return create();
    if (what < 60) return append();
    if (what < 70) return fork();
    if (what < 82) return truncate();
    if (what < 90) return evict();
    if (what < 95) return release();
    compare(plain_[any()]);
    decode();
  }
  void agree() {
    for (const Plain& s : plain_) {
      ASSERT_EQ(cache_.length(s.handle), s.length());
      ASSERT_EQ(cache_.first(s.handle), s.first);
    }
    ASSERT_EQ(cache_.free_pages(), pages - used_pages());
    for (const KvSequence& handle : gone_) ASSERT_FALSE(cache_.alive(handle));
  }
  void finish() {
    for (const Plain& s : plain_) compare(s);
    while (!plain_.empty()) release();
    EXPECT_EQ(cache_.free_pages(), pages);
    EXPECT_GT(full_, 100) << "the pool was full now and then";
    EXPECT_GT(copied_, 100) << "shared pages were copied";
    EXPECT_GT(decoded_, 10'000);
  }

 private:
  int pick(std::int64_t below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  std::size_t any() { return static_cast<std::size_t>(pick(static_cast<std::int64_t>(plain_.size()))); }

  void create() {
    if (plain_.size() < 12) plain_.push_back({.handle = cache_.create(), .rows = {}, .first = 0, .table = {}});
  }
  void fork() {
    if (plain_.size() >= 12) return;
    Plain copy = plain_[any()];
    copy.handle = cache_.fork(copy.handle);
    plain_.push_back(std::move(copy));
  }
  void release() {
    const std::size_t n = any();
    cache_.release(plain_[n].handle);
    gone_[gone_at_++ % gone_.size()] = plain_[n].handle;
    plain_.erase(plain_.begin() + static_cast<std::ptrdiff_t>(n));
  }
  void truncate() {
    Plain& s = plain_[any()];
    const std::int64_t length = pick(s.length() + 1);
    cache_.truncate(s.handle, length);
    s.rows.resize(static_cast<std::size_t>(length));
    s.table.resize(static_cast<std::size_t>((length + page_rows - 1) / page_rows));
    s.first = std::min(s.first, length);
  }
  void evict() {
    Plain& s = plain_[any()];
    const std::int64_t position = pick(s.length() + 1);
    cache_.evict(s.handle, position);
    s.first = std::max(s.first, position);
    for (std::int64_t page = 0; (page + 1) * page_rows <= position; ++page)
      s.table[static_cast<std::size_t>(page)] = evicted;
  }

  /// To one sequence or two, all rows or none.
  void append() {
    const int rows = pick(4) == 0 ? pick(40) : pick(3);
    std::vector<std::size_t> chosen{any()};
    if (const std::size_t other = any(); other != chosen[0] && pick(2) == 0) chosen.push_back(other);
    const Tensor k = empty({static_cast<std::int64_t>(chosen.size()), 1, rows, 1}, Dtype::f32),
                 v = empty(k.sizes(), Dtype::f32);
    std::vector<Plain> before;
    std::vector<KvSequence> handles;
    std::int64_t n = 0;
    for (const std::size_t c : chosen) {
      before.push_back(plain_[c]);
      handles.push_back(plain_[c].handle);
      for (int r = 0; r < rows; ++r, ++n) {
        k.data<float>()[n] = next_;
        v.data<float>()[n] = -next_;
        push(plain_[c], next_);
        next_ = next_ < 1e6F ? next_ + 1 : 1;
      }
    }
    const bool fits = used_pages() <= pages;
    try {
      chosen.size() == 1 ? cache_.append(handles[0], k[0], v[0]) : cache_.append(handles, k, v);
      ASSERT_TRUE(fits);
    } catch (const KvCacheFull&) {
      ASSERT_FALSE(fits);
      ++full_;
      for (std::size_t c = 0; c < chosen.size(); ++c) plain_[chosen[c]] = before[c];
    }
  }
  void push(Plain& s, float row) {
    if (s.length() % page_rows == 0) {
      s.table.push_back(next_page_++);
    } else if (s.table.back() == evicted || users(s.table.back()) > 1) {
      copied_ += s.table.back() != evicted;
      s.table.back() = next_page_++;
    }
    s.rows.push_back(row);
  }
  std::int64_t users(int page) const {
    std::int64_t count = 0;
    for (const Plain& s : plain_) count += std::count(s.table.begin(), s.table.end(), page);
    return count;
  }
  std::int64_t used_pages() {
    all_.clear();
    for (const Plain& s : plain_)
      for (const int page : s.table)
        if (page != evicted) all_.push_back(page);
    std::sort(all_.begin(), all_.end());
    return std::unique(all_.begin(), all_.end()) - all_.begin();
  }

  void compare(const Plain& s) {
    const KvCache::Rows rows = cache_.gather({s.handle});
    ASSERT_EQ(rows.k.size(2), s.length());
    for (std::int64_t j = 0; j < s.length(); ++j) {
      const float expected = j < s.first ? 0 : s.rows[static_cast<std::size_t>(j)];
      ASSERT_EQ(rows.k.data<float>()[j], expected);
      ASSERT_EQ(rows.v.data<float>()[j], expected == 0 ? 0 : -expected);
    }
  }

  /// Some sequences in one call, each at its own length: the bits of each alone, from rows side by side.
  void decode() {
    std::vector<std::size_t> chosen;
    for (std::size_t n = 0; n < plain_.size(); ++n)
      if (pick(3) == 0) chosen.push_back(n);
    if (chosen.empty()) return;
    std::vector<KvSequence> handles;
    for (const std::size_t c : chosen) handles.push_back(plain_[c].handle);
    const Tensor q = empty({static_cast<std::int64_t>(chosen.size()), 2, 1, 1});
    for (std::int64_t n = 0; n < q.numel(); ++n) q.data<float>()[n] = static_cast<float>(pick(64) - 32) / 16;
    const AttentionResult together = attention_cached(q, cache_, handles, {.mask = Mask::causal()});
    for (std::size_t c = 0; c < chosen.size(); ++c) {
      const Plain& s = plain_[chosen[c]];
      const Tensor k = empty({1, 1, s.length(), 1}), v = empty(k.sizes());
      for (std::int64_t j = 0; j < s.length(); ++j)
        v.data<float>()[j] = -(k.data<float>()[j] = s.rows[static_cast<std::size_t>(j)]);
      const auto b = static_cast<std::int64_t>(c);
      const AttentionResult alone = attention(q.slice(0, b, b + 1), k, v, {.mask = ~Mask::prefix(s.first)});
      ASSERT_TRUE(same_bits(together.output.slice(0, b, b + 1), alone.output));
      ASSERT_TRUE(same_bits(together.logsumexp.slice(0, b, b + 1), alone.logsumexp));
      ++decoded_;
    }
  }

  KvCache cache_{{.key_heads = 1, .head_dim = 1, .page_rows = page_rows, .pages = pages}};
  std::mt19937 random_;
  std::vector<Plain> plain_;
  std::array<KvSequence, 16> gone_ = {};
  std::size_t gone_at_ = 0;
  std::vector<int> all_;
  float next_ = 1;
  int next_page_ = 0, full_ = 0, copied_ = 0, decoded_ = 0;
};

TEST(CacheRandom, AMillionOperationsAgreeWithAPlainModel) {
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    Model model(seed);
    for (int n = 0; n < 250'000; ++n) {
      model.step();
      model.agree();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", operation " << n;
    }
    model.finish();
  }
}

}  // namespace
}  // namespace attn::testing
