# python/attn/torch/functional.py: runs attention on torch tensors: directly in the library, or through its operators
# where torch must know of the call.
"""A call that nothing traces or transforms and that needs no gradient reads the tensors' memory; other calls go through
`torch.ops.attn`."""

import math

import numpy
import torch
from torch import Tensor

from attn import _core
from attn._options import prepared, scores_apart
from attn.torch import _autograd, _call, _general_op, _ops, _tangents, _unfused  # noqa: F401 (_tangents: forward mode)

__all__ = ["scaled_dot_product_attention"]

_NAME = "scaled_dot_product_attention"
_NONE, _FULL, _AVERAGE = range(3)
_INTEGERS = [(name, _core.attention_options.index(name))
             for name in ("query_lengths", "key_lengths", "key_start", "query_start", "cu_seqlens_q", "cu_seqlens_k")]
_NUMBERS = [(name, _core.attention_options.index(name)) for name in ("scale", "softcap", "temperature", "dropout_p")]


def _shape(x):
    return list(x.shape)


def _check(query, key, value, attn_mask, dropout_p):
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() < 2:
            raise ValueError(f"{_NAME}: {name} has shape {_shape(x)}; it must have 2 or more dims")
        if x.dtype not in _call.FLOATS:
            raise TypeError(f"{_NAME}: {name} is {x.dtype}; it must be float32, float64, bfloat16 or float16")
        if x.dtype != query.dtype:
            raise TypeError(f"{_NAME}: {name} is {x.dtype}; it must be {query.dtype} as query")
    if key.shape[-1] != query.shape[-1]:
        raise ValueError(f"{_NAME}: key has shape {_shape(key)}; "
                         f"its last dim must be {query.shape[-1]} to match query {_shape(query)}")
    if value.shape[-2] != key.shape[-2]:
        raise ValueError(f"{_NAME}: value has shape {_shape(value)}; its {value.shape[-2]} rows must be "
                         f"{key.shape[-2]} to match key {_shape(key)}")
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise TypeError(f"{_NAME}: attn_mask is {attn_mask.dtype}; it must be bool, float32 or {query.dtype} as query")
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"{_NAME}: dropout_p is {dropout_p}; it must be from 0 to 1")


def _check_groups(query, x, name):
    if query.dim() < 3 or x.dim() < 3:
        raise ValueError(f"{_NAME}: enable_gqa with query {_shape(query)} and {name} {_shape(x)}; "
                         "both must have 3 or more dims")
    heads, groups = query.shape[-3], x.shape[-3]
    if heads != 0 if groups == 0 else heads % groups != 0:
        raise ValueError(f"{_NAME}: {name} has shape {_shape(x)}; "
                         f"its {groups} heads must divide the {heads} heads of query {_shape(query)}")


def _rank_four(x):
    """Reshapes a tensor of rank 2 or more to [B, H, T, D]."""
    while x.dim() < 4:
        x = x.unsqueeze(0)
    return x.flatten(0, -4)


def _grouped(query, key, value):
    """Returns the hint for q, k and v with different numbers of heads: what to write if each head of key and value
    serves several query heads."""
    heads = [x.shape[-3] if x.dim() > 2 else 1 for x in (query, key, value)]
    fits = all(n not in (0, heads[0]) and heads[0] % n == 0 for n in heads[1:])
    return f"; give enable_gqa=True where {heads[1]} heads of key serve {heads[0]} of query" if fits else ""


def _broadcast(query, key, value, grouped):
    own = 3 if grouped else 2
    if grouped:
        _check_groups(query, key, "key")
        _check_groups(query, value, "value")
    try:
        lead = torch.broadcast_shapes(query.shape[:-own], key.shape[:-own], value.shape[:-own])
    except RuntimeError:
        shapes = f"query {_shape(query)}, key {_shape(key)} and value {_shape(value)}"
        raise ValueError(f"{_NAME}: {shapes} have leading dims that do not "
                         f"broadcast{_grouped(query, key, value) if not grouped else ''}") from None
    return [x if x.shape[:-own] == lead else x.expand(*lead, *x.shape[-own:]) for x in (query, key, value)]


def _scores_mask(mask, query, keys):
    """Returns the mask with rank 4, broadcastable to [B, H, L, S]."""
    scores = (*query.shape[:-1], keys)
    fits = mask.dim() <= len(scores) and all(have in (1, want) for have, want in zip(mask.shape[::-1], scores[::-1]))
    if not fits:
        raise ValueError(f"{_NAME}: attn_mask has shape {_shape(mask)}; it must broadcast to the scores {list(scores)}")
    return _rank_four(mask if len(scores) <= 4 else mask.expand(scores))


