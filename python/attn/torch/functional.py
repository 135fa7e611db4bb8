# python/attn/torch/functional.py: torch tensors in, torch tensors out.
"""Where a gradient is wanted a call is recorded (`_core.attention_recorded`), and its tape gives the gradients."""

import torch

from attn import _core


def _wants_gradient(*tensors):
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in tensors)


def scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    if _wants_gradient(query, key, value, attn_mask):
        raise ValueError("scaled_dot_product_attention: gradients of torch tensors are not there yet; use torch.no_grad()")
    return _core.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def attention(q, k, v, options):
    if _wants_gradient(*_core.attention_inputs(q, k, v, options)):
        raise ValueError("attention: gradients of torch tensors are not there yet; use torch.no_grad()")
    return _core.attention(q, k, v, options)
