// src/cli/verify.cc: implements attn verify: compares every kernel of this machine with the reference code, bit by bit.
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/runtime.h>
#include <attn/verify.h>

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include "ranks/verify.h"
#include "verify/coverage.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

namespace attn::cli {
namespace {

std::string as_json(const VerifyReport& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const VerifyRow& row : report.rows)
    rows.push_back({{"name", row.name}, {"cases", row.cases}, {"different", row.different}, {"digest", row.digest}});
  return nlohmann::ordered_json{{"attn_verify", 1},        {"numerics_version", numerics_version},
                                {"digest", report.digest}, {"passed", report.passed()},
                                {"cases", report.cases},   {"difference", report.difference},
                                {"line", report.line},     {"ways", std::move(rows)}}
             .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

std::string as_text(const VerifyReport& report) {
  std::string text;
  for (const VerifyRow& row : report.rows)
    text += runtime::format("{:<24} {:>4} cases   {}\n", row.name, row.cases,
                            row.different == 0 ? "same" : runtime::format("{} DIFFERENT", row.different));
  return text + runtime::format("numerics {}, digest {}\n", numerics_version, report.digest);
}

/// Returns a table that counts the cases by option, path and dtype. A combination without cases has a letter, which a
/// reason below the table explains.
std::string coverage() {
  using namespace cases;
  std::vector<std::string> lines = case_lines(cases::full);
  for (std::string& line : coverage_lines()) lines.push_back(std::move(line));
  std::vector<std::pair<Case, std::string>> all;
  for (const std::string& line : lines)
    if (const Case c = parse_case(line); c.is_attention()) all.emplace_back(c, to_line(c));
  std::vector<std::string> reasons;
  const auto letter = [&](const std::string& reason) {
    const auto found = std::find(reasons.begin(), reasons.end(), reason);
    if (found != reasons.end()) return std::string(1, static_cast<char>('a' + (found - reasons.begin())));
    reasons.push_back(reason);
    return std::string(1, static_cast<char>('a' + reasons.size() - 1));
  };
  std::string text =
      runtime::format("Cases of attention, of {} in all: f32, f64, bf16, f16\n\n{:<24}", lines.size(), "");
  for (const char* path : path_names) text += runtime::format("{:<15}", path);
  for (const CoverageOption& option : coverage_options()) {
    text.erase(text.find_last_not_of(' ') + 1);
    text += runtime::format("\n{:<24}", option.name);
    for (int path = 0; path < static_cast<int>(std::size(path_names)); ++path) {
      std::string cell;
      for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
        const auto count = std::count_if(all.begin(), all.end(), [&](const auto& one) {
          return one.first.dtype == dtype && path_of(one.first) == static_cast<Path>(path) &&
                 one.second.find(option.mark) != std::string::npos;
        });
        const char* reason = why_not(option, static_cast<Path>(path), dtype);
        cell += runtime::format("{} ", count > 0 ? std::to_string(count) : reason != nullptr ? letter(reason) : "none");
      }
      text += runtime::format("{:<15}", cell);
    }
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += "\n\n";
  for (const std::string& reason : reasons) text += runtime::format("{}: {}\n", letter(reason), reason);
  return text;
}

void show_progress(std::int64_t done, std::int64_t total) {
  std::fputs(done == total ? "\r\033[K" : runtime::format("\r{}/{}", done, total).c_str(), stderr);
}

void run_verify(VerifyOptions options, bool json) {
  if (::isatty(STDERR_FILENO) != 0) options.progress = show_progress;
  const VerifyReport report = verify(options);
  print(json ? as_json(report) : as_text(report));
  if (!report.passed())
    throw Error(runtime::format("verify: {}; again: attn verify '{}'", report.difference, report.line));
}

/// Compares what the ranks compute together with one process; rank 0 prints.
void run_ranks(const Ranks& ranks) {
  std::int64_t different = 0;
  std::string text = runtime::format("{} rank{}\n", ranks.size(), ranks.size() == 1 ? "" : "s");
  for (const RankRow& row : verify_ranks(ranks)) {
    text += runtime::format("{:<24} {:>4} cases   {}\n", row.name, row.cases,
                            row.different == 0 ? "same" : runtime::format("{} DIFFERENT", row.different));
    different += row.different;
  }
  at_first(ranks, [&] {
    print(text);
    if (different != 0) throw Error(runtime::format("verify: {} cases differ from one process", different));
  });
}

Run add_verify_options(Parser parser) {
  auto options = std::make_shared<VerifyOptions>();
  auto json = std::make_shared<bool>(false), list = std::make_shared<bool>(false),
       ranks = std::make_shared<bool>(false);
  parser.option("LINE", options->line, "One case instead of the table, as a failure names it").type_name("");
  parser.flag("--quick", options->quick, "The small table");
  parser.flag("--list", *list, "How many cases each option has on each path in each dtype, without running them");
  parser.flag("--json", *json, "The same as JSON");
  parser.flag("--ranks", *ranks, "Sums and trainings on the processes of mpirun against one of them");
  parser.footer("Exit status 1 when a bit differs.\n\nExample\n  attn verify --quick");
  return [options, json, list, ranks](const std::vector<std::string>& rest) {
    no_more(rest);
    if (*ranks && (*json || *list || options->quick || !options->line.empty()))
      throw UsageError{"--ranks goes alone: it compares several processes with one, as text"};
    if (*ranks) return with_ranks("verify --ranks", run_ranks, /*timeout=*/600);
    one_process("verify");
    if (*list && (*json || options->quick || !options->line.empty()))
      throw UsageError{"--list goes alone: it lists the whole table, as text"};
    if (*list) return print(coverage());
    run_verify(*options, *json);
  };
}

}  // namespace

const Verb verify_verb{"verify", "Every kernel of this machine against the specification", add_verify_options,
                       /*knows_ranks=*/true};

}  // namespace attn::cli
