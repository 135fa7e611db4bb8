# python/attn/integrations/flash_attn.py: the functions of the flash-attn package, with their arguments, on CPU tensors.
"""`flash_attn_func` and its relatives as flash-attn 2.8 has them. Each argument does what it does there, or a call that
gives it is refused with its name (docs/interfaces.md). Dtypes: float32, float64, bfloat16 and float16. Any head
dim; v may have another one than q and k."""

from typing import Any

import torch
from torch import Tensor

from attn.integrations import _flash_cache, _flash_call
from attn.integrations._flash_call import Names, Settings, shape
from attn.integrations._flash_packed import Keys, attend_packed
from attn.torch import _call

__all__ = ["flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache"]

_ROWS = "[B, seqlen_q, heads, head_dim]"


def _results(call: Settings, output: Tensor, logsumexp: Tensor, weights: Tensor | None) -> Any:
    return (output, logsumexp, weights) if call.shows_probabilities else output


def _unpacked(name: str, argument: str, x: Any, rank: int, count: int) -> tuple[Tensor, ...]:
    """Returns the `count` tensors that stand in the third dim from the right."""
    _call.check_tensors(name, {argument: x})
    if x.dim() != rank or x.shape[-3] != count:
        lead = "B, seqlen" if rank == 5 else "total"
        raise ValueError(f"{name}: {argument} has shape {shape(x)}; it must be [{lead}, {count}, heads, head_dim]")
    return x.unbind(-3)


def _attend_rows(name: str, q: Any, k: Any, v: Any, options: tuple, deterministic: Any) -> Any:
    softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p, return_attn_probs = options
    _call.flag(name, "deterministic", deterministic)
    call = _flash_call.settings(name, softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p,
                                return_attn_probs)
    _flash_call.check_tensors(call, q, 4, _ROWS, k=k, v=v)
    _flash_call.check_keys(call, q, k, v, (q.shape[0], -1), f"[{q.shape[0]}, seqlen_k, heads_k, {q.shape[-1]}]")
    return _results(call, *_flash_call.attend_rows(call, q, k, v))


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """flash_attn.flash_attn_func on the CPU, with gradients of q, k, v and alibi_slopes.

    Shapes: q [B, Tq, Hq, D], k [B, Tk, Hk, D], v [B, Tk, Hk, Dv] -> [B, Tq, Hq, Dv]; Hk divides Hq. Row i stands at
    position i + Tk - Tq: causal and window_size (left, right) count from there, and alibi_slopes [Hq] or [B, Hq] add
    -slope * |position - j|. softcap comes before the slopes. Results are always deterministic.

    return_attn_probs: returns (output, logsumexp [B, Hq, Tq], probabilities [B, Hq, Tq, Tk]); probabilities are those
    before dropout, negative where it dropped one, and have no gradient. Errors: TypeError, ValueError.
    """
    options = (softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p, return_attn_probs)
    return _attend_rows("flash_attn_func", q, k, v, options, deterministic)


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """`flash_attn_func` for k and v in one tensor kv [B, Tk, 2, Hk, D]."""
    name = "flash_attn_kvpacked_func"
    options = (softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p, return_attn_probs)
    return _attend_rows(name, q, *_unpacked(name, "kv", kv, 5, 2), options, deterministic)


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """`flash_attn_func` for q, k and v in one tensor qkv [B, T, 3, H, D]."""
    name = "flash_attn_qkvpacked_func"
    options = (softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p, return_attn_probs)
    return _attend_rows(name, *_unpacked(name, "qkv", qkv, 5, 3), options, deterministic)


