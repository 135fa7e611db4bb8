// src/attention/cache/cache_pool.h: counts for each page of a cache how many sequences use it: 0 for a free page,
// several for a shared one.
#pragma once
#include <cstdint>
#include <vector>

namespace attn {

class PagePool {
 public:
  explicit PagePool(std::int64_t pages)
      : users_(static_cast<std::size_t>(pages), 0), free_(static_cast<std::size_t>(pages)) {
    for (std::size_t n = 0; n < free_.size(); ++n) free_[n] = static_cast<std::int32_t>(free_.size() - 1 - n);
  }

  std::int64_t pages() const noexcept { return static_cast<std::int64_t>(users_.size()); }
  std::int64_t free() const noexcept { return static_cast<std::int64_t>(free_.size()); }
  std::int32_t users(std::int32_t page) const noexcept { return users_[static_cast<std::size_t>(page)]; }

  /// Takes a free page and returns it, with one user. There must be a free page. These functions allocate nothing:
  /// `free_` never exceeds its initial capacity.
  std::int32_t take() noexcept {
    const std::int32_t page = free_.back();
    free_.pop_back();
    users_[static_cast<std::size_t>(page)] = 1;
    return page;
  }
  void share(std::int32_t page) noexcept { ++users_[static_cast<std::size_t>(page)]; }
  void drop(std::int32_t page) noexcept {
    if (--users_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
  }

 private:
  std::vector<std::int32_t> users_, free_;
};

}  // namespace attn
