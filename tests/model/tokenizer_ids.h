// tests/model/tokenizer_ids.h: compares a tokenizer's ids with those of a golden file.
#pragma once
#include <attn/tokenizer.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace attn::testing {

inline void expect_ids(const Tokenizer& tokenizer, const nlohmann::json& strings, const nlohmann::json& ids,
                       const std::string& name) {
  for (std::size_t i = 0; i < strings.size(); ++i)
    EXPECT_EQ(tokenizer.encode(strings[i].get<std::string>()), ids[i].get<std::vector<std::int64_t>>())
        << name << ", string " << i << ": " << strings[i];
}

}  // namespace attn::testing
