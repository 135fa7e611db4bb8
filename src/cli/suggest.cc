// src/cli/suggest.cc: finds similar words by their edit distance, which counts swaps of adjacent letters as one edit
// (Damerau 1964).
#include "cli/suggest.h"

#include <algorithm>

namespace attn::cli {

int edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(i + j);
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::string nearest(const std::string& given, const std::vector<std::string>& known) {
  std::string best;
  int fewest = 1 << 20;
  for (const std::string& word : known) {
    const int distance = edits(given, word);
    if (distance < fewest) fewest = distance, best = word;
  }
  return fewest <= std::max<int>(1, static_cast<int>(best.size()) / 3) ? best : "";
}

}  // namespace attn::cli
