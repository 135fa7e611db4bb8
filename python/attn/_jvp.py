# python/attn/_jvp.py: defines attention with the tangents of its results (forward mode).
"""The function calls the extension. For torch tensors torch.func.jvp and forward_ad do the same through
attn.attention."""

from typing import Any

from attn import _core
from attn._options import in_order, prepared

_LEFT_OUT = {"weights": "which has no tangent here", "out": "which has no tangent here",
             "return_plan": "which attn.attention returns; there is no plan here"}
_NAMES = tuple(name for name in _core.attention_options if name not in _LEFT_OUT)


def attention_jvp(
    q: Any,
    k: Any,
    v: Any,
    q_tangent: Any = None,
    k_tangent: Any = None,
    v_tangent: Any = None,
    *,
    bias_tangent: Any = None,
    sinks_tangent: Any = None,
    **options: Any,
) -> tuple[Any, ...]:
    """attn.attention and the derivative of its results along a direction; returns (output, tangent of output), with
    return_logsumexp=True also (logsumexp, tangent of logsumexp).

        ds[i,j] = the derivative of the score s[i,j] along the tangents
        mu[i]   = sum_j p[i,j] ds[i,j]                            p: the softmax's weights
        do[i]   = sum_j w[i,j] (ds[i,j] v[j] + dv[j]) - mu[i] o[i]     w: p after dropout; mu: of the logsumexp

    q_tangent ..   shaped as q, k, v; None: the operand does not move
    bias_tangent   the tangent of the array of bias, or a list of one for each of its arrays (None: it does not move)
    sinks_tangent  shaped as sinks
    options        those of attn.attention but weights, out and return_plan; score is the (scaled) dot product, or a
                   function

    Memory   O(T D): after the forward pass, one pass over the keys makes the weights again, block by block.
    Dtypes   as attn.attention; for bfloat16 and float16 the tangent is computed in float32 and rounded once.
    Gradient none: torch.func.jvp and torch.autograd.forward_ad through attn.attention have one.
    Raises   ValueError for shapes and values, TypeError for dtypes, each with one line that says what is needed.
    Source   the chain rule; memory as Dao 2022 (2205.14135).

    >>> import numpy as np, attn
    >>> x = np.eye(2, dtype=np.float32)
    >>> output, tangent = attn.attention_jvp(x, x, x, v_tangent=np.ones_like(x))
    >>> tangent
    array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    for name, why in _LEFT_OUT.items():
        if name in options:
            raise TypeError(f"attention_jvp: {name} is given, {why}; leave it out")
    given = in_order("attention_jvp", options, _NAMES)
    if hasattr(q, "__torch_function__"):
        of_bias = bias_tangent if isinstance(bias_tangent, (list, tuple)) else (bias_tangent,)
        given = _by_torch((q, k, v, q_tangent, k_tangent, v_tangent, sinks_tangent, *of_bias), given)
    else:
        given = prepared("attention_jvp", given)
    found = _core.attention_jvp(q, k, v, given, (q_tangent, k_tangent, v_tangent, sinks_tangent, bias_tangent))
    return found if options.get("return_logsumexp") else found[:2]


def _by_torch(arrays: tuple, options: tuple) -> tuple:
    """Returns the options prepared. Refuses torch tensors, of objects among the options too, whose gradients or
    transforms the results would lose."""
    from attn.torch import _autograd, _call, _mutations

    lost = not _call.is_direct()
    if not lost:
        options = prepared("attention_jvp", _autograd.seeded(options))
        lost = any(map(_call.wants_gradient, (*arrays, *(x for _, x in _mutations.of_options(options)))))
    if lost:
        raise TypeError("attention_jvp: a gradient, a transform or a graph would be lost; use torch.func.jvp or "
                        "torch.autograd.forward_ad through attn.attention, or call it under torch.no_grad()")
    return options
