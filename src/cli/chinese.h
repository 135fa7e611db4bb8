// src/cli/chinese.h: translates the command's help and errors to Chinese if the user's language is Chinese.
#pragma once
#include <attn/explain.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn::cli {

/// An English text and its Chinese; {} in the English is any text, {0}, {1} ... in the Chinese are those texts as they
/// are, for they may be the user's words; {2*} is the text in Chinese if it is one of the reasons or errors.
struct Translation {
  std::string_view english, chinese;
};
/// The tables of translations: lines of the help and descriptions of options; errors of the command line and of
/// explain; errors of calls, models and files; errors of encoders and encoder-decoders; the reasons inside these
/// errors, such as why a number is refused.
std::span<const Translation> chinese_help();
std::span<const Translation> chinese_errors();
std::span<const Translation> chinese_model_errors();
std::span<const Translation> chinese_encoder_errors();
std::span<const Translation> chinese_decoder_errors();
std::span<const Translation> chinese_reasons();
std::span<const Translation> chinese_model_reasons();
std::span<const Translation> chinese_encoder_reasons();
std::span<const Translation> chinese_decoder_reasons();

/// Returns the language that --lang among the arguments before -- names, else that of the environment.
Language command_language(const std::vector<std::string>& arguments);

/// Returns the error in Chinese, with the user's words as they are; a text that is not in the table stays as it is.
std::string error_in_chinese(std::string_view english);
/// Returns the help in Chinese: line by line, with the descriptions of the options.
std::string help_in_chinese(std::string_view english);

}  // namespace attn::cli
