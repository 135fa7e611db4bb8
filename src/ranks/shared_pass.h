// src/ranks/shared_pass.h: a pass of a model that ranks share, which an error of one rank ends at all of them.
#pragma once
#include <attn/ranks.h>

#include "ranks/messages.h"

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

namespace attn {

/// Ranks exchange what each has computed many times in a pass, and no agreement comes before an exchange: that would be
/// a collective call more for each. A rank that fails leaves instead: it sends each other rank an empty message in
/// place of its next one, and a rank that receives one leaves too. All messages of a pass have at least a byte.
class SharedPass {
 public:
  explicit SharedPass(const Ranks& ranks)
      : ranks_(ranks), has_left_(static_cast<std::size_t>(ranks.size())), farewells_(has_left_.size()) {}

  /// Returns what `work` returns. If it throws at any rank, every rank throws: its own exception if all have the same
  /// text, as for a wrong argument, else a RankError. `joins`: exchanges in which every rank sends to every other one;
  /// after the last of them an error is thrown at this rank only, because the others do not check for it.
  Tensor run(std::int64_t joins, const std::function<Tensor()>& work);
  /// For `work`: waits for the messages of an exchange. It must not fail between its first message and this.
  void wait(Messages& messages);
  /// For `work`: one of the joins is over.
  void has_joined() { --joins_left_; }

 private:
  bool all_fail(const std::exception_ptr& mine) const;
  void leave();
  const Ranks ranks_;
  std::vector<char> has_left_;  // whose last message has come
  std::vector<Transport::Request> farewells_;
  std::int64_t joins_left_ = 0;
};

}  // namespace attn