def attend(q, k, v, numbers, mask=None, bias=None, sinks=None, weights=_NONE):
    """Returns (output, weights or None) for tensors of rank 4. It computes them directly or by the operator; for
    forward-mode derivatives of weights, or in a graph, by the unfused definition."""
    seed = _call.draw_seed() if 0 < numbers.dropout_p < 1 else None
    if _call.is_direct() and all(x is None or _call.is_plain(x) for x in (q, k, v, mask, bias, sinks)):
        if _call.wants_gradient(q, k, v, bias, sinks):
            return _ops.Direct.apply(q, k, v, mask, bias, sinks, seed, numbers, weights)
        return _call.forward((q, k, v, mask, bias, sinks), numbers, _call.seed_of(seed), _ops.WEIGHTS[weights],
                             saves=False)[:2]
    if _call.is_forward() and (weights or torch.compiler.is_compiling()):
        output, matrix = _unfused.attend((q, k, v, mask, bias, sinks), numbers, seed)
        return output.to(q.dtype), _unfused.shown(matrix, _ops.WEIGHTS[weights], q.dtype) if weights else None
    run = _ops.Transformed.apply if _call.is_forward() else _ops.attention
    output, matrix, _, _ = run(q, k, v, mask, bias, sinks, seed, *numbers, weights)
    return output, matrix if weights else None


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention on the CPU, argument by argument, with gradients.

    Shapes: query [.., Hq, L, E], key [.., H, S, E], value [.., H, S, Ev] -> [.., Hq, L, Ev]; rank 2 and more, leading
    dims broadcast. Dtypes: float32, float64, bfloat16, float16, the same for all three; attn_mask bool (True takes
    part), float32 or theirs (added). Differs from torch as docs/torch.md lists; dropout draws one seed from torch's
    generator, not one number for each weight. Errors: TypeError, ValueError.
    """
    if (isinstance(dropout_p, (int, float)) and dropout_p == 0 and _call.is_direct() and _call.is_plain(query)
            and not torch.is_autocast_enabled("cpu")):
        if not _call.wants_gradient(query, key, value, attn_mask, scale):
            return _core.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    if isinstance(attn_mask, numpy.ndarray):
        attn_mask = _constant(attn_mask)
    _call.check_tensors(_NAME, {"query": query, "key": key, "value": value, "attn_mask": attn_mask},
                        optional=("attn_mask",))
    dropout_p, scale = (_call.number(_NAME, "dropout_p", dropout_p),
                        None if scale is None else _call.number(_NAME, "scale", scale))
    is_causal, enable_gqa = _call.flag(_NAME, "is_causal", is_causal), _call.flag(_NAME, "enable_gqa", enable_gqa)
    query, key, value, attn_mask = _call.autocast([query, key, value, attn_mask])
    _check(query, key, value, attn_mask, dropout_p)
    shape = query.shape
    query, key, value = _broadcast(query, key, value, enable_gqa)
    mask = None if attn_mask is None else _scores_mask(attn_mask, query, key.shape[-2])
    rank = max(query.dim(), len(shape))
    shown = (*query.shape[:-1], value.shape[-1])
    numbers = _call.Numbers(scale=_scale(scale, query.shape[-1]), causal=is_causal, dropout_p=dropout_p)
    boolean = mask is not None and mask.dtype is torch.bool
    q, k, v = (_rank_four(x) for x in (query, key, value))
    output, _ = attend(q, k, v, numbers, mask if boolean else None, None if boolean else mask)
    return output if rank == 4 else output.reshape(shown)


def _constant(mask):
    """Returns a copy of a NumPy array, because torch does not count the changes of its memory."""
    try:
        return torch.from_numpy(numpy.array(mask, dtype=mask.dtype.newbyteorder("="), order="C"))
    except TypeError:
        raise TypeError(f"{_NAME}: attn_mask is {mask.dtype}; it must be bool, float32 or query's dtype") from None


def _scale(scale, width):
    if scale is None:
        return 1 / math.sqrt(width) if width else 1.0
    return scale


def attention(q, k, v, options, return_plan=False):
    """Runs attn.attention on torch tensors (attn._functions): (output, weights, logsumexp, plan, dropout_seed), with
    None for results that are not requested."""
    for name, place in _NUMBERS:
        _call.check_constant("attention", name, options[place])
    for name, place in _INTEGERS:
        if options[place] is not None:
            options = (*options[:place], _call.integers("attention", name, options[place]), *options[place + 1 :])
    if _call.is_forward() and torch.compiler.is_compiling():
        raise NotImplementedError("attention: derivatives are carried forward in a graph (jvp, jacfwd, dual_level); "
                                  "call it outside of torch.compile, or use grad, vjp, jacrev, attn.torch's functions")
    if _call.is_direct() and all(map(_call.is_memory, (q, k, v, *options))):
        return _autograd.attention(q, k, v, prepared("attention", options))
    if return_plan:
        raise ValueError("attention: return_plan is given under torch.compile or torch.func, "
                         "where there is no kernel yet")
    return *_general_op.attention(q, k, v, scores_apart("attention", options)), None, None
