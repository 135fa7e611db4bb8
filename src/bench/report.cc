// src/bench/report.cc: formats the columns and fields of a measurement.
#include "bench/report.h"

#include <attn/runtime.h>

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <cmath>

namespace attn::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string shape_of(const cases::Case& c) {
  if (c.op == "matmul")
    return runtime::format("{} x {} x {} {}{}", c.m, c.k, c.n, c.blocks == "none" ? c.layout : c.blocks,
                           c.packed ? " packed" : "");
  if (c.op == "causal_conv") return runtime::format("{},{},{} {} taps", c.batch, c.n, c.q_rows, c.k);
  if (c.is_recurrent()) {
    const std::string heads = c.v_heads != c.q_heads ? runtime::format("/{}", c.v_heads) : "";
    const std::string columns = c.value_dim != c.dim ? runtime::format("/{}", c.value_dim) : "";
    return runtime::format("{},{}{},{},{}{}", c.batch, c.q_heads, heads, c.q_rows, c.dim, columns);
  }
  if (!c.is_attention()) return runtime::format("{} rows of {}", c.rows, c.n);
  std::string shape = runtime::format("{},{}", c.batch, c.q_heads);
  if (c.k_heads != c.q_heads) shape += runtime::format("/{}", c.k_heads);
  shape += runtime::format(",{}", c.q_rows);
  if (c.k_rows != c.q_rows) shape += runtime::format("/{}", c.k_rows);
  shape += runtime::format(",{}", c.dim);
  if (c.channels != c.dim && c.score == "additive") shape += runtime::format("->{}", c.channels);
  if (c.value_dim != c.dim) shape += runtime::format("/{}", c.value_dim);
  if (c.idle_us > 0) shape += runtime::format(" after {} ms", static_cast<double>(c.idle_us) / 1000);
  return shape;
}

/// Rounds to four significant digits, so that files of results stay small.
double rounded(double x) {
  if (x == 0 || !std::isfinite(x)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(x))) - 3);
  return std::stod(runtime::format("{:.10g}", std::round(x / unit) * unit));
}

}  // namespace

std::string mask_of(const cases::Case& c) {
  if (c.mask != "none") return c.mask;
  if (c.bias == "dense" || c.bias == "key") return "float";
  if (c.bias != "none") return c.bias;
  return c.lengths != "none" ? "lengths" : "none";
}

namespace {

/// Returns what the table's column "mask" shows: the score, the mask, the bias and other options of a case, or "none".
std::string around(const cases::Case& c) {
  std::vector<std::string> parts;
  const auto add = [&](const std::string& word) { parts.push_back(word); };
  if (c.score != "dot") add(c.score);
  if (const std::string mask = mask_of(c); mask != "none") add(mask);
  if (c.mask != "none" && c.bias != "none") add(c.bias);
  if (c.score_mod != "none") add("score_mod");
  if (c.normalizer != "softmax") add(c.normalizer);
  if (c.weight_mod != "none") add("weight_mod");
  if (c.delta != 0) add("delta");
  if (c.gate != "none") add("gate " + c.gate);
  if (c.softcap != 0) add(runtime::format("softcap {}", c.softcap));
  if (c.sinks != 0) add("sinks");
  if (c.dropout != 0) add(runtime::format("dropout {}", c.dropout));
  if (c.weights != "none") add(c.weights);
  if (c.is_cached()) add(c.cache);
  if (c.storage != "same") add(c.storage);
  return parts.empty() ? "none" : runtime::format("{}", runtime::join(parts, ", "));
}

}  // namespace

std::string table_head() {
  return runtime::format("{:<25} {:<5} {:<26} {:<20} {:>11} {:>14} {:>8} {:>6}\n", "op", "dtype", "shape", "mask",
                         "median us", "", "limit", "%");
}

