// src/kernels/reference_builds.h: finds a table of the reference code in one of its two builds: for tables that are not
// in kernels::Reference, so that a program that does not use them is not linked with them.
#pragma once
#include "kernels/reference.h"

/// ATTN_DECLARE_IN_BUILDS declares `table` of all builds, in attn::kernels; ATTN_OF_BUILD is that of the build
/// `reference`, a kernels::Reference.
#if defined(ATTN_HAS_REF_FMA)
#define ATTN_DECLARE_IN_BUILDS(Type, table) \
  namespace ref_generic {                   \
  extern const Type table;                  \
  }                                         \
  namespace ref_fma {                       \
  extern const Type table;                  \
  }
#define ATTN_OF_BUILD(reference, table) (&(reference) == reference_fma() ? ref_fma::table : ref_generic::table)
#else
#define ATTN_DECLARE_IN_BUILDS(Type, table) \
  namespace ref_generic {                   \
  extern const Type table;                  \
  }
#define ATTN_OF_BUILD(reference, table) ((void)(reference), ref_generic::table)
#endif
