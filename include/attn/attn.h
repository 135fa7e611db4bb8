// include/attn/attn.h: everything.
#pragma once
#include <attn/attention.h>
#include <attn/bias.h>
#include <attn/dims.h>
#include <attn/dtype.h>
#include <attn/error.h>
#include <attn/explain.h>
#include <attn/mask.h>
#include <attn/nn.h>
#include <attn/npy.h>
#include <attn/ops.h>
#include <attn/plain.h>
#include <attn/random.h>
#include <attn/runtime.h>
#include <attn/safetensors.h>
#include <attn/tensor.h>
#include <attn/text.h>
