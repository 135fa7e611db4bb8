// src/model/generate_internal.h: what sampling, decoding and text share.
#pragma once
#include <attn/generate.h>

namespace attn {

/// ValueError for an option out of its range.
void check_sample(const SampleOptions& options);

}  // namespace attn
