# python/attn/torch/_flex_blocks.py: the pairs that a BlockMask of flex_attention shows.
"""A pair is shown if its block is a full one, or a partial one and mask_mod holds. torch's compiled kernels read the
blocks, its eager function mask_mod alone; both agree for what create_block_mask makes."""

import weakref
from typing import Any

import torch
from torch import Tensor

import attn
from attn.torch import _flex_symbols, _flex_trace
from attn.torch._flex_symbols import Symbol

_PAIRS = 1 << 22  # of a chunk in which mask_mod is evaluated
_HIDDEN, _PARTIAL, _FULL = range(3)
_known: Any = weakref.WeakKeyDictionary()  # BlockMask -> (what the answer of is_consistent depends on, the answer)


def _dense(counts: Tensor, indices: Tensor, columns: int) -> Tensor:
    """Lists of blocks [B, H, rows, n] as a bool matrix [B, H, rows, columns]."""
    used = torch.arange(indices.shape[-1]) < counts[..., None]
    found = torch.zeros((*indices.shape[:-1], columns + 1), dtype=torch.bool)
    return found.scatter_(-1, torch.where(used, indices.long(), columns), True)[..., :columns]


def kinds(block_mask: Any, keys: int) -> Tensor | None:
    """Returns for each block [B, H, rows, columns] whether it is hidden, partial or full; None if all are partial."""
    columns = -(-keys // block_mask.BLOCK_SIZE[1])
    partial = _dense(block_mask.kv_num_blocks, block_mask.kv_indices, columns)
    found = partial.int() * _PARTIAL
    if block_mask.full_kv_num_blocks is not None:
        found[_dense(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, columns)] = _FULL
    return None if bool((found == _PARTIAL).all()) else found


def listed(block_mask: Any, keys: int) -> Any:
    """The blocks that are not hidden, as an attn.Mask, under which those that no row sees take no time; None if none is
    hidden."""
    found = kinds(block_mask, keys)
    if found is None or bool((shown := found != _HIDDEN).all()) or shown.numel() == 0:
        return None
    order = shown.int().argsort(dim=-1, descending=True, stable=True)[..., :max(1, int(shown.sum(-1).max()))]
    return attn.Mask.blocks(torch.where(shown.gather(-1, order), order, -1), tuple(block_mask.BLOCK_SIZE))


def evaluated(mask_mod: Any, batch: int, heads: int, rows: range, keys: int) -> Tensor:
    """mask_mod of all pairs, bool [B, H, rows, keys]; dims on which it does not depend take no memory."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    with TransformGetItemToIndex():
        shown = _vmap_for_bhqkv(mask_mod, prefix=())(torch.arange(batch), torch.arange(heads),
                                                     torch.arange(rows.start, rows.stop), torch.arange(keys))
    return shown if shown.dtype is torch.bool else shown != 0


def _spread(found: Tensor, sizes: tuple[int, int], first: int, rows: int, keys: int) -> Tensor:
    """The kinds of blocks as those of pairs, rows from `first` on."""
    i = torch.arange(first, first + rows) // sizes[0]
    return found[:, :, i].repeat_interleave(sizes[1], 3)[..., :keys]


def is_consistent(block_mask: Any, found: Tensor, batch: int, heads: int, rows: int, keys: int) -> bool:
    """Returns whether mask_mod alone shows the same pairs."""
    step = max(1, _PAIRS // max(keys, 1))
    for first in range(0, rows, step):
        count = min(step, rows - first)
        shown = evaluated(block_mask.mask_mod, batch, heads, range(first, first + count), keys)
        kind = _spread(found, block_mask.BLOCK_SIZE, first, count, keys)
        if bool((shown & (kind == _HIDDEN)).any()) or bool((~shown & (kind == _FULL)).any()):
            return False
    return True


def _is_known_consistent(block_mask: Any, found: Tensor, mask: Symbol, tensors: list, sizes: tuple) -> bool:
    """is_consistent, remembered: the answer follows from the expression, the tensors that it reads and the blocks."""
    blocks = (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks,
              block_mask.full_kv_indices)
    read = [x for x in (*blocks, *tensors) if x is not None]
    if any(x.is_inference() for x in read):  # torch counts no changes of them
        return is_consistent(block_mask, found, *sizes)
    key = str(mask.value), sizes, block_mask.BLOCK_SIZE, [(id(x), x._version) for x in read]
    known = _known.get(block_mask)
    if known is None or known[0] != key:
        # with the tensors themselves, so that no other one gets their identity
        known = _known[block_mask] = key, is_consistent(block_mask, found, *sizes), read
    return known[1]


def shown_pairs(block_mask: Any, batch: int, heads: int, rows: int, keys: int) -> Tensor:
    """The pairs as a bool tensor that broadcasts to [B, H, rows, keys]."""
    shown = evaluated(block_mask.mask_mod, batch, heads, range(rows), keys)
    if (found := kinds(block_mask, keys)) is None:
        return shown
    kind = _spread(found, block_mask.BLOCK_SIZE, 0, rows, keys)
    return (kind == _FULL) | ((kind == _PARTIAL) & shown)


def _condition_of_blocks(found: Tensor, sizes: tuple[int, int], condition: Symbol, symbols: tuple) -> Symbol:
    """Looks up the kind of a pair's block, in addition to mask_mod."""
    _, b, h, i, j = symbols
    places = (b, h) if found.shape[0] > 1 and found.shape[1] > 1 else (b,) if found.shape[0] > 1 else (
        (h,) if found.shape[1] > 1 else ())
    table = found.reshape([n for n in found.shape[:2] if n > 1] + list(found.shape[2:]))
    kind = _flex_symbols.lookup(table, (*places, i // sizes[0], j // sizes[1]))
    return (kind == _FULL) | ((kind == _PARTIAL) & condition)


def condition(block_mask: Any, symbols: tuple, batch: int, heads: int, rows: int, keys: int) -> Symbol:
    """Which pairs are shown, as a traced condition. Raises Untraceable."""
    found = kinds(block_mask, keys)
    mask = _flex_trace.traced(block_mask.mask_mod, *symbols[1:])
    tensors = _flex_symbols.reading.tensors
    if not mask.condition:
        mask = mask != 0
    if found is None or (not isinstance(mask.value, bool)
                         and _is_known_consistent(block_mask, found, mask, tensors, (batch, heads, rows, keys))):
        return mask
    return _condition_of_blocks(found, block_mask.BLOCK_SIZE, mask, symbols)

