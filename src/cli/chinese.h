// src/cli/chinese.h: says the command's help and errors in Chinese where the user's language is Chinese.
#pragma once
#include <attn/explain.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn::cli {

/// An English text and its Chinese; {} in the English is any text, {0}, {1} ... in the Chinese are those texts.
struct Translation {
  std::string_view english, chinese;
};
/// The help's lines and descriptions of options; the errors of the command and of the library.
std::span<const Translation> chinese_help();
std::span<const Translation> chinese_errors();

/// Returns the language that --lang among the arguments names, else that of the environment.
Language command_language(const std::vector<std::string>& arguments);

/// Returns the error in Chinese, the texts inside it too; a text that is not in the table stays as it is.
std::string error_in_chinese(std::string_view english);
/// Returns the help in Chinese: line by line, with the descriptions of the options.
std::string help_in_chinese(std::string_view english);

}  // namespace attn::cli
