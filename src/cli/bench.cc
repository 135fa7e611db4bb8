// src/cli/bench.cc: implements attn bench: measures how fast this machine computes, and compares it with its peak rate.
#include "cli/output.h"
#include "cli/verbs.h"

#include "runtime/format.h"

#include "bench/report.h"
#include "bench/serve.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>

namespace attn::cli {
namespace {

struct BenchOptions {
  std::vector<std::string> lines, only;
  double seconds = 0.5;
  bool json = false, list = false, serve = false;
};

std::string seconds(const std::string& value) {
  const std::string wrong = number(value);
  if (!wrong.empty()) return wrong;
  const double given = std::strtod(value.c_str(), nullptr);
  return given >= 0 && given <= 600 ? "" : runtime::format("must be from 0 to 600, not {}", value);
}

/// Returns the lines to measure: those that were given, else the lines of the built-in table that contain every text of
/// `only`.
std::vector<std::string> chosen(const BenchOptions& options) {
  if (!options.lines.empty()) return options.lines;
  std::vector<std::string> lines = cases::case_lines(cases::bench);
  std::erase_if(lines, [&](const std::string& line) {
    return !std::all_of(options.only.begin(), options.only.end(),
                        [&](const std::string& part) { return (line + " ").find(part) != std::string::npos; });
  });
  if (lines.empty())
    throw UsageError{runtime::format("no row has \"{}\" in its line (attn bench --list shows them)",
                                     runtime::join(options.only, "\" and \""))};
  return lines;
}

void measure_all(const BenchOptions& options) {
  const std::vector<std::string> lines = chosen(options);
  std::vector<cases::Case> rows;
  for (const std::string& line : lines) rows.push_back(cases::parse_case(line));
  if (options.list) return print(runtime::format("{}\n", runtime::join(lines, "\n")));
  const bool live = ::isatty(STDERR_FILENO) != 0;
  const bench::Environment environment = bench::measure_environment();
  print(options.json ? "[\n" + bench::json_environment(environment)
                     : bench::table_environment(environment) + bench::table_head());
  for (std::size_t n = 0; n < rows.size(); ++n) {
    std::cerr << runtime::format("{}{}/{} {}{}", live ? "\r\033[K" : "", n + 1, rows.size(), lines[n], live ? "" : "\n")
              << std::flush;
    bench::Work work(rows[n]);
    const bench::Measured m = bench::measure(work, {.seconds = options.seconds});
    if (live) std::cerr << "\r\033[K" << std::flush;
    print(options.json ? ",\n" + bench::json_row(m) : bench::table_row(m));
  }
  if (options.json) print("\n]\n");
}

Run add_bench_options(Parser parser) {
  auto options = std::make_shared<BenchOptions>();
  parser.option("LINE", options->lines, "Cases, as --list writes them; all of the table without one").type_name("");
  parser.option("--only", options->only, "Rows whose line holds this text (--only causal); given again: this too")
      .type_name("WORDS")
      .one_value();
  parser.option("--seconds", options->seconds, "At least so long a row, and never fewer than 15 samples (0.5)")
      .type_name("X")
      .check(seconds);
  parser.flag("--json", options->json, "One array, an object a row, the machine first");
  parser.flag("--list", options->list, "The rows, without measuring");
  parser.flag("--serve", options->serve, "Lines from stdin, each answered with the microseconds of one call");
  parser.footer("Example\n  attn bench --only decode --only bf16 --seconds 0.2");
  return [options](const std::vector<std::string>& rest) {
    no_more(rest);
    if (options->serve && !options->lines.empty())
      throw UsageError{"--serve reads its lines from stdin; a LINE is one argument too many"};
    if (options->serve) return bench::serve(std::cin, std::cout);
    measure_all(*options);
  };
}

}  // namespace

const Verb bench_verb{"bench", "How fast, beside what this machine could at most", add_bench_options};

}  // namespace attn::cli
