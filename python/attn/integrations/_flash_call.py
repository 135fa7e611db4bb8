# python/attn/integrations/_flash_call.py: checks the arguments of a call as FlashAttention takes them, and runs it by
# attn.attention.
"""q [B, seqlen_q, Hq, D], k [B, seqlen_k, Hk, D], v [B, seqlen_k, Hk, Dv], or packed [total, H, D] with cumulative
lengths. Masks and ALiBi are aligned to the last row and key, as in FlashAttention."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

import attn
from attn.torch import _call

_INTEGERS = (torch.int32, torch.int64)
_LARGEST = 1 << 40


class Names(NamedTuple):
    """What the caller's function calls the arguments that others call otherwise."""

    ends_q: str = "cu_seqlens_q"
    ends_k: str = "cu_seqlens_k"
    most_q: str = "max_seqlen_q"
    most_k: str = "max_seqlen_k"
    q: str = "q"
    k: str = "k"
    v: str = "v"
    scale: str = "softmax_scale"


class Settings(NamedTuple):
    """The arguments that the functions share, checked."""

    name: str
    scale: float | None
    causal: bool
    window: tuple[int, int]
    softcap: float
    slopes: Tensor | None
    dropout_p: float = 0.0
    shows_probabilities: bool = False
    names: Names = Names()


def shape(x: Tensor) -> list[int]:
    return list(x.shape)


def whole(name: str, argument: str, x: Any) -> int:
    """Reads a whole number; all below 0 are -1, and what is beyond any length is cut."""
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        shown = "None" if x is None else f"a {type(x).__name__}"
        raise TypeError(f"{name}: {argument} is {shown}; a whole number is needed")
    return max(-1, min(x.__index__(), _LARGEST))


def _window(name: str, x: Any) -> tuple[int, int]:
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        shown = f"of length {len(x)}" if isinstance(x, (tuple, list)) else f"a {type(x).__name__}"
        raise TypeError(f"{name}: window_size is {shown}; it must be (left, right), -1 for no limit")
    left, right = (whole(name, "window_size", n) for n in x)
    return left, right


def settings(name: str, softmax_scale: Any, causal: Any, window_size: Any, softcap: Any, alibi_slopes: Any,
             dropout_p: Any = 0.0, return_attn_probs: Any = False, names: Names = Names()) -> Settings:
    scale = None if softmax_scale is None else _call.finite(name, names.scale, softmax_scale)
    softcap, dropout_p = _call.finite(name, "softcap", softcap), _call.number(name, "dropout_p", dropout_p)
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"{name}: dropout_p is {dropout_p}; it must be from 0 to 1")
    if alibi_slopes is not None:
        _call.check_tensors(name, {"alibi_slopes": alibi_slopes})
        if not alibi_slopes.is_floating_point():
            raise TypeError(f"{name}: alibi_slopes is {alibi_slopes.dtype}; it must be float32")
    return Settings(name, scale, _call.flag(name, "causal", causal), _window(name, window_size), max(softcap, 0.0),
                    alibi_slopes, dropout_p, _call.flag(name, "return_attn_probs", return_attn_probs), names)


def check_tensors(call: Settings, q: Any, rank: int, layout: str, **others: Any) -> None:
    """Checks that q has the rank, and that all are floating tensors of one dtype on the CPU."""
    name, given = call.name, {call.names.q: q, **others}
    _call.check_tensors(name, given)
    if q.dim() != rank:
        raise ValueError(f"{name}: {call.names.q} has shape {shape(q)}; it must be {layout}")
    for argument, x in given.items():
        if x.dtype not in _call.FLOATS:
            raise TypeError(f"{name}: {argument} is {x.dtype}; it must be float32, float64, bfloat16 or float16")
        if x.dtype != q.dtype:
            raise TypeError(f"{name}: {argument} is {x.dtype}; it must be {q.dtype} as {call.names.q}")
    taken = (torch.float32, *(_call.HALVES if q.dtype in _call.HALVES else (q.dtype,)))
    if call.slopes is not None and call.slopes.dim() == 1 and call.slopes.dtype not in taken:
        raise TypeError(f"{name}: alibi_slopes is {call.slopes.dtype}; it must be float32")


