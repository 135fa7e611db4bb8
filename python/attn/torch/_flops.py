# python/attn/torch/_flops.py: counts the operations of attn's operators for torch's FlopCounterMode.
"""Counts as torch does for its own functions. Each multiplication of a matrix product counts as two operations, for
all pairs of a query and a key of a sequence, masked or not. The backward pass of attention counts the scores again."""

import math

import torch
from torch.utils.flop_counter import register_flop_formula

from attn.torch import _general_op, _linear, _ops  # noqa: F401: they register the operators
from attn.torch._encoded import AT, as_held, decoded, without


@register_flop_formula(torch.ops.attn.mm)
def _mm(a, b, *_, **__):
    return 2 * math.prod(a) * b[1]


@register_flop_formula(torch.ops.attn.linear)
def _linear_map(x, weight, *_, **__):
    return 2 * math.prod(x) * weight[0]


# --- attention: the products of its scores, and that of its weights and values ----------------------------------------


def _products(q, k, v):
    pairs = math.prod(q[:-1]) * k[-2]
    return 2 * pairs * q[-1], 2 * pairs * v[-1]


def _general_products(tensors, texts):
    # score_mod is left out: it has no products, and it may look up tensors that have no values here
    q, k, v, options = decoded(tensors, as_held(without(texts, "score_mod")))
    lengths, key_lengths = (None if x is None else torch.as_tensor(x)
                            for x in (options[AT[name]] for name in ("cu_seqlens_q", "cu_seqlens_k")))
    if lengths is None:
        pairs = math.prod(q.shape[:-1]) * k.shape[-2]
    else:
        key_lengths = lengths if key_lengths is None else key_lengths
        pairs = q.shape[1] * int((lengths.diff() * key_lengths.diff()).sum())
    scores, arrays = 2 * pairs * k.shape[-1], getattr(options[AT["score"]], "arrays", ())
    if len(arrays) == 1:  # general: first the product of W and the queries
        scores += 2 * q.numel() * k.shape[-1]
    elif len(arrays) == 3:  # additive: two projections, then one number for each pair and hidden element
        scores = 2 * arrays[2].numel() * (q.numel() + k.numel() + pairs)
    return scores, 2 * pairs * v.shape[-1]


def _backward(scores, output):
    return 3 * scores + 2 * output


@register_flop_formula(torch.ops.attn.attention)
def _attention(q, k, v, *_, **__):
    return sum(_products(q, k, v))


@register_flop_formula(torch.ops.attn.attention_backward)
def _attention_backward(grad, q, k, v, *_, **__):
    return _backward(*_products(q, k, v))


@register_flop_formula(torch.ops.attn.general, get_raw=True)
def _general_attention(tensors, texts, *_, **__):
    return sum(_general_products(tensors, texts))


@register_flop_formula(torch.ops.attn.general_backward, get_raw=True)
def _general_backward(grads, given, tensors, texts, *_, **__):
    return _backward(*_general_products(tensors, texts))
