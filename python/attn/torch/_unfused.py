# python/attn/torch/_unfused.py: computes attention by its definition in torch operations,
# for gradients that the fused pass does not give.
"""Such gradients are those through the returned weights, and gradients of gradients. Complete matrices are stored."""

from typing import Sequence

import torch
from torch import Tensor

from attn import _core
from attn.torch._call import Numbers, compute_dtype, seed_of


def visible(q, k, mask, numbers):
    """Returns a bool mask that is true for visible pairs, broadcastable to [B, H, L, S]."""
    rows, keys = q.shape[-2], k.shape[-2]
    i = torch.arange(rows, device=q.device).unsqueeze(1) + (keys - rows if numbers.bottom_right else 0)
    j = torch.arange(keys, device=q.device)
    seen = torch.ones((rows, keys), dtype=torch.bool, device=q.device)
    if numbers.causal:
        seen = seen & (j <= i)
    if numbers.window_left >= 0:
        seen = seen & (j >= i - numbers.window_left)
    if numbers.window_right >= 0:
        seen = seen & (j <= i + numbers.window_right)
    return seen if mask is None else seen & mask


@torch.library.custom_op("attn::kept", mutates_args=(), device_types="cpu")
def _kept(seed: Tensor, sizes: Sequence[int], bottom_right: bool, dropout_p: float) -> Tensor:
    """Returns which weights dropout keeps: bool [B, H, L, S].
    A call of the library with equal weights shows which ones it keeps."""
    rows, keys = sizes[2:]
    flat, key = (torch.zeros((*sizes[:3], 1), dtype=torch.float32),
                 torch.zeros((sizes[0], 1, keys, 1), dtype=torch.float32))
    # The window masks nothing. Dropout does not depend on the alignment (docs/numerics.md section 6).
    numbers = Numbers(scale=1.0, window_left=keys + rows, window_right=keys + rows, bottom_right=bottom_right,
                      dropout_p=dropout_p)
    weights = _core.attention_forward((flat, key, key, None, None, None), (*numbers, seed_of(seed)), "full",
                                      torch.empty_like(flat), None, None)
    return weights > 0


@_kept.register_fake
def _(seed, sizes, bottom_right, dropout_p):
    return seed.new_empty(sizes, dtype=torch.bool)


@_kept.register_vmap
def _(info, in_dims, seed, sizes, *rest):
    found = torch.empty((info.batch_size, *sizes), dtype=torch.bool)
    for item, x in zip(found, seed.unbind(in_dims[0])):
        item.copy_(_kept(x, sizes, *rest))
    return found, 0


def kept(q, keys, numbers, seed):
    """Returns the factors of the weights under dropout, 0 or 1 / (1 - p)."""
    sizes, dtype = (*q.shape[:3], keys), compute_dtype(q.dtype)
    if keys == 0 or numbers.dropout_p >= 1:
        return torch.zeros(sizes, dtype=dtype, device=q.device)
    return _kept(seed, sizes, numbers.bottom_right, numbers.dropout_p).to(dtype) / (1 - numbers.dropout_p)


def for_heads(x, heads):
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def attend(operands, numbers, seed):
    """Returns output [B, H, L, Ev] and weights [B, H, L, S], in the compute dtype."""
    q, k, v, mask, bias, sinks = operands
    dtype = compute_dtype(q.dtype)
    heads = q.shape[1]
    seen = visible(q, k, mask, numbers)
    # Keys that no row sees may hold any value, even NaN, so they are replaced by zeros.
    used = seen.expand(q.shape[0], heads, q.shape[2], k.shape[2]).any(dim=2).unsqueeze(-1)
    q = q.to(dtype)
    k = torch.where(used, for_heads(k.to(dtype), heads), 0)
    v = torch.where(used, for_heads(v.to(dtype), heads), 0)

    scores = (q * numbers.scale) @ k.transpose(-1, -2)
    if numbers.softcap:
        scores = torch.tanh(scores / numbers.softcap) * numbers.softcap
    if bias is not None:
        scores = scores + bias.to(dtype)
    seen = seen & (scores != -torch.inf)
    scores = scores.masked_fill(~seen, -torch.inf)
    nothing = ~seen.any(dim=-1, keepdim=True)
    largest = (scores.detach().amax(dim=-1, keepdim=True) if scores.shape[-1]
               else scores.new_full((*scores.shape[:-1], 1), -torch.inf))
    if sinks is not None:
        sinks = sinks.to(dtype).view(-1, 1, 1)
        largest = torch.maximum(largest, sinks.detach())
    largest = largest.masked_fill(nothing, 0)
    powers = torch.exp((scores - largest).masked_fill(~seen, -torch.inf))
    total = powers.sum(dim=-1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sinks - largest)
    weights = powers / total.masked_fill(nothing, 1)
    if numbers.dropout_p:
        weights = weights * kept(q, k.shape[2], numbers, seed)
    return weights @ v, weights