def check_keys(call: Settings, q: Tensor, k: Tensor, v: Tensor, lead: tuple, needed: str) -> None:
    """Checks k [*lead, Hk, D] and v [*lead, Hk, Dv]; -1 in `lead` stands for any length."""
    name, names = call.name, call.names
    fits = k.dim() == len(lead) + 2 and all(want in (-1, n) for want, n in zip(lead, k.shape))
    if not fits or k.shape[-1] != q.shape[-1]:
        raise ValueError(f"{name}: {names.k} has shape {shape(k)}; it must be {needed} to match {names.q} {shape(q)}")
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"{name}: {names.v} has shape {shape(v)}; all dims but the last must be those of {names.k} "
                         f"{shape(k)}")
    heads, groups = q.shape[-2], k.shape[-2]
    if heads != 0 if groups == 0 else heads % groups != 0:
        raise ValueError(f"{name}: {names.k} has shape {shape(k)}; its {groups} heads must divide the {heads} heads of "
                         f"{names.q} {shape(q)}")


def numbers(name: str, argument: str, x: Any, count: int | None, least: int = 0) -> Tensor:
    """Reads a tensor of whole numbers, of rank 1."""
    _call.check_tensors(name, {argument: x})
    if x.dtype not in _INTEGERS:
        raise TypeError(f"{name}: {argument} is {x.dtype}; it must be int32")
    if x.dim() != 1 or (count is not None and x.shape[0] != count):
        raise ValueError(f"{name}: {argument} has shape {shape(x)}; it must be [{'N + 1' if count is None else count}]")
    if x.numel() and int(x.min()) < least:
        raise ValueError(f"{name}: {argument} holds {int(x.min())}; its numbers must be {least} or more")
    return x.long()


def _mask(causal: bool, window: tuple[int, int]) -> str | None:
    """The mask as text. A causal call has no key to the right, whatever the window says, as in FlashAttention."""
    left, right = window
    parts = ["causal(bottom_right)"] if causal else []
    if left >= 0 or (right >= 0 and not causal):
        parts.append(f"window({left}, {-1 if causal else right}, bottom_right)")
    return " & ".join(parts) or None


def positions(call: Settings, batch: int, heads: int) -> dict[str, Any]:
    """Returns the option of attn.attention that adds -slope * |i - j|: slopes [Hq], or [B, Hq]."""
    slopes = call.slopes
    if slopes is None:
        return {}
    if tuple(slopes.shape) not in ((heads,), (batch, heads)):
        raise ValueError(f"{call.name}: alibi_slopes has shape {shape(slopes)}; it must be [{heads}] or "
                         f"[{batch}, {heads}]")
    if slopes.dim() == 1:
        return {"bias": attn.Bias.alibi(slopes, "bottom_right", symmetric=True)}
    table = attn.ScoreTable(slopes, "slope")
    rule = attn.ScoreExpression(lambda s, b, h, i, j: s - table[b, h] * abs(i - j))
    return {"score_mod": rule.aligned("bottom_right")}


def _probabilities(run: Any, seed: int | None) -> Tensor:
    """The weights before dropout; negative where dropout removed them."""
    with torch.no_grad():
        weights = run(dropout_p=0.0, dropout_seed=None, weights="full")[1]
        if seed is None:
            return weights
        dropped = run(dropout_seed=seed, weights="full")[1] == 0
        return torch.where(dropped, -weights, weights)


def attend(call: Settings, q: Tensor, k: Tensor, v: Tensor, batch: int, heads: int, **options: Any) -> tuple:
    """Returns (output, logsumexp, probabilities or None); q, k and v as attn.attention takes them."""
    options = {"mask": _mask(call.causal, call.window), "scale": call.scale, "softcap": call.softcap,
               "dropout_p": call.dropout_p, **positions(call, batch, heads), **options}
    seed = None
    if call.dropout_p and call.shows_probabilities:
        seed = int(_call.draw_seed()) % 2**64

    def run(**more: Any) -> Any:
        return attn.attention(q, k, v, **{**options, **more})

    output, logsumexp = run(dropout_seed=seed, return_logsumexp=True)
    return output, logsumexp, _probabilities(run, seed) if call.shows_probabilities else None


def attend_rows(call: Settings, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple:
    """`attend` for q [B, T, Hq, D] -> [B, T, Hq, Dv], logsumexp [B, Hq, T]."""
    output, *rest = attend(call, *(x.transpose(1, 2) for x in (q, k, v)), q.shape[0], q.shape[2], **options)
    return output.transpose(1, 2).contiguous(), *rest
