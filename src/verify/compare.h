// src/verify/compare.h: compares ways to compute cases bit by bit and computes the digest of their results.
#pragma once
#include <attn/verify.h>

#include "verify/run.h"

namespace attn::cases {

/// Computes FNV-1a of 64 bits over sizes and bytes. Source: Fowler, Noll, Vo 1991.
class Digest {
 public:
  void add(const Results& results);
  std::string text() const;

 private:
  void add_bytes(const void* data, std::size_t bytes);
  std::uint64_t state_ = 0xCBF29CE484222325u;
};

/// Computes the case of each line in each way, and compares the results. `progress` may be empty.
VerifyReport compare(const std::vector<std::string>& lines, const std::vector<Way>& ways,
                     const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace attn::cases