def shown(weights, kind, dtype):
    return (weights.mean(dim=1) if kind == "head_average" else weights).to(dtype)


def _places(operands):
    """Returns the operands that have gradients: q, k, v, and bias and sinks if given."""
    return [0, 1, 2] + [n for n in (4, 5) if operands[n] is not None]


def _with(operands, places, leaves):
    filled = list(operands)
    for n, leaf in zip(places, leaves):
        filled[n] = leaf
    return filled


def _by_place(places, found):
    """Returns the gradients of q, k, v, bias and sinks, with None for operands that are not given."""
    all_of_them = dict(zip(places, found))
    return [all_of_them.get(n) for n in (0, 1, 2, 4, 5)]


def gradients(operands, numbers, seed, kind, grad_output, grad_weights):
    """Returns the gradients of q, k, v, bias and sinks; they can be differentiated again."""
    places = _places(operands)

    def run(*leaves):
        output, weights = attend(_with(operands, places, leaves), numbers, seed)
        results = () if grad_output is None else (output.to(grad_output.dtype),)
        return results if grad_weights is None else (*results, shown(weights, kind, grad_weights.dtype))

    _, pull = torch.func.vjp(run, *(operands[n] for n in places))
    return _by_place(places, pull(tuple(x for x in (grad_output, grad_weights) if x is not None)))


def _tangents_of(f, inputs, along):
    """torch.func.jvp by reverse mode twice, because torch's forward mode does not nest."""
    results, pull = torch.func.vjp(f, *inputs)
    _, push = torch.func.vjp(lambda *flows: pull(flows), *map(torch.zeros_like, results))
    return push(tuple(along))


def third_gradients(operands, numbers, seed, moves, flows):
    """Differentiates the tangents of `gradients` (those through the output alone) along `moves`: grad_output, then the
    tangents of grad_output and of q, k, v, bias and sinks, or None. Returns the gradients of `moves`, then those of q,
    k, v, bias and sinks, for the incoming gradients `flows` of the tangents of these five."""
    places = _places(operands)
    still = [torch.zeros_like(moves[0] if n is None else operands[n]) if x is None else x
             for n, x in zip((None, *places), (moves[1], *(x for n, x in zip((0, 1, 2, 4, 5), moves[2:])
                                                           if n in places)))]

    def first(flow, *leaves):
        found = gradients(_with(operands, places, leaves), numbers, seed, "none", flow, None)
        return tuple(x for x in found if x is not None)

    def tangents(grad_output, *rest):
        leaves, along = rest[: len(places)], rest[len(places) :]
        return _tangents_of(first, (grad_output, *leaves), along)

    results, pull = torch.func.vjp(tangents, moves[0], *(operands[n] for n in places), *still)
    given = [dx for n, dx in zip((0, 1, 2, 4, 5), flows) if n in places]
    found = pull(tuple(torch.zeros_like(x) if dx is None or dx.shape != x.shape else dx
                       for x, dx in zip(results, given)))
    along = found[1 + len(places) :]
    return (found[0], along[0], *_by_place(places, along[1:])), _by_place(places, found[1 : 1 + len(places)])
