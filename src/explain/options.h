// src/explain/options.h: writes the options of an explanation as JSON; `explain_options` (model) reads them again.
#pragma once
#include <attn/explain.h>

#include <array>
#include <string>

namespace attn::explain_detail {

/// The words of the options that are enumerations, in the order of their values.
inline constexpr std::array kScores{"scaled_dot", "dot", "general", "additive"};
inline constexpr std::array kPositions{"none", "sinusoidal", "rotary"};
inline constexpr std::array kTokens{"words", "characters", "auto"};
inline constexpr std::array kBiases{"none", "alibi", "relative", "alibi_symmetric"};
inline constexpr std::array kCaches{"same", "int8"};
inline constexpr std::array kLanguages{"en", "zh"};

/// Returns a JSON object of all options but matrices and functions.
std::string options_json(const ExplainOptions& options);

}  // namespace attn::explain_detail
