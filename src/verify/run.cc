// src/verify/run.cc: computes cases with the reference code, with the kernels of an instruction set, and with the
// library.
#include "verify/run.h"

#include <attn/ops.h>
#include <attn/runtime.h>

#include "runtime/format.h"

#include "attention/call/call.h"
#include "attention/relative/relative_terms.h"
#include "kernels/attention/normalizer_problem.h"
#include "kernels/attention/reference.h"
#include "kernels/attention/dispatch.h"
#include "kernels/gemm/product.h"
#include "kernels/gemm/target.h"
#include "kernels/recurrent/target.h"
#include "kernels/relative/relative_product.h"
#include "kernels/reference.h"
#include "kernels/rows/target.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "runtime/thread_scratch.h"
#include "verify/attended.h"
#include "verify/backward.h"
#include "verify/jvp.h"
#include "verify/query_tiles.h"
#include "verify/recurrent.h"
#include "verify/tile_call.h"
#include "verify/weights.h"

#include <map>
#include <memory>

namespace attn::cases {
namespace {

using kernels::Element;

Element element_of_compute(Dtype dtype) { return dtype == Dtype::f64 ? Element::f64 : Element::f32; }

/// Computes all rows by the kernel of a normalizer, one query tile after another. `build`: as for gradients_by.
Results normalized_by(const kernels::NormalizerKernel& kernel, const kernels::NormalizerKernel& reference,
                      const Inputs& in, const kernels::Reference* build = nullptr) {
  Attended a(in);
  if (build != nullptr && a.call.bias.products != nullptr)
    a.call.bias.products->use(kernels::relative_reference(*build));
  kernels::Normalization stage = *a.call.problem.normalization;
  stage.kernel = &kernel;
  stage.reference = &reference;
  a.call.problem.normalization = &stage;
  if (in.options.weights.kind != Weights::none) return {};  // the library's ways return them
  const TileCall tiles(a.call, normalizer_scratch_bytes(a.call.problem));
  char* const scratch = tiles.scratch();
  const auto rows = [&](const kernels::AttentionProblem& of, const kernels::Task& task) {
    normalizer_rows(of, task, scratch);
  };
  for_each_sequence(a.call, a.call.problem, [&](const kernels::AttentionProblem& part, const kernels::Task& all) {
    for (std::int64_t h = 0; h < part.q_heads; ++h)
      for (std::int64_t n = 0; n < all.rows; n += kernels::query_block)
        tiles.rows(part, all.with_rows(h, all.row + n, std::min<std::int64_t>(kernels::query_block, all.rows - n)),
                   scratch, rows);
  });
  if (stage.op != kernels::NormalizerOp::softmax) a.results.pop_back();  // there is no logsumexp
  return a.results;
}
/// Returns whether scores become weights by more than the plain softmax.
bool is_normalized(const Inputs& in) { return has_normalizer(in.options); }
kernels::AttentionProblem asked_of(const Case& c) {
  kernels::AttentionProblem asked;
  asked.element = c.dtype == Dtype::f64 ? kernels::Element::f64 : kernels::Element::f32;
  asked.score = c.score == "additive" ? kernels::ScoreOp::additive : kernels::ScoreOp::dot;
  return asked;
}

Results attention_by_reference(const kernels::Reference& build, const Inputs& in) {
  const kernels::AttentionReference& reference = *build.attention;
  Attended a(in);
  const kernels::AttentionProblem& p = a.call.problem;
  if (a.call.bias.products != nullptr) a.call.bias.products->use(kernels::relative_reference(build));
  const TileCall tiles(a.call, reference.scratch_bytes(p));
  char* const scratch = tiles.scratch();
  const auto rows = [&](const kernels::AttentionProblem& of, const kernels::Task& task) {
    reference.rows(of, task, scratch);
  };
  for_each_sequence(a.call, p, [&](const kernels::AttentionProblem& part, const kernels::Task& all) {
    for (std::int64_t h = 0; h < p.q_heads; ++h) tiles.rows(part, all.with_rows(h, all.row, all.rows), scratch, rows);
  });
  if (a.weights.defined())
    for (Result& result : weights_asked_for(in.options.weights, a.weights, in.options.cu_seqlens_q))
      a.results.push_back(std::move(result));
  return a.results;
}

Results matmul_by_reference(const kernels::Reference& reference, const Inputs& in) {
  const Tensor y = empty({in.a.size(0), in.b.size(1)}, in.a.dtype());
  reference.gemm(gemm_problem(in, y), 0, in.a.size(0));
  return {{"product", y}};
}

const std::map<std::string, kernels::Unary> unary_ops = {
    {"exp", kernels::Unary::exp},   {"log", kernels::Unary::log},        {"tanh", kernels::Unary::tanh},
    {"sin", kernels::Unary::sin},   {"cos", kernels::Unary::cos},        {"sigmoid", kernels::Unary::sigmoid},
    {"silu", kernels::Unary::silu}, {"gelu", kernels::Unary::gelu_none}, {"gelu_tanh", kernels::Unary::gelu_tanh}};

/// Computes a row or elementwise operation with the functions of `table`: kernels::Reference or kernels::RowTarget.
template <class Table>
Results rows_by(const Table& table, const Case& c, const Inputs& in) {
  const Element element = element_of_compute(in.x.dtype());
  const auto size = static_cast<std::int64_t>(size_of(in.x.dtype()));
  const Tensor y = empty(c.op == "sum" ? Dims{c.rows} : Dims{c.rows, c.n}, in.x.dtype());
  if (const auto unary = unary_ops.find(c.op); unary != unary_ops.end()) {
    table.unary(unary->second, element, in.x.data(), y.data(), in.x.numel());
    return {{"result", y}};
  }
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const char* from = static_cast<const char*>(in.x.data()) + row * c.n * size;
    char* to = static_cast<char*>(y.data()) + row * (c.op == "sum" ? 1 : c.n) * size;
    if (c.op == "layer_norm") table.layer_norm_row(element, from, in.weight.data(), in.bias.data(), 1e-5, to, c.n);
    else if (c.op == "rms_norm") table.rms_norm_row(element, from, in.weight.data(), 1e-6, to, c.n);
    else if (c.op == "sum") table.row(kernels::RowOp::sum, element, from, 1, to, 1, c.n);
    else
      table.row(c.op == "softmax" ? kernels::RowOp::softmax : kernels::RowOp::log_softmax, element, from, 1, to, 1,
                c.n);
  }
  return {{"result", y}};
}

Results by_build(const kernels::Reference& build, const Case& c, const Inputs& in) {
  if (size_of(c.dtype) == 2) return {};
  if (c.is_recurrent()) return recurrent_by(kernels::recurrent_reference(build), build.unary, c, in);
  if (c.is_jvp()) return jvp_by(kernels::tangent_reference(build), kernels::gradient_tangent_reference(build), c, in);
  if (c.is_attention() && is_normalized(in)) {
    const kernels::NormalizerKernel& kernel = kernels::normalizer_reference(build);
    const BackwardPlan plan{"ref", &kernel.gradient};
    return c.is_backward() ? gradients_by(&plan, in, {}, &build) : normalized_by(kernel, kernel, in, &build);
  }
  if (c.is_backward()) {
    const BackwardPlan plan{"ref", build.gradient};
    return gradients_by(&plan, in, {}, &build);
  }
  if (c.is_attention()) return attention_by_reference(build, in);
  return c.op == "matmul" ? matmul_by_reference(build, in) : rows_by(build, c, in);
}

/// Multiplies with a target's kernels; bf16 only if both target and processor have the bf16 dot product, f16 never.
/// `packed`: B is packed before the product, piece by piece.
Results matmul_by_target(const kernels::GemmTarget& target, bool packed, const Inputs& in) {
  const bool pairs = in.a.dtype() == Dtype::bf16;
  if (in.a.dtype() == Dtype::f16 || (pairs && !(target.has_pairs && runtime::cpu().avx512_bf16))) return {};
  const Tensor y = empty({in.a.size(0), in.b.size(1)}, in.a.dtype());
  const Tensor addend = in.addend.defined() && pairs ? in.addend.to(Dtype::f32) : in.addend;
  kernels::GemmProblem p = gemm_problem(in, y);
  p.bias = addend.defined() ? addend.data() : nullptr;
  Tensor panels;
  if (packed) {
    panels = empty({static_cast<std::int64_t>(target.packed_bytes(p) / sizeof(float)) + 1});
    for (std::int64_t piece = 0; piece < target.pieces(p); ++piece) target.pack(p, piece, panels.data());
  }
  void* scratch = runtime::thread_scratch(target.scratch_bytes(p, packed));
  for (std::int64_t part = target.parts(p, packed); part-- > 0;)
    target.run(p, part, scratch, packed ? panels.data() : nullptr);
  return {{"product", y}};
}

Results attention_by_target(const kernels::AttentionTarget& target, Partition partition, const Case& c,
                            const Inputs& in) {
  const kernels::ForwardKernel& kernel = c.dtype == Dtype::f64    ? target.f64
                                         : c.dtype == Dtype::bf16 ? target.bf16
                                                                  : target.f32;
  if (c.dtype == Dtype::f16 || kernel.rows == 0 || (c.dtype == Dtype::bf16 && !runtime::cpu().avx512_bf16)) return {};
  if (c.is_backward() || c.is_jvp()) return {};
  // Left out in 16 bits: additive scores, which the library computes in f32, and int8 caches, whose rows it reads
  // without rounding them to 16 bits.
  if (size_of(c.dtype) == 2 && (c.storage != "same" || c.score == "additive")) return {};
  Attended a(in);
  attend_by_query_tiles(kernel, a.call, partition);
  return a.results;
}

/// Returns whether this machine's kernels compute the gradients of a bf16 case without widening it.
bool by_pairs(const Case& c) {
  kernels::AttentionProblem bf16;
  bf16.element = kernels::Element::bf16;
  return c.is_backward() && c.dtype == Dtype::bf16 && plan_backward(bf16).kernel != nullptr;
}

/// Runs the backward kernel of a target.
Results gradients_by_target(const kernels::GradientTarget& target, const Case& c, const Inputs& in) {
  if (!c.is_backward() || c.dtype == Dtype::f16 ||
      (c.dtype == Dtype::bf16 && (target.bf16.step == nullptr || !runtime::cpu().avx512_bf16)))
    return {};
  kernels::AttentionProblem asked;
  asked.element = c.dtype == Dtype::f64    ? kernels::Element::f64
                  : c.dtype == Dtype::bf16 ? kernels::Element::bf16
                                           : kernels::Element::f32;
  asked.score = c.score == "additive" ? kernels::ScoreOp::additive : kernels::ScoreOp::dot;
  const BackwardPlan plan{target.name, &target.of(asked)};
  return gradients_by(&plan, in);
}

/// Sets the number of threads; the destructor restores it.
struct Threads {
  int before = num_threads();
  explicit Threads(int threads) { set_num_threads(threads); }
  ~Threads() { set_num_threads(before); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
};

Results blocks_by_library(const Inputs& in) {
  const Tensor y = empty({in.a.size(0), in.b.size(1)}, in.a.dtype());
  kernels::multiply(gemm_problem(in, y));
  return {{"product", y}};
}

Results by_library(const Case& c, const Inputs& in) {
  if (c.is_recurrent()) return recurrent_by_library(c, in);
  if (c.is_jvp()) return jvp_by_library(c, in);
  if (c.is_backward()) return gradients_by(nullptr, in);
  if (c.is_attention()) {
    const AttentionResult r =
        in.cached ? attention_cached(in.q, in.cached->cache, in.cached->sequences, cached_options(in.options))
                  : attention(in.q, in.k, in.v, in.options);
    Results results{{"output", r.output}};
    if (r.logsumexp.defined()) results.push_back({"logsumexp", r.logsumexp});
    if (r.weights.defined()) results.push_back({"weights", r.weights});
    // with 16 bits the keys of nearly equal weights may change places, so they are not compared
    if (r.weight_keys.defined() && size_of(c.dtype) > 2) results.push_back({"weight_keys", r.weight_keys});
    return results;
  }
  if (in.blocks) return blocks_by_library(in);
  if (c.op == "matmul")
    return {{"product", in.addend.defined() ? linear(in.a, in.b.transpose(0, 1), in.addend) : matmul(in.a, in.b)}};
  return {{"result", row_result(c, in, {})}};
}

}  // namespace

Results by_specification(const Case& c, const Inputs& in) {
  if (in.blocks) {  // what a product with them must give: that with the decoded weights
    Inputs decoded = in;
    decoded.blocks = nullptr;
    return by_specification(c, decoded);
  }
  return by_build(kernels::reference(), c, in);
}
kernels::GemmProblem gemm_problem(const Inputs& in, const Tensor& y) {
  kernels::GemmProblem p;
  p.m = in.a.size(0);
  p.k = in.a.size(1);
  p.n = in.b.size(1);
  p.a = in.a.data();
  p.b = in.b.data();
  p.y = y.data();
  p.bias = in.addend.defined() ? in.addend.data() : nullptr;
  p.narrow = in.a.dtype() == Dtype::bf16;
  p.element = p.narrow ? Element::bf16 : element_of_compute(in.a.dtype());
  for (int d = 0; d < 2; ++d) {
    p.a_stride[d] = in.a.stride(d);
    p.b_stride[d] = in.b.stride(d);
    p.y_stride[d] = y.stride(d);
  }
  if (in.blocks) {
    p.b = in.blocks->bytes.data();
    p.b_stride[1] = in.blocks->row_bytes;
    p.b_blocks = in.blocks->format;
  }
  return p;
}

Tensor row_result(const Case& c, const Inputs& in, const Tensor& out) {
  if (c.op == "softmax") return softmax(in.x, -1, out);
  if (c.op == "log_softmax") return log_softmax(in.x, -1, out);
  if (c.op == "layer_norm") return layer_norm(in.x, {c.n}, in.weight, in.bias, 1e-5, out);
  if (c.op == "rms_norm") return rms_norm(in.x, {c.n}, in.weight, 1e-6, out);
  if (c.op == "sum") return sum(in.x, {-1}, false, out);
  if (c.op == "exp") return exp(in.x, out);
  if (c.op == "log") return log(in.x, out);
  if (c.op == "tanh") return tanh(in.x, out);
  if (c.op == "sin") return sin(in.x, out);
  if (c.op == "cos") return cos(in.x, out);
  if (c.op == "sigmoid") return sigmoid(in.x, out);
  if (c.op == "silu") return silu(in.x, out);
  return gelu(in.x, c.op == "gelu" ? GeluApproximate::none : GeluApproximate::tanh, out);
}

std::vector<Way> specification_ways() {
  std::vector<Way> ways;
  for (const kernels::Reference* build : {kernels::reference_generic(), kernels::reference_fma()})
    if (build != nullptr)
      ways.push_back({runtime::format("reference {}", build->build), "scalar",
                      [build](const Case& c, const Inputs& in) { return by_build(*build, c, in); }});
  return ways;
}

std::vector<Way> target_ways(const std::string& name) {
  std::vector<Way> ways;
  const bool tiles = runtime::vectors_of(name) != name;
  if (const kernels::AttentionTarget* target = kernels::attention_target(name.c_str()); target != nullptr)
    for (const auto& [how, partition] :
         {std::pair{"query tiles", Partition::query_tiles}, std::pair{"heads together", Partition::heads_together},
          std::pair{"key splits", Partition::splits}})
      ways.push_back(
          {runtime::format("{} {}", name, how), name, [target, partition = partition](const Case& c, const Inputs& in) {
             return c.is_attention() && !is_normalized(in) ? attention_by_target(*target, partition, c, in) : Results{};
           }});
  if (const kernels::GradientTarget* target = kernels::gradient_target(name.c_str()); target != nullptr)
    ways.push_back({runtime::format("{} backward", name), name, [target](const Case& c, const Inputs& in) {
                      return is_normalized(in) ? Results{} : gradients_by_target(*target, c, in);
                    }});
  if (const kernels::TangentTarget* target = kernels::tangent_target(name.c_str()); target != nullptr)
    ways.push_back({runtime::format("{} forward mode", name), name, [target](const Case& c, const Inputs& in) {
                      if (!c.is_jvp()) return Results{};
                      return c.dtype == Dtype::f64 ? jvp_by(target->f64, target->gradient_f64, c, in)
                                                   : jvp_by(target->f32, target->gradient_f32, c, in);
                    }});
  if (const kernels::NormalizerTarget* target = kernels::normalizer_target(name.c_str()); target != nullptr)
    ways.push_back({runtime::format("{} normalizer", name), name, [target](const Case& c, const Inputs& in) {
                      if (!c.is_attention() || !is_normalized(in) || size_of(c.dtype) == 2 || in.cached)
                        return Results{};
                      const kernels::NormalizerKernel& kernel = target->of(asked_of(c));
                      const BackwardPlan plan{target->name, &kernel.gradient};
                      return c.is_backward()
                                 ? gradients_by(&plan, in)
                                 : normalized_by(kernel, kernels::normalizer_reference(kernels::reference()), in);
                    }});
  if (const kernels::GradientTarget* target = kernels::gradient_target(name.c_str());
      target != nullptr && target->bf16.step != nullptr)
    for (const kernels::Reference* build : {kernels::reference_generic(), kernels::reference_fma()})
      if (build != nullptr)  // this reference code must give the bits of the processor's kernels
        ways.push_back({runtime::format("{} bf16 reference {}", name, build->build), name,
                        [kernel = build->bf16_gradient[tiles]](const Case& c, const Inputs& in) {
                          const BackwardPlan plan{"ref", kernel};
                          return by_pairs(c) && !is_normalized(in) ? gradients_by(&plan, in) : Results{};
                        }});
  if (const kernels::GemmTarget* target = kernels::gemm_target(name.c_str()); target != nullptr)
    for (const bool packed : {false, true})
      ways.push_back({runtime::format("{} {}products", name, packed ? "packed " : ""), name,
                      [target, packed](const Case& c, const Inputs& in) {
                        return c.op != "matmul" || (packed && in.blocks) ? Results{}
                                                                         : matmul_by_target(*target, packed, in);
                      }});
  if (const kernels::RowTarget* target = kernels::row_target(name.c_str()); target != nullptr) {
    const kernels::RecurrentKernels* recurrent = kernels::recurrent_target(name.c_str());
    ways.push_back({runtime::format("{} rows", name), name, [=](const Case& c, const Inputs& in) {
                      if (c.is_recurrent())
                        return recurrent != nullptr ? recurrent_by(*recurrent, target->unary, c, in) : Results{};
                      return c.is_attention() || c.op == "matmul" || size_of(c.dtype) == 2 ? Results{}
                                                                                           : rows_by(*target, c, in);
                    }});
  }
  return ways;
}

Way library_way(int threads) {
  return {runtime::format("library, {} thread{}", threads, threads == 1 ? "" : "s"), runtime::target(),
          [threads](const Case& c, const Inputs& in) {
            const Threads set(threads);
            return by_library(c, in);
          }};
}

std::vector<Way> all_ways() {
  std::vector<Way> ways = specification_ways();
  for (const std::string& target : runtime::targets())
    for (Way& way : target_ways(target)) ways.push_back(std::move(way));
  for (const int threads : {1, 2, 3}) ways.push_back(library_way(threads));
  return ways;
}

}  // namespace attn::cases
