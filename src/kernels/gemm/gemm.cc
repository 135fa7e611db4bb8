// src/kernels/gemm/gemm.cc: computes y = activation(a b + bias), blocked and packed; compiled once for every
// instruction set.
#include "kernels/gemm/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/gemm/amx_part-inl.h"
#include "kernels/gemm/few_rows-inl.h"
#include "kernels/gemm/gemm_part-inl.h"
#include "kernels/targets.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Calls run(Kind{}) for the element type of a product.
template <typename Run>
auto with_kind(const GemmProblem& p, Run run) {
#if HWY_TARGET == HWY_AVX3
  if (p.element == Element::bf16) return run(Pairs());
#endif
  if (p.element == Element::f64) return run(Plain<double>());
  return run(Plain<float>());
}

std::int64_t gemm_parts(const GemmProblem& p, bool packed) noexcept {
  return with_kind(p, [&]<class Kind>(Kind) {
    return !packed && FewRowsSplit<Kind>::takes(p) ? FewRowsSplit<Kind>(p).parts : GemmSplit<Kind>(p, packed).parts();
  });
}
std::size_t gemm_scratch(const GemmProblem& p, bool packed) noexcept {
  return with_kind(p, [&]<class Kind>(Kind) {
    return !packed && FewRowsSplit<Kind>::takes(p) ? FewRowsSplit<Kind>(p).scratch_bytes()
                                                   : GemmSplit<Kind>(p, packed).scratch_bytes();
  });
}
void gemm_run(const GemmProblem& p, std::int64_t part, void* scratch, const void* packed) noexcept {
  with_kind(p, [&]<class Kind>(Kind) {
    if (!packed && FewRowsSplit<Kind>::takes(p)) return few_rows_part_of<Kind>(p.m)(p, part, scratch);
    gemm_part<Kind>(p, part, scratch, packed);
  });
}

bool gemm_packs_both(const GemmProblem& p) noexcept {
  return with_kind(p, [&]<class Kind>(Kind) {
    const GemmSplit<Kind> cut(p, true);
    return p.m > few_rows_most && cut.pack_a && p.m * p.n * p.k >= least_shared_work && cut.own_b() == 0;
  });
}
std::int64_t gemm_pieces(const GemmProblem& p) noexcept {
  return with_kind(p, [&]<class Kind>(Kind) { return GemmSplit<Kind>(p, true).panels; });
}
std::size_t gemm_packed_bytes(const GemmProblem& p) noexcept {
  return with_kind(p, [&]<class Kind>(Kind) {
    const GemmSplit<Kind> cut(p, true);
    return sizeof(typename Kind::Word) * static_cast<std::size_t>(cut.vectors * cut.N * pieces_of(p.k, Kind::depth));
  });
}
void gemm_pack(const GemmProblem& p, std::int64_t q, void* packed) noexcept {
  with_kind(p, [&]<class Kind>(Kind) {
    const GemmSplit<Kind> cut(p, true);
    const std::int64_t column = cut.first_vector(q) * cut.N;
    const int width = static_cast<int>(cut.first_vector(q + 1) * cut.N - column);
    pack_panel<Kind>(p, 0, p.k, column, static_cast<int>(std::min<std::int64_t>(p.n - column, width)), width,
                     static_cast<typename Kind::Word*>(packed) + column * pieces_of(p.k, Kind::depth));
  });
}

extern const GemmTarget gemm_table;
const GemmTarget gemm_table = {
    .name = ATTN_TARGET_NAME,
    .has_pairs = HWY_TARGET == HWY_AVX3,
    .parts = gemm_parts,
    .scratch_bytes = gemm_scratch,
    .run = gemm_run,
    .packs_both = gemm_packs_both,
    .pieces = gemm_pieces,
    .packed_bytes = gemm_packed_bytes,
    .pack = gemm_pack,
};

#if HWY_TARGET == HWY_AVX3
bool by_amx(const GemmProblem& p) { return p.element == Element::bf16; }

std::int64_t amx_parts(const GemmProblem& p, bool packed) noexcept {
  return by_amx(p) ? AmxSplit(p, packed).parts() : gemm_parts(p, packed);
}
std::size_t amx_scratch(const GemmProblem& p, bool packed) noexcept {
  return by_amx(p) ? AmxSplit(p, packed).scratch_bytes(packed) : gemm_scratch(p, packed);
}
void amx_run(const GemmProblem& p, std::int64_t part, void* scratch, const void* packed) noexcept {
  (by_amx(p) ? amx_part : gemm_run)(p, part, scratch, packed);
}
bool amx_packs_both(const GemmProblem& p) noexcept {
  return by_amx(p) ? AmxSplit(p, false).packs_before() : gemm_packs_both(p);
}
std::int64_t amx_pieces(const GemmProblem& p) noexcept {
  return by_amx(p) ? packed_pieces(AmxSplit(p, true)) : gemm_pieces(p);
}
std::size_t amx_packed_bytes(const GemmProblem& p) noexcept {
  if (!by_amx(p)) return gemm_packed_bytes(p);
  const AmxSplit cut(p, true);
  return sizeof(float) * static_cast<std::size_t>(cut.units * tile_pairs * pieces_of(p.n, tile_pairs) * tile_pairs);
}
void amx_pack(const GemmProblem& p, std::int64_t q, void* packed) noexcept {
  if (!by_amx(p)) return gemm_pack(p, q, packed);
  pack_piece(p, AmxSplit(p, true), q, static_cast<float*>(packed));
}

extern const GemmTarget amx_gemm_table;
const GemmTarget amx_gemm_table = {
    .name = "amx",
    .has_pairs = true,
    .parts = amx_parts,
    .scratch_bytes = amx_scratch,
    .run = amx_run,
    .packs_both = amx_packs_both,
    .pieces = amx_pieces,
    .packed_bytes = amx_packed_bytes,
    .pack = amx_pack,
};
#endif

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernels {

const GemmTarget* gemm_target(const char* name) noexcept {
  return find_table<GemmTarget>({ATTN_AMX_TABLE(amx_gemm_table) ATTN_TABLES(gemm_table)}, name);
}

}  // namespace attn::kernels
#endif
