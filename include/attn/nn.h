// include/attn/nn.h: modules with torch's names, parameters and random numbers.
#pragma once
#include <attn/nn/containers.h>
#include <attn/nn/init.h>
#include <attn/nn/layers.h>
#include <attn/nn/module.h>
#include <attn/nn/multihead_attention.h>
#include <attn/nn/rotary.h>
#include <attn/nn/small_attention.h>
