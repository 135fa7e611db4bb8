// src/bench/report.h: formats measurements as a table to read and as JSON to store.
#pragma once
#include "bench/measure.h"

#include <string>

namespace attn::bench {

/// table_head returns the heading of the table, table_row the line of one measurement.
std::string table_head();
std::string table_row(const Measured& m);
std::string table_environment(const Environment& e);

/// Returns one object without a line end: {"op": "attention", "dtype": "f32", "B": 1, ...}.
std::string json_row(const Measured& m);
std::string json_environment(const Environment& e);

/// Returns the mask of a case; without one, its bias ("float" for dense and key), else "lengths" if it has any, else
/// "none".
std::string mask_of(const cases::Case& c);

}  // namespace attn::bench
