# python/attn/torch/_recurrent.py: linear attention with a state and the causal convolution of torch tensors, with
# gradients.
"""Under torch.compile the calls run outside of the graph."""

import copy

import torch

from attn import _core
from attn.torch import _call, _mutations

_NAMES = ("q", "k", "v", "g", "beta", "initial_state")


def _check_backward(function, *grads):
    """Raises an error where gradients are recorded, because these are constants for a second pass, which would lose a
    part; and for a batch of gradients."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"{function}: its gradient has no gradient here; create_graph must be False")
    _call.refuse_batch(function, *grads)


class _LinearAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scale, l2norm, lengths, cu_seqlens, *tensors):
        output, state, states = _core.linear_attention((*tensors, lengths, cu_seqlens), scale, l2norm, True)
        # copied: torch does not watch changes of these between the passes
        ctx.numbers, ctx.rows = (scale, l2norm), copy.deepcopy((lengths, cu_seqlens))
        ctx.save_for_backward(*map(_mutations.owned, tensors), states)
        ctx.set_materialize_grads(False)
        return output, state

    @staticmethod
    def backward(ctx, grad_output, grad_state):
        _check_backward("linear_attention", grad_output, grad_state)
        *tensors, states = ctx.saved_tensors
        found = _core.linear_attention_backward((*tensors, *ctx.rows), *ctx.numbers, states, grad_output, grad_state)
        return None, None, None, None, *(x if need else None for x, need in zip(found, ctx.needs_input_grad[4:]))


class _CausalConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, silu, *tensors):
        ctx.silu = silu
        ctx.save_for_backward(*map(_mutations.owned, tensors))
        ctx.set_materialize_grads(False)
        return _core.causal_conv1d(*tensors, silu)

    @staticmethod
    def backward(ctx, grad_output, grad_state):
        _check_backward("causal_conv1d", grad_output, grad_state)
        found = _core.causal_conv1d_backward(*ctx.saved_tensors, ctx.silu, grad_output, grad_state)
        return None, *(x if need else None for x, need in zip(found, ctx.needs_input_grad[1:]))


def _check(function, tensors):
    _call.check_tensors(function, tensors, optional=tensors.keys() - {"q", "k", "v", "x", "weight"})
    _call.refuse_transforms(function, tensors.values())


@torch.compiler.disable
def linear_attention(operands, scale, l2norm):
    *tensors, lengths, cu_seqlens = operands
    _check("linear_attention", dict(zip(_NAMES, tensors)))
    if _call.wants_gradient(*tensors):
        return _LinearAttention.apply(scale, l2norm, lengths, cu_seqlens, *tensors)
    return _core.linear_attention(operands, scale, l2norm, False)[:2]


@torch.compiler.disable
def causal_conv1d(x, weight, bias, initial_state, silu):
    tensors = dict(x=x, weight=weight, bias=bias, initial_state=initial_state)
    _check("causal_conv1d", tensors)
    if _call.wants_gradient(*tensors.values()):
        return _CausalConv.apply(silu, *tensors.values())
    return _core.causal_conv1d(x, weight, bias, initial_state, silu)
