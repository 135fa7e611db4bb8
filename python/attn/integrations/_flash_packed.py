# python/attn/integrations/_flash_packed.py: packed sequences as FlashAttention and torch's varlen_attn take them:
# lengths, keys in pages, keys of which only some are used.
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attn.integrations import _flash_call
from attn.integrations._flash_call import Settings, shape


class Keys(NamedTuple):
    """Which keys of k and v each sequence has, in addition to the cumulative lengths."""

    used: Any = None
    leftpad: Any = None
    block_table: Any = None


def ends(name: str, argument: str, x: Any, count: int | None, total: int, of: str) -> Tensor:
    """Checks cumulative lengths: [N + 1], from 0, never descending, at most `total` (None: any)."""
    x = _flash_call.numbers(name, argument, x, count)
    if x.shape[0] == 0 or int(x[0]) != 0 or bool((x[1:] < x[:-1]).any()):
        raise ValueError(f"{name}: {argument} must begin with 0 and never descend")
    if total is not None and int(x[-1]) > total:
        raise ValueError(f"{name}: {argument} ends at {int(x[-1])}; {of} has {total} rows")
    return x


def _check_most(name: str, argument: str, most: Any, lengths: Tensor) -> int:
    most = _flash_call.whole(name, argument, most)
    longest = int(lengths.max()) if lengths.numel() else 0
    if longest > most:
        raise ValueError(f"{name}: {argument} is {most}; the longest sequence has {longest}")
    return most


