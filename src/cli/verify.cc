// src/cli/verify.cc: attn verify: every kernel of this machine against the specification, bit by bit.
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/runtime.h>
#include <attn/verify.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <cstdio>
#include <memory>

namespace attn::cli {
namespace {

std::string as_json(const VerifyReport& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const VerifyRow& row : report.rows) rows.push_back({{"name", row.name}, {"cases", row.cases}, {"different", row.different}, {"digest", row.digest}});
  return nlohmann::ordered_json{{"attn_verify", 1},
                                {"numerics_version", numerics_version},
                                {"digest", report.digest},
                                {"passed", report.passed()},
                                {"cases", report.cases},
                                {"difference", report.difference},
                                {"line", report.line},
                                {"ways", std::move(rows)}}
             .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

std::string as_text(const VerifyReport& report) {
  std::string text;
  for (const VerifyRow& row : report.rows)
    text += fmt::format("{:<24} {:>4} cases   {}\n", row.name, row.cases, row.different == 0 ? "same" : fmt::format("{} DIFFERENT", row.different));
  return text + fmt::format("numerics {}, digest {}\n", numerics_version, report.digest);
}

void show_progress(std::int64_t done, std::int64_t total) {
  std::fputs(done == total ? "\r\033[K" : fmt::format("\r{}/{}", done, total).c_str(), stderr);
}

void run_verify(VerifyOptions options, bool json) {
  if (::isatty(STDERR_FILENO) != 0) options.progress = show_progress;
  const VerifyReport report = verify(options);
  print(json ? as_json(report) : as_text(report));
  if (!report.passed()) throw Error(fmt::format("verify: {}; again: attn verify '{}'", report.difference, report.line));
}

}  // namespace

Verb add_verify(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("verify", "Every kernel of this machine against the specification");
  auto options = std::make_shared<VerifyOptions>();
  auto json = std::make_shared<bool>(false);
  parser->allow_extras();
  parser->add_option("LINE", options->line, "One case instead of the table, as a failure names it")->type_name("");
  parser->add_flag("--quick", options->quick, "The small table");
  parser->add_flag("--json", *json, "The same as JSON");
  parser->footer("Exit status 1 when a bit differs.\n\nExample\n  attn verify --quick");
  return {parser, [options, json](const std::vector<std::string>& rest) {
            no_more(rest);
            run_verify(*options, *json);
          }};
}

}  // namespace attn::cli
