// include/attn/nn.h: includes every module of attn::nn.
#pragma once
#include <attn/nn/containers.h>
#include <attn/nn/init.h>
#include <attn/nn/layers.h>
#include <attn/nn/module.h>
#include <attn/nn/multihead_attention.h>
#include <attn/nn/rotary.h>
#include <attn/nn/small_attention.h>
#include <attn/nn/transformer.h>