def from_lengths(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def indices(starts: Tensor, lengths: Tensor) -> Tensor:
    """Returns start, start + 1, ... of each sequence, one sequence after another."""
    shift = starts - from_lengths(lengths)[:-1]
    return torch.arange(int(lengths.sum())) + shift.repeat_interleave(lengths)


def check_table(name: str, table: Any, batch: int, lengths: Tensor, page: int, pages: int) -> Tensor:
    """Checks the pages that the lengths use; the other entries of the table may hold anything."""
    table = _flash_call.numbers(name, "block_table", table.reshape(-1) if isinstance(table, Tensor) else table, None,
                                -2**31).reshape(shape(table))
    if table.dim() != 2 or table.shape[0] != batch:
        raise ValueError(f"{name}: block_table has shape {shape(table)}; it must be [{batch}, pages of a sequence]")
    if lengths.numel() and int(lengths.max()) > table.shape[1] * page:
        raise ValueError(f"{name}: a sequence has {int(lengths.max())} keys; block_table has {table.shape[1]} pages of "
                         f"{page} for it")
    used = torch.arange(table.shape[1]) * page < lengths[:, None]
    wrong = table[used & ((table < 0) | (table >= pages))]
    if wrong.numel():
        raise ValueError(f"{name}: block_table holds {int(wrong[0])}; there are {pages} pages")
    return table.masked_fill(~used, 0)


def _paged(name: str, k: Tensor, v: Tensor, table: Any, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Copies the keys that are used out of their pages, one sequence after another."""
    page = k.shape[1]
    table = check_table(name, table, lengths.shape[0], lengths, page, k.shape[0])
    place = indices(torch.zeros_like(lengths), lengths)
    sequence = torch.arange(lengths.shape[0]).repeat_interleave(lengths)
    rows = table[sequence, place // page] * page + place % page
    return k.flatten(0, 1).index_select(0, rows), v.flatten(0, 1).index_select(0, rows)


def _lengths_of_keys(name: str, keys: Keys, lengths: Tensor | None, batch: int) -> Tensor:
    """The number of keys of each sequence from its start, with what leftpad_k skips."""
    if keys.used is None:
        return lengths
    used = _flash_call.numbers(name, "seqused_k", keys.used, batch)
    if lengths is not None and bool((used > lengths).any()):
        at = int((used > lengths).nonzero()[0])
        raise ValueError(f"{name}: seqused_k holds {int(used[at])} for a sequence of {int(lengths[at])} keys")
    return used


def _chosen(name: str, k: Tensor, v: Tensor, keys: Keys, ends_k: Tensor | None, batch: int) -> tuple:
    """Returns k and v of the keys that are used, packed, and their cumulative lengths."""
    given = None if ends_k is None else ends_k[1:] - ends_k[:-1]
    lengths = _lengths_of_keys(name, keys, given, batch)
    if keys.block_table is not None:
        if keys.leftpad is not None:
            raise ValueError(f"{name}: leftpad_k is given with block_table; pages take no left padding")
        return *_paged(name, k, v, keys.block_table, lengths), from_lengths(lengths)
    starts = ends_k[:-1]
    if keys.leftpad is not None:
        skipped = _flash_call.numbers(name, "leftpad_k", keys.leftpad, batch)
        if bool((skipped > lengths).any()):
            raise ValueError(f"{name}: leftpad_k holds {int(skipped.max())}; a sequence has fewer keys")
        starts, lengths = starts + skipped, lengths - skipped
    elif keys.used is None:
        total = int(ends_k[-1])
        return k[:total], v[:total], ends_k
    rows = indices(starts, lengths)
    return k.index_select(0, rows), v.index_select(0, rows), from_lengths(lengths)


def _padded(weights: Tensor, ends_q: Tensor, ends_k: Tensor, most_q: int, most_k: int) -> Tensor:
    """Returns weights [Hq, total_q, total_k] as [N, Hq, most_q, most_k]."""
    found = weights.new_zeros((len(ends_q) - 1, weights.shape[0], most_q, most_k))
    bounds = zip(found, *(zip(x.tolist(), x[1:].tolist()) for x in (ends_q, ends_k)))
    for item, (first, end), (first_k, end_k) in bounds:
        item[:, : end - first, : end_k - first_k] = weights[:, first:end, first_k:end_k]
    return found


def attend_packed(call: Settings, q: Any, k: Any, v: Any, ends_q: Any, ends_k: Any, most_q: Any, most_k: Any,
                  keys: Keys) -> tuple:
    """Returns (output [total_q, Hq, Dv], logsumexp [Hq, total_q], probabilities [N, Hq, most_q, most_k] or None).
    Rows after the last sequence are 0."""
    name, names, paged = call.name, call.names, keys.block_table is not None
    _flash_call.check_tensors(call, q, 3, "[total_q, heads, head_dim]", **{names.k: k, names.v: v})
    lead, needed = ((-1, -1), "[pages, page size, heads_k, {}]") if paged else ((-1,), "[total_k, heads_k, {}]")
    _flash_call.check_keys(call, q, k, v, lead, needed.format(q.shape[-1]))
    ends_q = ends(name, names.ends_q, ends_q, None, q.shape[0], names.q)
    batch = ends_q.shape[0] - 1
    if ends_k is None and (not paged or keys.used is None):
        raise TypeError(f"{name}: {names.ends_k} is None; it is needed unless block_table and seqused_k are given")
    if ends_k is not None:
        ends_k = ends(name, names.ends_k, ends_k, batch + 1, None if paged else k.shape[0], names.k)
    k, v, ends_k = _chosen(name, k, v, keys, ends_k, batch)
    most_q = _check_most(name, names.most_q, most_q, ends_q[1:] - ends_q[:-1])
    most_k = _check_most(name, names.most_k, most_k, ends_k[1:] - ends_k[:-1])
    rows, total = int(ends_q[-1]), q.shape[0]
    output, logsumexp, weights = _flash_call.attend(call, q[:rows], k, v, batch, q.shape[1], cu_seqlens_q=ends_q,
                                                    cu_seqlens_k=ends_k)
    if rows < total:
        output = torch.nn.functional.pad(output, (0, 0, 0, 0, 0, total - rows))
        logsumexp = torch.nn.functional.pad(logsumexp, (0, total - rows), value=-torch.inf)
    if weights is not None:
        weights = _padded(weights, ends_q, ends_k, most_q, most_k)
    return output, logsumexp, weights
