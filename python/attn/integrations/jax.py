# python/attn/integrations/jax.py: attention for JAX arrays on the CPU, through XLA's foreign-function interface.
"""`attn.integrations.jax.attention(q, k, v, mask="causal")` under jit, grad and vmap. attn must have been built where
jaxlib is installed (docs/interfaces.md)."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attn import _core

__all__ = ["attention"]

_NAME = "attention"
_FLOATS = ("float32", "float64", "bfloat16", "float16")
_handlers = _core._xla_handlers()
if _handlers is None:
    raise ImportError("attn.integrations.jax: attn was built without jaxlib; install jax, then build attn again: "
                      "pip install --no-build-isolation .")
for _target, _handler in _handlers.items():
    jax.ffi.register_ffi_target(_target, _handler, platform="cpu")


def _compute_dtype(dtype: Any) -> Any:
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def _called(target: str, results: Any, operands: tuple, numbers: tuple) -> Any:
    mask, scale, softcap = numbers
    call = jax.ffi.ffi_call(target, results, vmap_method="sequential")
    # numbers of NumPy: Python's own would become attributes of float32
    return call(*operands, mask=mask, scale=np.float64(scale), softcap=np.float64(softcap))


def _forward(operands: tuple, numbers: tuple) -> Any:
    q, _, v = operands[:3]
    rows = jax.ShapeDtypeStruct(q.shape[:-1], _compute_dtype(q.dtype))
    results = jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype), rows, rows
    return _called("attn_attention_forward", results, operands, numbers)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _attention(operands: tuple, numbers: tuple) -> Any:
    return _forward(operands, numbers)[0]


def _keep(operands: tuple, numbers: tuple) -> Any:
    saved = _forward(operands, numbers)
    return saved[0], (operands, saved)


def _gradients(numbers: tuple, kept: Any, grad: Any) -> Any:
    operands, saved = kept
    results = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands)
    found = _called("attn_attention_backward", results, (*operands[:3], *saved, grad, *operands[3:]), numbers)
    return (tuple(found),)


_attention.defvjp(_keep, _gradients)


def _number(name: str, x: Any) -> float:
    """Reads a number, which is a constant of a jitted function."""
    if isinstance(x, jax.core.Tracer):
        raise TypeError(f"{_NAME}: {name} is traced; it is a constant of the function: a number of Python is needed")
    try:
        if isinstance(x, (str, bytes)):
            raise TypeError
        x = float(x)
    except (TypeError, ValueError):
        raise TypeError(f"{_NAME}: {name} is a {type(x).__name__}; a number is needed") from None
    if not math.isfinite(x):
        raise ValueError(f"{_NAME}: {name} is {x}; it must be finite")
    return x


def _mask_text(mask: Any, rows: int, keys: int) -> str:
    """Returns the text of a mask. It must hold no array, and name its alignment if `rows` and `keys` differ."""
    if mask is None:
        return ""
    if not isinstance(mask, (str, _core.Mask)):
        raise TypeError(f"{_NAME}: mask is a {type(mask).__name__}; an attn.Mask or its text is needed")
    if getattr(mask, "arrays", ()):
        raise ValueError(f"{_NAME}: mask is {mask}, which holds an array; give it as a bias with -inf where no key is "
                         "seen")
    if not str(mask):
        return ""
    parsed = _core.Mask(str(mask))
    if rows != keys:
        try:
            parsed.print(rows, keys)
        except ValueError as error:
            raise ValueError(str(error).replace("Mask.print", _NAME, 1)) from None
    return str(parsed)


def _check(q: Any, k: Any, v: Any, bias: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v), *([] if bias is None else [("bias", bias)])):
        if not isinstance(x, jax.Array):
            raise TypeError(f"{_NAME}: {name} is a {type(x).__name__}; a JAX array is needed")
        if x.dtype.name not in _FLOATS:
            raise TypeError(f"{_NAME}: {name} is {x.dtype}; it must be float32, float64, bfloat16 or float16")
        if name != "bias" and x.dtype != q.dtype:
            raise TypeError(f"{_NAME}: {name} is {x.dtype}; it must be {q.dtype} as q")
        if x.ndim != 4:
            dims = "[B, Hq, Tq, Tk], each of them or 1" if name == "bias" else "[B, H, T, D]"
            raise ValueError(f"{_NAME}: {name} has shape {list(x.shape)}; it must have 4 dims, {dims}")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3] or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(f"{_NAME}: k has shape {list(k.shape)}; it must be [{q.shape[0]}, heads, keys, {q.shape[3]}] "
                         f"with heads that divide those of q {list(q.shape)}")
    if v.shape[:1] + v.shape[2:3] != k.shape[:1] + k.shape[2:3] or not v.shape[1] or q.shape[1] % v.shape[1]:
        raise ValueError(f"{_NAME}: v has shape {list(v.shape)}; its batch and keys must be those of k "
                         f"{list(k.shape)}, and its heads must divide those of q {list(q.shape)}")
    full = (*q.shape[:3], k.shape[2])
    if bias is not None and any(have not in (1, want) for have, want in zip(bias.shape, full)):
        raise ValueError(f"{_NAME}: bias has shape {list(bias.shape)}; it must be {list(full)}, with 1 for any dim")


def attention(q: Any, k: Any, v: Any, *, mask: Any = None, bias: Any = None, scale: float | None = None,
              softcap: float = 0.0) -> Any:
    """Attention of JAX arrays on the CPU, with gradients of q, k, v and bias (jax.grad, jax.vjp; first order, no jvp).

    Shapes: q [B, Hq, Tq, D], k [B, Hk, Tk, D], v [B, Hv, Tk, Dv] -> [B, Hq, Tq, Dv]; Hk and Hv divide Hq. mask: an
    attn.Mask without arrays, or its text: "causal & window(511, 0)". bias: floating [B or 1, Hq or 1, Tq or 1, Tk or
    1], added to the scores; -inf masks. The numbers are constants of a jitted function. vmap runs one call after
    another. The bits are those of attn.attention. Errors: TypeError, ValueError.

    >>> attention(q, k, v, mask="causal")                      # doctest: +SKIP
    """
    _check(q, k, v, bias)
    text = _mask_text(mask, q.shape[2], k.shape[2])
    width = q.shape[3]
    scale = (1 / math.sqrt(width) if width else 1.0) if scale is None else _number("scale", scale)
    softcap = _number("softcap", softcap)
    if softcap < 0:
        raise ValueError(f"{_NAME}: softcap is {softcap}; it must be above 0 and finite, or 0 for none")
    return _attention((q, k, v, *([] if bias is None else [bias])), (text, scale, softcap))
