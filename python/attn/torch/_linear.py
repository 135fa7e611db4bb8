# python/attn/torch/_linear.py: defines linear layers and matrix products as torch operators that run attn's products.
"""Computes x W^T + b with the library's order of summation: the bits of a row do not depend on
the batch or the number of threads."""

import math
from typing import Optional

import torch
from torch import Tensor

from attn import _core
from attn.torch import _call, _mutations, _ops


@torch.library.custom_op("attn::mm", mutates_args=(), device_types="cpu")
def mm(a: Tensor, b: Tensor) -> Tensor:
    return _product(a, b)


def _product(a, b):
    out = a.new_empty((a.shape[0], b.shape[1]))
    _core.matmul_into(a, b, out)
    return out


@mm.register_fake
def _(a, b):
    return a.new_empty((a.shape[0], b.shape[1]))


def _keep_factors(ctx, inputs, output=None):
    """Saves the factors that the requested gradients need. As with torch's own function, a factor that is not saved
    may be changed after the call."""
    needs = ctx.needs_input_grad
    ctx.save_for_backward(*(_mutations.owned(x) if needed else None for x, needed in zip(inputs[:2], needs[1::-1])))


def _mm_gradients(ctx, grad):
    a, b = ctx.saved_tensors
    da = mm(grad, b.t()) if ctx.needs_input_grad[0] else None
    db = mm(a.t(), grad) if ctx.needs_input_grad[1] else None
    return da, db


torch.library.register_autograd("attn::mm", _mm_gradients, setup_context=_keep_factors)


@torch.library.custom_op("attn::linear", mutates_args=(), device_types="cpu")
def _linear(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    return linear_direct(x, weight, bias)


def linear_direct(x, weight, bias):
    """Computes the product without gradient history."""
    out = x.new_empty((*x.shape[:-1], weight.shape[0]))
    _core.linear_into(x, weight, bias, out)
    return out


@_linear.register_fake
def _(x, weight, bias):
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _linear_gradients(ctx, grad, product=mm):
    x, weight = ctx.saved_tensors
    rows = _rows(grad)
    dx = product(rows, weight).view(*grad.shape[:-1], weight.shape[1]) if ctx.needs_input_grad[0] else None
    dw = product(rows.t(), _rows(x)) if ctx.needs_input_grad[1] else None
    db = rows.sum(0) if ctx.needs_input_grad[2] else None
    return dx, dw, db


def _rows(x):
    """Reshapes x to a matrix whose rows run along the last dim; works also without rows and for rows of length 0."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


class _Direct(torch.autograd.Function):
    """Computes linear without torch's dispatcher, for calls that only autograd observes."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        _keep_factors(ctx, (x, weight))
        return linear_direct(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        if _call.is_forward():
            return _linear_gradients(ctx, grad, torch.mm)
        return _linear_gradients(ctx, grad,
                                 mm if torch.is_grad_enabled() or not _call.is_direct_backward(grad) else _product)


torch.library.register_autograd("attn::linear", _linear_gradients, setup_context=_keep_factors)


# --- batches and transforms -------------------------------------------------------------------------------------------


def _batches(apply, info, in_dims, args):
    """Runs a batch of products. If only the left operand is batched, its items become more rows of one product;
    batched right operands run one after another."""
    x, d = args[0], in_dims[0]
    if d is None or any(n is not None for n in in_dims[1:]) or info.batch_size == 0:
        return torch.stack(_ops.calls_of_items(apply, info, in_dims, args))[: info.batch_size], 0
    x = x.movedim(d, 0)
    y = apply(x.flatten(0, -2), *args[1:])
    return y.view(*x.shape[:-1], y.shape[-1]), 0


class _TransformedMm(torch.autograd.Function):
    """mm under torch.func."""

    @staticmethod
    def forward(a, b):
        return mm(a, b)

    setup_context = staticmethod(_keep_factors)

    backward = staticmethod(_mm_gradients)

    @staticmethod
    def vmap(info, in_dims, *args):
        return _batches(_TransformedMm.apply, info, in_dims, args)


class _Transformed(torch.autograd.Function):
    """linear under torch.func."""

    @staticmethod
    def forward(x, weight, bias):
        return _linear(x, weight, bias)

    setup_context = staticmethod(_keep_factors)

    backward = staticmethod(_linear_gradients)

    @staticmethod
    def vmap(info, in_dims, *args):
        return _batches(_Transformed.apply, info, in_dims, args)


_ops.under_func("mm", _TransformedMm.apply)
_ops.under_func("linear", _Transformed.apply)


def _is_usual(x, weight, bias):
    """Returns whether the tensors are dense and fit each other, and nothing observes the call: no check is needed."""
    if not (_call.is_plain(x) and _call.is_plain(weight) and (bias is None or _call.is_plain(bias))
            and _call.is_direct()):
        return False
    if x.is_nested or weight.is_nested or (bias is not None and bias.is_nested) or torch.is_autocast_enabled("cpu"):
        return False
    dtype, size = x.dtype, weight.shape
    if dtype not in _call.FLOATS or weight.dtype is not dtype or len(size) != 2 or x.shape[-1:] != size[1:]:
        return False
    return bias is None or (bias.dtype is dtype and bias.shape == size[:1])


def _check(x, weight, bias):
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        hint = ("; weight looks transposed: give weight.T" if weight.dim() == 2 and x.shape[-1:] == weight.shape[:1]
                else "")
        raise ValueError(f"linear: input has shape {list(x.shape)}, weight {list(weight.shape)}; "
                         f"they must be [..., in] and [out, in]{hint}")
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ValueError(f"linear: bias has shape {list(bias.shape)}; it must be [{weight.shape[0]}]")
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.dtype != x.dtype:
            raise TypeError(f"linear: {name} is {other.dtype}; it must be {x.dtype} as input")
    if x.dtype not in _call.FLOATS:
        raise TypeError(f"linear: input is {x.dtype}; it must be float32, float64, bfloat16 or float16")


def linear(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """torch.nn.functional.linear on the CPU: input [.., in], weight [out, in], bias [out] -> [.., out].

    Dtypes: float32, float64, bfloat16, float16, the same for all. bfloat16 uses the processor's bf16 dot product if
    it has one. Errors: TypeError, ValueError.
    """
    if _is_usual(input, weight, bias):
        return (_Direct.apply if _call.wants_gradient(input, weight, bias) else linear_direct)(input, weight, bias)
    _call.check_tensors("linear", {"input": input, "weight": weight, "bias": bias}, optional=("bias",))
    input, weight, bias = _call.autocast([input, weight, bias])
    _check(input, weight, bias)
    if _call.is_direct() and all(x is None or _call.is_plain(x) for x in (input, weight, bias)):
        return (_Direct.apply if _call.wants_gradient(input, weight, bias) else linear_direct)(input, weight, bias)
    if _call.is_forward():
        return torch._C._nn.linear(input, weight, bias)
    return _linear(input, weight, bias)
