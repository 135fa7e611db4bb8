// src/explain/options.h: writes the options of an explanation as JSON; `explain_options` reads them again.
#pragma once
#include <attn/explain.h>

#include <string>

namespace attn::explain_detail {

/// Returns a JSON object of all options but matrices and functions. Own matrices are named in "matrices".
std::string options_json(const ExplainOptions& options);

}  // namespace attn::explain_detail
