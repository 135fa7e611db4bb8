# python/attn/integrations/_flash_cache.py: a cache of keys and values as FlashAttention takes it: rotations, new rows
# written in place, and which rows a call reads.
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attn.integrations import _flash_call
from attn.integrations._flash_call import Settings, shape
from attn.integrations._flash_packed import check_table
from attn.torch import _call

NAME = "flash_attn_with_kvcache"


class Cache(NamedTuple):
    """Where the rows of each sequence are: in a row of its own (slots [B]), or in pages (table [B, pages])."""

    k: Tensor
    v: Tensor
    slots: Tensor | None
    table: Tensor | None
    before: Tensor  # how many rows each sequence has before the call
    leftpad: Tensor | None

    def places(self, count: int) -> tuple[Tensor, Tensor]:
        """The indices [B, count] of the rows that follow those which are there."""
        rows = self.before[:, None] + torch.arange(count)
        if self.table is None:
            return self.slots[:, None].expand_as(rows), rows
        page = self.k.shape[1]
        return self.table.gather(1, rows // page), rows % page

    def read(self, x: Tensor, longest: int) -> Tensor:
        """The first `longest` rows of each sequence, [B, longest, Hk, D]. What is no row of its own is copied."""
        if self.table is not None:
            pages = -(-longest // x.shape[1])
            return x[self.table[:, :pages]].flatten(1, 2)[:, :longest]
        x = x[:, :longest]
        if torch.equal(self.slots, torch.arange(self.slots.shape[0])):
            return x[: self.slots.shape[0]]
        return x.index_select(0, self.slots)


def refuse_gradients(**tensors: Any) -> None:
    for argument, x in tensors.items():
        if torch.is_grad_enabled() and isinstance(x, Tensor) and x.requires_grad:
            raise ValueError(f"{NAME}: {argument} requires a gradient, which a call with a cache does not give; call "
                             "it under torch.no_grad(), or flash_attn_func")


def _lengths(x: Any, batch: int, capacity: int, appends: bool) -> Tensor:
    if x is None:
        if appends:
            raise TypeError(f"{NAME}: cache_seqlens is None; it is needed where k and v are given")
        return torch.full((batch,), capacity)
    if not isinstance(x, Tensor):
        x = torch.full((batch,), _flash_call.whole(NAME, "cache_seqlens", x))
    return _flash_call.numbers(NAME, "cache_seqlens", x, batch)


def _slots(x: Any, batch: int, k_cache: Tensor) -> Tensor:
    if x is None:
        if k_cache.shape[0] < batch:
            raise ValueError(f"{NAME}: k_cache has shape {shape(k_cache)}; it must have {batch} or more rows of keys "
                             "to match q")
        return torch.arange(batch)
    x = _flash_call.numbers(NAME, "cache_batch_idx", x, batch)
    if x.numel() and int(x.max()) >= k_cache.shape[0]:
        raise ValueError(f"{NAME}: cache_batch_idx holds {int(x.max())}; k_cache has {k_cache.shape[0]} sequences")
    return x


def opened(call: Settings, q: Tensor, k_cache: Any, v_cache: Any, count: int | None, cache_seqlens: Any,
           cache_batch_idx: Any, cache_leftpad: Any, block_table: Any) -> Cache:
    """Checks the arguments that say where the rows are. count: how many rows are new, None without k and v."""
    batch, paged = q.shape[0], block_table is not None
    needed = f"[{'pages, page size' if paged else 'sequences, seqlen_cache'}, heads_k, {q.shape[-1]}]"
    _flash_call.check_keys(call, q, k_cache, v_cache, (-1, -1), needed)
    for argument, x in (("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):
        if paged and x is not None:
            raise ValueError(f"{NAME}: {argument} is given with block_table; pages do not take it")
    page = k_cache.shape[1]
    capacity = page
    if paged:
        if not isinstance(block_table, Tensor) or block_table.dim() != 2:
            _call.check_tensors(NAME, {"block_table": block_table})
            raise ValueError(f"{NAME}: block_table has shape {shape(block_table)}; it must be [{batch}, pages of a "
                             "sequence]")
        capacity = page * block_table.shape[1]
    before = _lengths(cache_seqlens, batch, capacity, count is not None)
    after = before + (count or 0)
    if after.numel() and int(after.max()) > capacity:
        at = int(after.argmax())
        raise ValueError(f"{NAME}: sequence {at} has {int(before[at])} keys in the cache and {count or 0} new ones; "
                         f"there is room for {capacity}")
    leftpad = None
    if cache_leftpad is not None:
        leftpad = _flash_call.numbers(NAME, "cache_leftpad", cache_leftpad, batch)
        if bool((leftpad > before).any()):
            raise ValueError(f"{NAME}: cache_leftpad holds {int(leftpad.max())}; a sequence has fewer keys")
    table = check_table(NAME, block_table, batch, after, page, k_cache.shape[0]) if paged else None
    return Cache(k_cache, v_cache, None if paged else _slots(cache_batch_idx, batch, k_cache), table, before, leftpad)


def check_new(call: Settings, q: Tensor, k: Any, v: Any, k_cache: Tensor, v_cache: Tensor) -> int | None:
    """Checks the new rows; returns how many each sequence gets."""
    if (k is None) != (v is None):
        raise TypeError(f"{NAME}: {'k' if k is None else 'v'} is None; k and v are given together or not at all")
    if k is None:
        return None
    _flash_call.check_tensors(call, q, 4, "[B, seqlen_q, heads, head_dim]", k=k, v=v)
    for argument, x, cache in (("k", k, k_cache), ("v", v, v_cache)):
        if x.dim() != 4 or x.shape[0] != q.shape[0] or x.shape[2:] != cache.shape[2:] or x.shape[1] != k.shape[1]:
            raise ValueError(f"{NAME}: {argument} has shape {shape(x)}; it must be [{q.shape[0]}, seqlen_new, "
                             f"{cache.shape[2]}, {cache.shape[3]}] to match {argument}_cache {shape(cache)}")
    return k.shape[1]


class Rotary(NamedTuple):
    """The tables [positions, rotary_dim / 2]; interleaved pairs are columns 0 and 1, 2 and 3, ...,
    others are columns 0 and rotary_dim / 2, ..."""

    cos: Tensor
    sin: Tensor
    interleaved: bool

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotates x [B, T, H, D] at positions [B, T], in float32 or float64."""
        if positions.numel() and int(positions.max()) >= self.cos.shape[0]:
            raise ValueError(f"{NAME}: rotary_cos has shape {shape(self.cos)}; position {int(positions.max())} is "
                             "rotated")
        dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
        half = self.cos.shape[1]
        cos, sin = (table[positions].to(dtype)[:, :, None] for table in (self.cos, self.sin))
        rotated, rest = x[..., : 2 * half].to(dtype), x[..., 2 * half :]
        if self.interleaved:
            a, b = rotated[..., ::2], rotated[..., 1::2]
        else:
            a, b = rotated[..., :half], rotated[..., half:]
        pair = (a * cos - b * sin, b * cos + a * sin)
        rotated = torch.stack(pair, -1).flatten(-2) if self.interleaved else torch.cat(pair, -1)
        return torch.cat((rotated.to(x.dtype), rest), -1)


def rotary(q: Tensor, k: Any, cos: Any, sin: Any, interleaved: Any) -> Rotary | None:
    interleaved = _call.flag(NAME, "rotary_interleaved", interleaved)
    if cos is None and sin is None:
        return None
    if cos is None or sin is None:
        missing = "rotary_cos" if cos is None else "rotary_sin"
        raise TypeError(f"{NAME}: {missing} is None; rotary_cos and rotary_sin are given together or not at all")
    if k is None:
        raise TypeError(f"{NAME}: rotary_cos is given without k and v; what is in the cache is not rotated again")
    _call.check_tensors(NAME, {"rotary_cos": cos, "rotary_sin": sin})
    for argument, x in (("rotary_cos", cos), ("rotary_sin", sin)):
        if not x.is_floating_point():
            raise TypeError(f"{NAME}: {argument} is {x.dtype}; it must be floating")
        if x.dim() != 2 or 2 * x.shape[1] > q.shape[-1] or x.shape != cos.shape:
            raise ValueError(f"{NAME}: {argument} has shape {shape(x)}; it must be [positions, rotary_dim / 2], both "
                             f"alike, with rotary_dim at most {q.shape[-1]}")
    return Rotary(cos, sin, interleaved)