def _attend_packed(name: str, q: Any, k: Any, v: Any, lengths: tuple, options: tuple, deterministic: Any,
                   keys: Keys = Keys(), names: Names = Names()) -> Any:
    softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p, return_attn_probs = options
    _call.flag(name, "deterministic", deterministic)
    call = _flash_call.settings(name, softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p,
                                return_attn_probs, names)
    return _results(call, *attend_packed(call, q, k, v, *lengths, keys))


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    *,
    seqused_k: Tensor | None = None,
    leftpad_k: Tensor | None = None,
) -> Any:
    """flash_attn.flash_attn_varlen_func on the CPU, with gradients.

    Shapes: q [total_q, Hq, D], k [total_k, Hk, D], v [total_k, Hk, Dv] -> [total_q, Hq, Dv]; cu_seqlens [N + 1] int32
    from 0. The longest sequences must not exceed max_seqlen_q and max_seqlen_k. Rows after the last sequence are 0.

    block_table  [N, pages]: k and v are pages [pages, page size, Hk, D], of any size; sequence n's key t is in page
                 block_table[n, t // page size]. Keys are copied out of the pages. cu_seqlens_k says how many keys there
                 are; it may be None if seqused_k says so.
    seqused_k    [N]: only the first keys of each sequence are used.
    leftpad_k    [N]: the first keys of each sequence are skipped. Both change what Tk is.

    return_attn_probs: logsumexp [Hq, total_q], probabilities [N, Hq, max_seqlen_q, max_seqlen_k], as in
    `flash_attn_func`. Errors: TypeError, ValueError.
    """
    options = (softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p, return_attn_probs)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _attend_packed("flash_attn_varlen_func", q, k, v, lengths, options, deterministic,
                          Keys(seqused_k, leftpad_k, block_table))


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """`flash_attn_varlen_func` for k and v in one tensor kv [total_k, 2, Hk, D]."""
    name = "flash_attn_varlen_kvpacked_func"
    options = (softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p, return_attn_probs)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _attend_packed(name, q, *_unpacked(name, "kv", kv, 4, 2), lengths, options, deterministic)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """`flash_attn_varlen_func` for q, k and v in one tensor qkv [total, 3, H, D]."""
    name = "flash_attn_varlen_qkvpacked_func"
    options = (softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p, return_attn_probs)
    return _attend_packed(name, *_unpacked(name, "qkv", qkv, 4, 3), (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen),
                          options, deterministic, names=Names("cu_seqlens", "cu_seqlens", "max_seqlen", "max_seqlen"))


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """flash_attn.flash_attn_with_kvcache on the CPU; without gradients, as there.

    Shapes: q [B, Tq, Hq, D], k_cache [C, T, Hk, D], v_cache [C, T, Hk, Dv] -> [B, Tq, Hq, Dv]. k and v [B, new, Hk, D]
    are written into the cache, at rows cache_seqlens and on, and are seen by the same call.

    cache_seqlens    a number or [B]: how many rows of the cache each sequence has; None: all
    cache_batch_idx  [B]: which sequence of the cache each one of the batch is
    cache_leftpad    [B]: the first rows of a sequence that are no keys
    block_table      [B, pages]: k_cache and v_cache are pages [pages, page size, Hk, D]; they are copied for the call
    rotary_cos, rotary_sin  [positions, rotary_dim / 2]: rotate the new k at its rows, and q at rows cache_seqlens and
                     on if causal or with a window, else at row cache_seqlens; rotary_interleaved: pairs of columns
    num_splits       any number gives the same bits
    return_softmax_lse  returns (output, logsumexp [B, Hq, Tq])

    Errors: TypeError, ValueError; nothing is written then.
    """
    name = _flash_cache.NAME
    call = _flash_call.settings(name, softmax_scale, causal, window_size, softcap, alibi_slopes,
                                names=Names(k="k_cache", v="v_cache"))
    _flash_call.whole(name, "num_splits", num_splits)
    wants_logsumexp = _call.flag(name, "return_softmax_lse", return_softmax_lse)
    _flash_call.check_tensors(call, q, 4, _ROWS, k_cache=k_cache, v_cache=v_cache)
    _flash_cache.refuse_gradients(q=q, k_cache=k_cache, v_cache=v_cache, k=k, v=v, rotary_cos=rotary_cos,
                                  rotary_sin=rotary_sin, alibi_slopes=alibi_slopes)
    with torch.no_grad():
        if k_cache.dim() != 4 or v_cache.dim() != 4:
            argument, x = ("k_cache", k_cache) if k_cache.dim() != 4 else ("v_cache", v_cache)
            raise ValueError(f"{name}: {argument} has shape {shape(x)}; it must have 4 dims")
        count = _flash_cache.check_new(call, q, k, v, k_cache, v_cache)
        cache = _flash_cache.opened(call, q, k_cache, v_cache, count, cache_seqlens, cache_batch_idx,
                                    cache_leftpad, block_table)
        _flash_call.positions(call, q.shape[0], q.shape[2])  # checks the slopes before anything is written
        rotate = _flash_cache.rotary(q, k, rotary_cos, rotary_sin, rotary_interleaved)
        if rotate is not None:
            moves = call.causal or call.window != (-1, -1)
            rows = torch.arange(q.shape[1]) if moves else torch.zeros(q.shape[1], dtype=torch.int64)
            q, k = (rotate(x, cache.before[:, None] + at) for x, at in ((q, rows), (k, torch.arange(count))))
        if k is not None:
            places = cache.places(count)
            k_cache[places], v_cache[places] = k, v
        lengths = cache.before + (count or 0)
        longest = int(lengths.max()) if lengths.numel() else 0
        output, logsumexp, _ = _flash_call.attend_rows(
            call, q, cache.read(k_cache, longest), cache.read(v_cache, longest), key_lengths=lengths,
            key_start=cache.leftpad)
    return (output, logsumexp) if wants_logsumexp else output
