# python/attn/torch/_flex.py: torch.nn.attention.flex_attention.flex_attention on the CPU, in the fused pass.
"""score_mod and mask_mod are traced into expressions of attn (_flex_trace.py). Where that is not possible, the call is
computed by its definition in torch operations, with whole matrices, and a warning names what could not be traced."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import attn
from attn.torch import _call, _flex_blocks, _flex_symbols, _flex_trace
from attn.torch._flex_symbols import Untraceable

_NAME = "flex_attention"
_LARGE = 1 << 30  # the block size of a BlockMask that holds any length
# They choose among kernels of GPUs, or promise what makes those quicker; no result depends on them.
_KERNEL_OPTIONS = ("num_warps", "num_stages", "BLOCK_M", "BLOCK_N", "BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2",
                   "PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS", "WRITE_DQ",
                   "FORCE_USE_FLEX_ATTENTION", "USE_TMA", "kpack", "matrix_instr_nonkdim", "waves_per_eu", "BACKEND")


def _shape(x: Tensor) -> list[int]:
    return list(x.shape)


def _check_kernel_options(options: Any) -> None:
    if options is None:
        return
    if not isinstance(options, dict):
        raise TypeError(f"{_NAME}: kernel_options is a {type(options).__name__}; a dict is needed")
    for name, value in options.items():
        if str(name).removeprefix("fwd_").removeprefix("bwd_") not in _KERNEL_OPTIONS:
            raise ValueError(f"{_NAME}: kernel_options has {name!r}, which attn does not know")
        if name == "BACKEND" and value != "AUTO":
            raise ValueError(f"{_NAME}: kernel_options has BACKEND {value!r}; attn has its own kernels: 'AUTO'")


def _check(query: Any, key: Any, value: Any, grouped: bool) -> None:
    _call.check_tensors(_NAME, {"query": query, "key": key, "value": value})
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise ValueError(f"{_NAME}: {name} has shape {_shape(x)}; it must be [B, H, T, D]")
        if x.dtype not in _call.FLOATS:
            raise TypeError(f"{_NAME}: {name} is {x.dtype}; it must be float32, float64, bfloat16 or float16")
        if x.dtype != query.dtype:
            raise TypeError(f"{_NAME}: {name} is {x.dtype}; it must be {query.dtype} as query")
    batch, heads, _, width = query.shape
    groups = key.shape[1]
    if key.shape[0] not in (1, batch) or key.shape[3] != width:
        raise ValueError(f"{_NAME}: key has shape {_shape(key)}; it must be [{batch}, heads, keys, {width}] to match "
                         f"query {_shape(query)}")
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(f"{_NAME}: value has shape {_shape(value)}; all dims but the last must be those of key "
                         f"{_shape(key)}")
    if not grouped and groups != heads:
        raise ValueError(f"{_NAME}: key has shape {_shape(key)}; it must have the {heads} heads of query, or "
                         "enable_gqa=True is needed")
    if heads != 0 if groups == 0 else heads % groups != 0:
        raise ValueError(f"{_NAME}: key has shape {_shape(key)}; its {groups} heads must divide the {heads} heads of "
                         f"query {_shape(query)}")


def _check_block_mask(block_mask: Any, query: Tensor, key: Tensor) -> None:
    if not all(hasattr(block_mask, name) for name in ("kv_num_blocks", "kv_indices", "mask_mod", "BLOCK_SIZE")):
        raise TypeError(f"{_NAME}: block_mask is a {type(block_mask).__name__}; a BlockMask or None is needed")
    if getattr(block_mask.mask_mod, "__name__", "") == "_sliced_mask_mod_error":
        raise ValueError(f"{_NAME}: block_mask was sliced and has no mask_mod; set the one of the whole BlockMask")
    if block_mask.kv_num_blocks.device.type != "cpu":
        raise ValueError(f"{_NAME}: block_mask is on {block_mask.kv_num_blocks.device}; give block_mask.to('cpu')")
    if tuple(block_mask.BLOCK_SIZE) == (_LARGE, _LARGE):
        return
    shape, wanted = list(block_mask.shape), [*query.shape[:3], key.shape[2]]
    if shape[-2:] != wanted[-2:] or any(have not in (1, want) for have, want in zip(shape[:-2], wanted)):
        raise ValueError(f"{_NAME}: block_mask has shape {shape}; it must be {wanted}, with 1 for any dim of the first "
                         "two")


# --- the fused pass ---------------------------------------------------------------------------------------------------


def _calls(score_mod: Any, block_mask: Any, sizes: tuple[int, ...]) -> Any:
    """Yields options of attn.attention for the call, best first. Raises Untraceable."""
    symbols = _flex_symbols.symbols()
    s = symbols[0].value if score_mod is None else _flex_trace.traced(score_mod, *symbols)
    s = s if score_mod is None else _flex_trace.real(s)
    if block_mask is None:
        yield None, s
        return
    shown = _flex_blocks.condition(block_mask, symbols, *sizes)
    if isinstance(shown.value, bool):
        yield attn.Mask.all() if shown.value else attn.Mask.none(), s
        return
    masked = attn.where(shown.value, s, -math.inf)
    cover = shown.cover
    if cover is not None and cover.exact:
        yield cover.mask, s
    blocks = _flex_blocks.listed(block_mask, sizes[3])
    if cover is not None:
        yield cover.mask if blocks is None else cover.mask & blocks, masked
    yield blocks, masked


def _fused(q: Tensor, k: Tensor, v: Tensor, score_mod: Any, block_mask: Any, **options: Any) -> Any:
    """The call by attn.attention. Raises Untraceable with the reason why it cannot be."""
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if _call.is_transformed() or torch.compiler.is_compiling():
        raise Untraceable("torch.func or torch.compile around the call")
    refused = ""
    for mask, mod in _calls(score_mod, block_mask, sizes):
        mod = None if str(mod) == "s" else attn.ScoreExpression(mod).aligned("top_left")
        if mod is not None and any(map(_call.has_tangent, mod.arrays)):
            raise Untraceable("a tensor that has a tangent")
        try:
            return attn.attention(q, k, v, mask=mask, score_mod=mod, **options)
        except ValueError as error:
            refused = str(error)
            if not ("score_mod" in refused or "documents" in refused or "prefix" in refused):
                raise
    raise Untraceable(refused)


# --- the definition ---------------------------------------------------------------------------------------------------


class _Looked(TorchFunctionMode):
    """x[i, j] by symbols of vmap, in operations that have tangents; torch's TransformGetItemToIndex has none."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.__getitem__:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if all(isinstance(x, (Tensor, int)) for x in index):
                return torch.ops.aten.index(args[0], [torch.as_tensor(x) for x in index])
        return function(*args, **(kwargs or {}))


