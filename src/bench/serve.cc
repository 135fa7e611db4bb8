// src/bench/serve.cc: implements the protocol of `attn bench --serve`.
#include "bench/serve.h"

#include "runtime/format.h"

#include "bench/measure.h"

#include <iostream>
#include <map>
#include <memory>
#include <string>

namespace attn::bench {
namespace {

std::string peak_of(const std::string& name) {
  const Limit limit = limit_from_name(name);
  if (!exists(limit)) return "0";
  if (limit != Limit::read) return runtime::format("{:.1f}", sample_arithmetic(limit));
  return runtime::format("{:.2f}", sample_read(memory_in_turn()));
}

}  // namespace

void serve(std::istream& in, std::ostream& out) {
  std::map<std::string, std::unique_ptr<Work>> works;
  const auto answer = [&](const std::string& line) -> std::string {
    if (line == "forget") {
      works.clear();
      return "ok";
    }
    if (line.starts_with("peak ")) return peak_of(line.substr(5));
    std::unique_ptr<Work>& work = works[line];
    if (work == nullptr) {
      work = std::make_unique<Work>(cases::parse_case(line));
      work->call();
    }
    return runtime::format("{:.3f}", time_of_call(*work) * 1e6);
  };
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    try {
      out << answer(line) << std::endl;
    } catch (const std::exception& error) {
      works.erase(line);
      out << "error: " << error.what() << std::endl;
    }
  }
}

}  // namespace attn::bench
