// src/verify/coverage.cc: makes a small case for each option on each path in each dtype, or gives the reason why there
// is none.
#include "verify/coverage.h"

#include "runtime/format.h"

#include <string_view>

namespace attn::cases {
namespace {

constexpr CoverageOption options[] = {
    {"any", "", ""},
    {"grouped heads", " Hk=", "Hk=2"},
    {"k and v of other heads", " Hv=", "Hk=2 Hv=4"},
    {"v of another dim", " Dv=", "Dv=5"},
    {"transposed layout", " layout=turned", "layout=turned"},
    {"scale", " scale=", "scale=0.3"},
    {"score general", " score=general", "score=general D=32"},
    {"score additive", " score=additive", "score=additive A=7"},
    {"mask causal", "causal", "mask=causal(bottom_right)"},
    {"mask window", "window(", "mask=window(9,2,bottom_right)"},
    {"mask prefix, | and ~", "prefix(", "mask=causal(bottom_right)|prefix(5)&~window(3,0,bottom_right)"},
    {"mask documents", "documents", "mask=documents"},
    {"mask of bools", "mask=bool", "mask=bool"},
    {"bias dense", "bias=dense", "bias=dense"},
    {"bias of pairs", "bias=pairs", "bias=pairs"},
    {"bias of an item", "bias=item", "bias=item"},
    {"bias of keys, -inf", "bias=key", "bias=key"},
    {"bias alibi", "bias=alibi", "bias=alibi"},
    {"bias relative", "bias=relative", "bias=relative"},
    {"score_mod", "score_mod=", "score_mod=s-slope[h]*(i(bottom_right)-j)"},
    {"score_callback", "score_callback=", nullptr},
    {"softcap", "softcap=", "softcap=1.5"},
    {"temperature", "temperature=", "temperature=0.7"},
    {"sinks", "sinks=", "sinks=1"},
    {"dropout", "dropout=", "dropout=0.3"},
    {"query_lengths", "lengths=rows", "lengths=rows"},
    {"key_lengths", "lengths=keys", "lengths=keys"},
    {"key_start", "lengths=starts", "lengths=starts"},
    {"query_start", "query_start=", nullptr},
    {"all lengths, hidden NaN", "hidden=nan", "lengths=all hidden=nan"},
    {"weights full", "weights=full", "weights=full"},
    {"weights head_average", "weights=head_average", "weights=head_average"},
    {"weights column_sums", "weights=column_sums", "weights=column_sums"},
    {"weights rows", "weights=rows", "weights=rows"},
    {"weights top_k", "weights=top_k", "weights=top_k"},
};

// The fields of a case on each path.
constexpr const char* path_fields[] = {"Tq=9 Tk=70",
                                       "Tk=150",
                                       "Tq=40 Tk=70 lengths=packed",
                                       "Tq=3 Tk=70 cache=pages16",
                                       "Tq=3 Tk=70 cache=pages16 storage=int8",
                                       "Tq=9 Tk=70"};

}  // namespace

std::span<const CoverageOption> coverage_options() { return options; }

Path path_of(const Case& c) {
  if (c.is_backward()) return Path::backward;
  if (c.storage != "same") return Path::int8;
  if (c.is_cached()) return Path::paged;
  if (c.lengths == "packed") return Path::packed;
  return c.op == "attention_decode" || c.q_rows == 1 ? Path::decode : Path::prefill;
}

const char* why_not(const CoverageOption& option, Path path, Dtype dtype) {
  const std::string_view name = option.name;
  const bool cached = path == Path::paged || path == Path::int8;
  if (name == "score_callback") return "its bits are the caller's: tests/attention/score_callback_test.cc";
  if (name == "query_start") return "a cache sets it; without one: tests/attention/forward_test.cc, bits_test.cc";
  if (path == Path::backward && name.starts_with("weights"))
    return "gradients of weights come by the definition: tests/attention/gradient_test.cc";
  if (path == Path::backward && name == "score additive" && size_of(dtype) == 2)
    return "16 bits are widened to f32 before it";
  if (path == Path::packed) {
    if (name.starts_with("mask of") || name == "mask documents" || name == "bias dense" || name.starts_with("bias of"))
      return "over all sequences at once: tests/attention/packed_test.cc";
    if (name.find("lengths") != name.npos || name == "key_start")
      return "cu_seqlens are the lengths of packed sequences";
    if (name == "transposed layout") return "packed sequences lie that way in every case";
  }
  if (cached && (name == "query_lengths" || name == "key_start" || name.starts_with("all")))
    return "a cache knows where its sequences begin and end";
  if (name == "mask documents" && path != Path::prefill && path != Path::backward)
    return "documents need Tq = Tk here: tests/attention/mask_test.cc";
  return nullptr;
}

std::vector<std::string> coverage_lines() {
  std::vector<std::string> lines;
  for (const CoverageOption& option : options)
    for (int path = 0; path < 6; ++path)
      for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
        if (why_not(option, static_cast<Path>(path), dtype) != nullptr) continue;
        const bool documents = std::string_view(option.name) == "mask documents";
        const char* op = path == static_cast<int>(Path::backward) ? "attention_backward"
                         : path == static_cast<int>(Path::decode) ? "attention_decode"
                                                                  : "attention";
        lines.push_back(runtime::format("{} {} {} B=2 Hq=4 D=8 {}", op, name_of(dtype),
                                        documents ? "Tq=70" : path_fields[path], option.fields));
      }
  return lines;
}

}  // namespace attn::cases
