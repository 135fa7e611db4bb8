// src/explain/formula_words.cc: lists the Chinese words for those in formulas.
#include "explain/formula_words.h"

namespace attn::explain_detail {
namespace {

struct Pair {
  std::string_view english, chinese;
};
// The longer of two that begin alike comes first.
constexpr Pair kWords[] = {
    {"embedding[id]", "词嵌入[编号]"},
    {"turn place", "旋转角：位置"},
    {", rotated", "，再旋转"},
    {"rotated ", "旋转后的 "},
    {"table[bucket", "表[分桶"},
    {"sum of a column", "一列之和"},
    {"mean over heads", "各头的平均"},
    {"the largest of a row:", "每行最大的几个："},
    {"pages of 16 rows", "每页 16 行"},
    {"attention(q, k int8, v int8)", "注意力(q，8 位的 k，8 位的 v)"},
    {"round", "取整"},
    {"dP dropped", "Dropout 后 dP"},
    {"0 where dropped", "被丢弃处为 0"},
    {"/ total", "/ 总和"},
    {"− max", "− 最大值"},
    {"scores", "打分"},
    {"scaled", "缩放后"},
    {"masked", "掩码后"},
    {"capped", "截断后"},
    {"biased", "加偏置后"},
    {"modified", "自定义分数"},
    {"tempered", "除以温度后"},
    {"weights_modified", "自定义权重"},
    {"relative_added", "加相对项后"},
    {"weights", "权重"},
    {"weight", "权重"},
    {"dropped", "Dropout 后"},
    {"context", "上下文"},
    {"joined", "拼接"},
    {"output", "输出"},
    {"bias", "偏置"},
    {"sink", "注意力汇"},
    {"slope", "斜率"},
    {"heads", "头数"},
    {"query", "查询"},
    {"key", "键"},
    {"for", "当"},
    {"else", "否则"},
    {"lengths", "长度"},
    {"norm", "归一化"},
    {"sum", "求和"},
    {"cap", "截断"},
    {"mod", "自定义"},
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// Returns whether a byte of UTF-8 begins a Chinese character: one of U+4000 to U+9FFF.
bool is_chinese(std::string_view text, std::size_t at) {
  return at < text.size() && static_cast<unsigned char>(text[at]) >= 0xe4 &&
         static_cast<unsigned char>(text[at]) <= 0xe9;
}

/// Gives a comma beside a Chinese word the form of a Chinese one.
std::string with_wide_commas(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool comma = text.substr(at).starts_with(", ") && (is_chinese(text, at - 3) || is_chinese(text, at + 2));
    if (comma) result += "，", ++at;
    else result += text[at];
  }
  return result;
}

}  // namespace

std::string in_words(Language language, std::string_view formula) {
  std::string result;
  for (std::size_t at = 0; at < formula.size();) {
    const Pair* found = nullptr;
    for (const Pair& pair : kWords) {
      if (language != Language::zh || !formula.substr(at).starts_with(pair.english)) continue;
      const std::size_t end = at + pair.english.size();
      const bool inside = (at > 0 && is_letter(formula[at - 1]) && is_letter(pair.english[0])) ||
                          (end < formula.size() && is_letter(formula[end]) && is_letter(pair.english.back()));
      if (inside) continue;
      found = &pair;
      break;
    }
    result += found ? std::string(found->chinese) : std::string(1, formula[at]);
    at += found ? found->english.size() : 1;
  }
  return language == Language::zh ? with_wide_commas(result) : result;
}

}  // namespace attn::explain_detail