std::string table_row(const Measured& m) {
  const bool memory = m.peak_gbs > 0;
  if (m.of.score == "additive")
    return runtime::format("{:<25} {:<5} {:<26} {:<20} {:>11.1f} {:>7.1f} Gtanh/s\n", m.of.op, name_of(m.of.dtype),
                           shape_of(m.of), around(m.of), m.median_us, m.gflops);
  return runtime::format(
      "{:<25} {:<5} {:<26} {:<20} {:>11.1f} {:>7.1f} {} {:>8.1f} {:>6.1f}\n", m.of.op, name_of(m.of.dtype),
      shape_of(m.of), m.of.is_attention() || m.of.is_recurrent() ? around(m.of) : "", m.median_us,
      memory ? m.gbs : m.gflops, memory ? "GB/s  " : "GFLOP/s", memory ? m.peak_gbs : m.peak_gflops, 100 * m.fraction);
}

std::string table_environment(const Environment& e) {
  const Info about = info();
  std::string text =
      runtime::format("attn {}  {}  target {}  threads {}\nlimits: f32 {:.0f} GFLOP/s, f64 {:.0f}", about.version,
                      about.cpu, about.target, about.threads, e.fma_f32_gflops, e.fma_f64_gflops);
  if (e.dot_bf16_gflops > 0) text += runtime::format(", bf16 {:.0f}", e.dot_bf16_gflops);
  return text + runtime::format("; reading {:.1f} GB/s; a hand-over between cores {:.0f} ns; load {:.1f}\n\n",
                                e.read_gbs, e.hand_over_ns, e.load);
}

std::string json_row(const Measured& m) {
  const cases::Case& c = m.of;
  Json row{{"op", c.op}, {"dtype", name_of(c.dtype)}};
  if (c.op == "causal_conv") {
    row.update(Json{{"B", c.batch}, {"N", c.n}, {"Tq", c.q_rows}, {"K", c.k}});
  } else if (c.is_recurrent()) {
    row.update(Json{{"B", c.batch},
                    {"Hq", c.q_heads},
                    {"Hv", c.v_heads},
                    {"Tq", c.q_rows},
                    {"D", c.dim},
                    {"Dv", c.value_dim},
                    {"gate", c.gate},
                    {"delta", c.delta != 0}});
  } else if (c.is_attention()) {
    row.update(Json{{"B", c.batch},
                    {"Hq", c.q_heads},
                    {"Hk", c.k_heads},
                    {"Tq", c.q_rows},
                    {"Tk", c.k_rows},
                    {"D", c.dim},
                    {"Dv", c.value_dim},
                    {"mask", mask_of(c)}});
    if (c.idle_us > 0) row["idle_us"] = c.idle_us;
  } else if (c.op == "matmul") {
    row.update(Json{{"M", c.m}, {"N", c.n}, {"K", c.k}, {"layout", c.layout}, {"packed", c.packed != 0}});
    if (c.blocks != "none") row["blocks"] = c.blocks;
  } else {
    row.update(Json{{"rows", c.rows}, {"N", c.n}});
  }
  const Info about = info();
  row.update(Json{{"threads", about.threads},
                  {"target", about.target},
                  {"median_us", rounded(m.median_us)},
                  {"samples", m.samples}});
  if (m.gflops > 0) row[c.score == "additive" ? "gtanh" : "gflops"] = rounded(m.gflops);
  if (m.peak_gflops > 0) row["peak_gflops"] = rounded(m.peak_gflops);
  if (m.peak_gbs > 0) row.update(Json{{"gbs", rounded(m.gbs)}, {"peak_gbs", rounded(m.peak_gbs)}});
  if (m.fraction > 0) row["fraction"] = rounded(m.fraction);
  row["line"] = cases::to_line(c);
  return row.dump();
}

std::string json_environment(const Environment& e) {
  const Info about = info();
  return Json{{"op", "environment"},
              {"version", about.version},
              {"numerics_version", about.numerics_version},
              {"cpu", about.cpu},
              {"cores", about.cores},
              {"threads", about.threads},
              {"target", about.target},
              {"compiler", about.compiler},
              {"fma_f32_gflops", rounded(e.fma_f32_gflops)},
              {"fma_f64_gflops", rounded(e.fma_f64_gflops)},
              {"dot_bf16_gflops", rounded(e.dot_bf16_gflops)},
              {"read_gbs", rounded(e.read_gbs)},
              {"hand_over_ns", rounded(e.hand_over_ns)},
              {"load", rounded(e.load)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace attn::bench