def _unfused(q: Tensor, k: Tensor, v: Tensor, score_mod: Any, block_mask: Any, scale: float) -> tuple:
    """Returns output, logsumexp and the largest score of each row, by the definition in torch operations."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    dtype = _call.compute_dtype(q.dtype)
    (batch, heads, rows, _), keys = q.shape, k.shape[2]
    shown = torch.ones((), dtype=torch.bool)
    if block_mask is not None:
        shown = _flex_blocks.shown_pairs(block_mask, batch, heads, rows, keys)
    # What no row sees may hold anything, even NaN.
    used = shown.expand(batch, heads, rows, keys).any(2).unsqueeze(-1)
    k, v = (torch.where(used, x.to(dtype).repeat_interleave(heads // x.shape[1], 1), 0) for x in (k, v))
    scores = (q.to(dtype) @ k.transpose(2, 3)) * scale
    if score_mod is not None:
        with _Looked() if _call.is_forward() else TransformGetItemToIndex():
            scores = _vmap_for_bhqkv(score_mod, prefix=(0,))(scores, *(torch.arange(n) for n in scores.shape))
        scores = scores.to(dtype)
    scores = torch.where(shown, scores, -torch.inf)
    if keys == 0:
        none = scores.new_full((batch, heads, rows), -torch.inf)
        return (scores @ v).to(q.dtype), none, none
    greatest = scores.detach().amax(3, keepdim=True)
    nothing = greatest == -torch.inf
    powers = torch.exp(scores - greatest.masked_fill(nothing, 0))
    total = powers.sum(3, keepdim=True)
    logsumexp = (greatest + total.masked_fill(nothing, 1).log()).squeeze(3)
    return ((powers / total.masked_fill(nothing, 1)) @ v).to(q.dtype), logsumexp, greatest.squeeze(3)


def _max_scores(q: Tensor, k: Tensor, v: Tensor, score_mod: Any, block_mask: Any, scale: float) -> Tensor:
    """The largest score of each row: the logsumexp and the logarithm of the largest weight."""
    dtype = _call.compute_dtype(q.dtype)
    if k.shape[2] == 0:
        return q.new_full(q.shape[:3], -torch.inf, dtype=dtype)
    with torch.no_grad():
        _, (weights, _), logsumexp = _fused(q.detach().to(dtype), k.detach().to(dtype), v.detach().to(dtype), score_mod,
                                            block_mask, scale=scale, weights="top_k(1)", return_logsumexp=True)
        return logsumexp + weights[..., 0].log().masked_fill(logsumexp == -torch.inf, 0)


def _warn(reason: str) -> None:
    warnings.warn(f"flex_attention: computed with whole matrices of scores, because an expression cannot hold this: "
                  f"{reason}", UserWarning, stacklevel=4)


def _results(q: Tensor, k: Tensor, v: Tensor, score_mod: Any, block_mask: Any, scale: float, wants_max: bool) -> tuple:
    try:
        output, logsumexp = _fused(q, k, v, score_mod, block_mask, scale=scale, return_logsumexp=True)
        return output, logsumexp, _max_scores(q, k, v, score_mod, block_mask, scale) if wants_max else None
    except Untraceable as error:
        _warn(str(error))
    return _unfused(q, k, v, score_mod, block_mask, scale)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """torch.nn.attention.flex_attention.flex_attention on the CPU, with gradients.

    Shapes: query [B, Hq, L, E], key [B or 1, H, S, E], value [B or 1, H, S, Ev] -> [B, Hq, L, Ev]. score_mod(score, b,
    h, q_idx, kv_idx) and the mask_mod of block_mask are written with torch's functions and may index tensors, which
    get gradients. They are called once, with symbols. What expressions of attn do not have (docs/interfaces.md) is
    computed with whole matrices, and a UserWarning names it.

    block_mask: torch's BlockMask. A pair is seen if its block is a full one, or a partial one and mask_mod holds.
    return_lse: returns (output, logsumexp [B, Hq, L]); return_aux: torch's AuxRequest, returns (output, AuxOutput) with
    lse and max_scores, which has no gradient. A row that sees no key gives 0 and -inf. kernel_options: names that torch
    knows are accepted and change nothing. Errors: TypeError, ValueError.
    """
    scale = None if scale is None else _call.finite(_NAME, "scale", scale)
    grouped, wants_lse = _call.flag(_NAME, "enable_gqa", enable_gqa), _call.flag(_NAME, "return_lse", return_lse)
    _call.check_tensors(_NAME, {"query": query, "key": key, "value": value})
    query, key, value = _call.autocast([query, key, value])
    _check(query, key, value, grouped)
    _check_kernel_options(kernel_options)
    if score_mod is not None and not callable(score_mod):
        raise TypeError(f"{_NAME}: score_mod is a {type(score_mod).__name__}; a function or None is needed")
    if block_mask is not None:
        _check_block_mask(block_mask, query, key)
    if return_aux is not None and not (hasattr(return_aux, "lse") and hasattr(return_aux, "max_scores")):
        raise TypeError(f"{_NAME}: return_aux is a {type(return_aux).__name__}; an AuxRequest or None is needed")
    if wants_lse and return_aux is not None:
        raise ValueError(f"{_NAME}: return_lse and return_aux are both given; AuxRequest(lse=True) is enough")
    if key.shape[0] != query.shape[0]:
        key, value = (x.expand(query.shape[0], *x.shape[1:]) for x in (key, value))
    if scale is None:
        scale = 1 / math.sqrt(query.shape[3]) if query.shape[3] else 1.0
    wants_max = return_aux is not None and bool(return_aux.max_scores)
    output, logsumexp, largest = _results(query, key, value, score_mod, block_mask, scale, wants_max)
    if return_aux is not None:
        from torch.nn.attention.flex_attention import AuxOutput

        return output, AuxOutput(lse=logsumexp if return_aux.lse else None,
                                 max_scores=largest.detach() if wants_max else None)
    return (output, logsumexp) if wants_lse else output
