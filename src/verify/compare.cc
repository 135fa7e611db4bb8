// src/verify/compare.cc: implements attn::verify: computes each case in every way, and reports the first difference and
// the digest.
#include "verify/compare.h"

#include "runtime/format.h"

#include "verify/coverage.h"
#include "verify/same.h"

#include <map>

namespace attn::cases {
void Digest::add_bytes(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) state_ = (state_ ^ from[i]) * 0x100000001B3u;
}

void Digest::add(const Results& results) {
  for (const Result& result : results) {
    const Tensor x = result.values.contiguous();
    for (const std::int64_t size : x.sizes()) add_bytes(&size, sizeof size);
    add_bytes(x.data(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype()));
  }
}

std::string Digest::text() const { return runtime::format("{:016x}", state_); }

VerifyReport compare(const std::vector<std::string>& lines, const std::vector<Way>& ways,
                     const std::function<void(std::int64_t, std::int64_t)>& progress) {
  VerifyReport report;
  report.cases = static_cast<std::int64_t>(lines.size());
  report.rows.resize(ways.size());
  std::vector<Digest> digests(ways.size());
  Digest digest;
  const auto complain = [&](VerifyRow& row, const std::string& line, const std::string& what) {
    ++row.different;
    if (!report.difference.empty()) return;
    report.difference = runtime::format("{}: {}", row.name, what);
    report.line = to_line(parse_case(line));
  };
  std::int64_t done = 0;
  for (const std::string& line : lines) {
    const Case c = parse_case(line);
    const Inputs in = make_inputs(c);
    const bool narrow = size_of(c.dtype) == 2;
    Case wide = c;
    if (narrow) wide.dtype = Dtype::f32;
    const Results truth = by_specification(wide, narrow ? widened(in) : in);
    std::vector<double> moved;  // computed at the first use
    const auto far = [&](const Results& ours, std::size_t r) {
      const std::string what = is_far(ours[r], truth[r], c.dtype);
      if (what.empty() || !c.is_attention() || c.is_jvp()) return what;
      if (moved.empty()) moved = moved_by_rounding(wide, widened(in), truth, c.dtype);
      return is_far(ours[r], truth[r], c.dtype, 2 * moved[r]);
    };
    // 16-bit types: each result of the first way of each target that has it; the other ways of the target must give the
    // same bits
    std::map<std::string, Results> patterns;
    if (!narrow) digest.add(truth);
    for (std::size_t w = 0; w < ways.size(); ++w) {
      VerifyRow& row = report.rows[w];
      row.name = ways[w].name;
      const Results ours = ways[w].run(c, in);
      if (!narrow) digests[w].add(ours.empty() ? truth : ours);
      if (ours.empty()) continue;
      ++row.cases;
      Results& first = patterns[ways[w].target];
      if (narrow)  // only the library returns weights
        for (std::size_t r = first.size(); r < ours.size(); ++r) first.push_back(ours[r]);
      const Results& pattern = narrow ? first : truth;
      std::string what;
      for (std::size_t r = 0; r < ours.size() && what.empty(); ++r) {
        if (narrow) what = far(ours, r);
        if (what.empty()) what = bits_differ(ours[r], pattern[r]);
      }
      if (!what.empty()) complain(row, line, what);
    }
    if (progress) progress(++done, report.cases);
  }
  report.digest = digest.text();
  for (std::size_t w = 0; w < ways.size(); ++w) report.rows[w].digest = digests[w].text();
  return report;
}

}  // namespace attn::cases

namespace attn {

VerifyReport verify(const VerifyOptions& options) {
  std::vector<std::string> lines{options.line};
  if (options.line.empty()) lines = cases::case_lines(options.quick ? cases::smoke : cases::full);
  if (options.line.empty() && !options.quick)
    for (std::string& line : cases::coverage_lines()) lines.push_back(std::move(line));
  return cases::compare(lines, cases::all_ways(), options.progress);
}

}  // namespace attn
