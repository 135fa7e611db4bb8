// src/kernels/targets.h: names the instruction sets that kernels are compiled for, and finds the tables of kernels of
// one of them. Included after Highway.
#pragma once
#include <initializer_list>
#include <string_view>

/// The name of the instruction set that is being compiled. The last one is that of all others.
#define ATTN_TARGET_NAME (HWY_TARGET == HWY_AVX2 ? "avx2" : HWY_TARGET == HWY_AVX3 ? "avx512" : "neon")

/// The addresses of the tables `table` of all instruction sets that are built, each followed by a comma;
/// attention/forward.cc checks that they are.
#if HWY_TARGETS & HWY_AVX3
#define ATTN_TABLES(table) &N_AVX3::table, &N_AVX2::table,
#elif HWY_TARGETS & HWY_NEON
#define ATTN_TABLES(table) &N_NEON::table,
#else
#define ATTN_TABLES(table)
#endif
/// The address of the AMX table `table`, followed by a comma; it is compiled in the namespace of AVX-512.
#if HWY_TARGETS & HWY_AVX3
#define ATTN_AMX_TABLE(table) &N_AVX3::table,
#else
#define ATTN_AMX_TABLE(table)
#endif

namespace attn::kernels {

/// Returns the table of that name; null if there is none.
template <class Table>
const Table* find_table(std::initializer_list<const Table*> built, std::string_view name) {
  for (const Table* table : built)
    if (name == table->name) return table;
  return nullptr;
}

}  // namespace attn::kernels
