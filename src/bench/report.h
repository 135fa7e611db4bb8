// src/bench/report.h: measurements as a table to read and as JSON to keep.
#pragma once
#include "bench/measure.h"

#include <string>

namespace attn::bench {

/// The table's head, then a line a row.
std::string table_head();
std::string table_row(const Measured& m);
std::string table_environment(const Environment& e);

/// One object, without the end of line: {"op": "attention", "dtype": "f32", "B": 1, ...}.
std::string json_row(const Measured& m);
std::string json_environment(const Environment& e);

/// "causal", "bool", "float" (added), "lengths", an expression, "none".
std::string mask_of(const cases::Case& c);

}  // namespace attn::bench
