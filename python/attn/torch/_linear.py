# python/attn/torch/_linear.py: linear maps by attn's matrix products, as operators of torch.
"""x W^T + b with the library's order of sums: the bits of a row do not depend on the batch or the number of threads."""

from typing import Optional

import torch
from torch import Tensor

from attn import _core
from attn.torch import _call


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


def _mm_gradients(ctx, grad):
    a, b = ctx.saved_tensors
    da = mm(grad, b.t()) if ctx.needs_input_grad[0] else None
    db = mm(a.t(), grad) if ctx.needs_input_grad[1] else None
    return da, db


torch.library.register_autograd("attn::mm", _mm_gradients, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


@torch.library.custom_op("attn::linear", mutates_args=(), device_types="cpu")
def _linear(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    return linear_direct(x, weight, bias)


def linear_direct(x, weight, bias):
    """Without a history."""
    out = x.new_empty((*x.shape[:-1], weight.shape[0]))
    _core.linear_into(x, weight, bias, out)
    return out


@_linear.register_fake
def _(x, weight, bias):
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _linear_gradients(ctx, grad):
    x, weight = ctx.saved_tensors
    rows = grad.reshape(-1, grad.shape[-1])
    dx = mm(rows, weight).view(x.shape) if ctx.needs_input_grad[0] else None
    dw = mm(rows.t(), x.reshape(-1, x.shape[-1])) if ctx.needs_input_grad[1] else None
    db = rows.sum(0) if ctx.needs_input_grad[2] else None
    return dx, dw, db


class _Direct(torch.autograd.Function):
    """The same without the dispatcher, where nobody but autograd asks what was done."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return linear_direct(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return _linear_gradients(ctx, grad)
        x, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = _product(rows, weight).view(x.shape)
        if ctx.needs_input_grad[1]:
            dw = _product(rows.t(), x.reshape(-1, x.shape[-1]))
        if ctx.needs_input_grad[2]:
            db = rows.sum(0)
        return dx, dw, db


torch.library.register_autograd("attn::linear", _linear_gradients, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:2]))


def _check(x, weight, bias):
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"linear: input has shape {list(x.shape)}, weight {list(weight.shape)}; they must be [..., in] and [out, in]")
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ValueError(f"linear: bias has shape {list(bias.shape)}; it must be [{weight.shape[0]}]")
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.dtype != x.dtype:
            raise TypeError(f"linear: {name} is {other.dtype}; it must be {x.dtype} as input")
    if x.dtype not in _call.FLOATS:
        raise TypeError(f"linear: input is {x.dtype}; it must be float32, float64, bfloat16 or float16")


def linear(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """torch.nn.functional.linear on the CPU: input [.., in], weight [out, in], bias [out] -> [.., out].

    Dtypes: float32, float64, bfloat16, float16, the same for all; bfloat16 by the processor's own dot product where it has one.
    Errors: TypeError, ValueError.
    """
    _call.check_tensors("linear", {"input": input, "weight": weight, "bias": bias}, optional=("bias",))
    input, weight, bias = _call.autocast([input, weight, bias])
    _check(input, weight, bias)
    if _call.is_direct() and all(x is None or _call.is_plain(x) for x in (input, weight, bias)):
        return (_Direct.apply if _call.wants_gradient(input, weight, bias) else linear_direct)(input, weight, bias)
    return _linear(input, weight, bias)
