// src/cli/info.cc: implements attn info: prints the version, this machine, and the kernels that can run here.
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/runtime.h>

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <memory>

namespace attn::cli {
namespace {

void print_info(bool json) {
  const Info about = info();
  if (json) {
    print(nlohmann::ordered_json{{"attn_info", 1},
                                 {"version", about.version},
                                 {"numerics_version", about.numerics_version},
                                 {"cpu", about.cpu},
                                 {"features", about.features},
                                 {"targets", about.targets},
                                 {"target", about.target},
                                 {"cores", about.cores},
                                 {"threads", about.threads},
                                 {"compiler", about.compiler}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
    return;
  }
  print(runtime::format(
      "attn {}   numerics {}\ncpu      {}\nfeatures {}\ntargets  {}   (in use: {})\ncores    {}   threads "
      "{}\ncompiler {}\n",
      about.version, about.numerics_version, one_line(about.cpu), runtime::join(about.features, " "),
      runtime::join(about.targets, " "), about.target, about.cores, about.threads, about.compiler));
}

}  // namespace

Verb add_info(Parser app) {
  Parser parser = app.add_verb("info", "Version, processor, kernels, threads");
  auto json = std::make_shared<bool>(false);
  parser.flag("--json", *json, "The same as JSON");
  return {parser, [json](const std::vector<std::string>& rest) {
            no_more(rest);
            print_info(*json);
          }};
}

}  // namespace attn::cli
