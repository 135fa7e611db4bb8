// src/explain/relative_words.cc: reads relative products that are given as text, such as "distance(2, 2) of_keys".
#include <attn/explain_mechanisms.h>

#include "attention/text_cursor.h"

#include <charconv>
#include <cmath>

namespace attn {
namespace {

class RelativeCursor : TextCursor {
 public:
  explicit RelativeCursor(const std::string& text) : TextCursor("ExplainRelative::parse", text) {}

  std::vector<ExplainRelative> products() {
    std::vector<ExplainRelative> result{product()};
    while (take('+')) result.push_back(product());
    if (skip() < text_.size()) fail("of_keys, operand, scale=X, + or the end was expected");
    return result;
  }

 private:
  ExplainRelative product() {
    ExplainRelative result{.index = index()};
    while (take('.')) {
      if (word() != "reversed" || !take('(') || !take(')')) fail(".reversed() was expected");
      result.index = result.index.reversed();
    }
    for (;;) {
      const std::size_t start = skip();
      const std::string name = word();
      if (name == "of_keys") result.of_keys = true;
      else if (name == "operand") result.operand = true;
      else if (name == "scale" && take('=')) result.scale = number();
      else {
        place_ = start;
        return result;
      }
    }
  }

  RelativeIndex index() {
    const std::size_t start = skip();
    const std::string name = word();
    const bool one = name == "picture_columns";
    if (!one && name != "distance" && name != "log_buckets" && name != "picture_rows") {
      place_ = start;
      fail(
          "distance(BEFORE, AFTER), log_buckets(BUCKETS, MAX), picture_rows(HEIGHT, WIDTH) or picture_columns(WIDTH) "
          "was expected");
    }
    if (!take('(')) fail("( was expected");
    const std::int64_t first = whole();
    if (!one && !take(',')) fail("two numbers were expected");
    const std::int64_t second = one ? 0 : whole();
    if (!take(')')) fail(") was expected");
    if (one) return RelativeIndex::picture_columns(first);
    if (name == "distance") return RelativeIndex::distance(first, second);
    return name == "log_buckets" ? RelativeIndex::log_buckets(first, second)
                                 : RelativeIndex::picture_rows(first, second);
  }

  std::int64_t whole() {
    std::int64_t value = 0;
    read(value, "a whole number was expected");
    return value;
  }
  double number() {
    double value = 0;
    read(value, "a number was expected");
    return value;
  }
  template <typename T>
  void read(T& value, const char* wanted) {
    const char* const from = text_.data() + skip();
    const auto [stop, error] = std::from_chars(from, text_.data() + text_.size(), value);
    if (error != std::errc() || !std::isfinite(static_cast<double>(value))) fail(wanted);
    place_ += static_cast<std::size_t>(stop - from);
  }
};

}  // namespace

std::vector<ExplainRelative> ExplainRelative::parse(const std::string& text) { return RelativeCursor(text).products(); }

}  // namespace attn
