# python/tests/literature_chosen.py: keys that are chosen by index: random blocks, hashes, routers, indexers, monotonic
# alignments.
import math

import attn
import torch
import torch.nn.functional as F

from literature import pairs, plainly, row, scaled, weights_of
from literature_masks import picture, seen

C = "Keys that are chosen"


def of_one_head(z):
    return z.B, 1, z.T, z.D


def _bigbird(i, j, size=4):
    n = j.shape[0] // size
    block = torch.arange(n)
    lists = torch.stack([(block - 1) % n, block, (block + 1) % n, (block * 2 + 3) % n], 1)
    shown = torch.zeros(n, n, dtype=torch.bool).scatter_(1, lists, True)
    return shown.repeat_interleave(size, 0).repeat_interleave(size, 1) | (j < size) | (i < size)


_few_blocks = torch.tensor([[5, 0, 1, 3], [0, 1, 2, 5], [1, 2, 3, 1], [2, 3, 4, 3], [3, 4, 5, 5], [4, 5, 0, 1]])


@row(C, "Window, random and global blocks",
     "the block of i, both beside it, random ones; the first block sees all and is seen by all",
     "BigBird, Zaheer 2020, 2007.14062",
     "attention(q, k, v, {.mask = Mask::blocks(blocks, 4) | Mask::prefix(4) | "
     "Mask::attend(global.transpose(0, 1))}).output",
     seen(_bigbird), picture(attn.Mask.blocks(_few_blocks[None, None], 4) | attn.Mask.prefix(4)
                             | attn.Mask.attend((torch.arange(24) < 4)[:, None]), 24), large={"size": 64})
def big_bird(q, k, v, size=4):
    n = q.shape[2] // size
    block = torch.arange(n)
    near = torch.stack([(block - 1) % n, block, (block + 1) % n, (block * 2 + 3) % n], 1)   # the last one: random
    first = attn.Mask.attend((torch.arange(q.shape[2]) < size)[:, None])
    return attn.attention(q, k, v, mask=attn.Mask.blocks(near[None, None], size) | attn.Mask.prefix(size) | first)


def _hashed(q, v, buckets=4):
    i, j = pairs(q)
    rotated = q @ torch.randn(q.shape[3], buckets // 2, generator=torch.Generator().manual_seed(3)).to(q.dtype)
    bucket = torch.cat((rotated, -rotated), -1).argmax(-1)
    return weights_of(scaled(q, q), (bucket.unsqueeze(3) == bucket.unsqueeze(2)) & (j <= i)) @ v


@row(C, "Buckets of a hash", "hash(q[i]) = hash(q[j]), one round, k = q", "Reformer, Kitaev 2020, 2001.04451",
     "attention(q, q, v, {.mask = Mask::documents(ids) & Mask::causal()}).output", _hashed)
def hashed(q, v, buckets=4):
    rotated = q @ torch.randn(q.shape[3], buckets // 2, generator=torch.Generator().manual_seed(3))
    bucket, order = torch.cat((rotated, -rotated), -1).argmax(-1).flatten(0, 1).sort(stable=True)
    x, y = (x.flatten(0, 1).gather(1, order.unsqueeze(2).expand(-1, -1, x.shape[3])).unsqueeze(1) for x in (q, v))
    # one bucket after the other, each in the order of the tokens
    y = attn.attention(x, x, y, mask=attn.Mask.documents(bucket) & attn.Mask.causal()).squeeze(1)
    return torch.empty_like(y).scatter(1, order.unsqueeze(2).expand_as(y), y).view(v.shape)


def _gathered(chosen, rows, keys=1):
    """The pairs of lists of blocks of keys [.., rows, n] under a causal mask; -1 is none."""
    lists = torch.where(chosen >= 0, chosen, rows)
    shown = torch.zeros(*chosen.shape[:-1], rows + 1, dtype=torch.bool).scatter_(-1, lists, True)[..., :rows // keys]
    return shown.repeat_interleave(keys, -1).tril()


def _mixture(q, k, v, size=4, best=2):
    rows = q.shape[2]
    own, block = torch.arange(rows)[:, None] // size, torch.arange(rows // size)
    gate = (q @ k.unflatten(2, (-1, size)).mean(3).mT).masked_fill(block >= own, -math.inf).topk(best)
    past = torch.where(gate.values > -math.inf, gate.indices, -1)
    return plainly(q, k, v, _gathered(torch.cat((past, own.expand(*q.shape[:3], 1)), -1), rows, size))


_picture_lists = torch.tensor([[0, -1], [0, -1], [1, -1], [1, 0], [2, 0], [2, 1]]).repeat_interleave(2, 0)


@row(C, "Mixture of blocks", "the 2 past blocks with the largest q . mean(k), and the own one",
     "MoBA, Lu 2025, 2502.13189", "attention(q, k, v, {.mask = Mask::blocks(chosen, 1, 4) & Mask::causal()}).output",
     _mixture, picture(attn.Mask.blocks(_picture_lists[None, None], (1, 4)) & attn.Mask.causal()),
     large={"size": 64, "best": 3})
def mixture_of_blocks(q, k, v, size=4, best=2):
    own, block = torch.arange(q.shape[2])[:, None] // size, torch.arange(q.shape[2] // size)
    gate = (q @ k.unflatten(2, (-1, size)).mean(3).mT).masked_fill(block >= own, -math.inf).topk(best)
    past = torch.where(gate.values > -math.inf, gate.indices, -1)
    chosen = torch.cat((past, own.expand(*q.shape[:3], 1)), -1)
    return attn.attention(q, k, v, mask=attn.Mask.blocks(chosen, (1, size)) & attn.Mask.causal())


def _native(q, k, v, gates, size=4, best=2, left=5):
    i, j = pairs(q)
    group, block = q.shape[1] // k.shape[1], torch.arange(q.shape[2] // size)
    keys, values = (x.repeat_interleave(group, 1).unflatten(2, (-1, size)).mean(3) for x in (k, v))
    weights = weights_of(scaled(q, keys), size * (block + 1) <= i + 1)
    importance = weights.detach().unflatten(1, (-1, group)).sum(2) + 10 * (block == i // size)
    lists = importance.topk(best).indices.repeat_interleave(group, 1)
    branches = (weights @ values, plainly(q, k, v, _gathered(lists, q.shape[2], size)),
                plainly(q, k, v, (j <= i) & (j >= i - left)))
    return sum(gate * branch for gate, branch in zip(torch.sigmoid(gates), branches))


@row(C, "Native sparse attention",
     "g1 attention(q, mean of blocks) + g2 attention(q, best 2 blocks) + g3 attention(q, window)",
     "NSA, Yuan 2025, 2502.11089", "attention(q, k2, v2, {.mask = Mask::blocks(chosen, 1, 4) & Mask::causal()}).output",
     _native, large={"size": 64, "best": 4, "left": 255}, k=lambda z: (z.B, z.H // 2, z.T, z.D),
     v=lambda z: (z.B, z.H // 2, z.T, z.D), gates=lambda z: (3, z.B, z.H, z.T, 1))
def native_sparse(q, k, v, gates, size=4, best=2, left=5):
    i, block = torch.arange(q.shape[2])[:, None], torch.arange(q.shape[2] // size)
    keys, values = (x.unflatten(2, (-1, size)).mean(3) for x in (k, v))  # NSA learns what makes one key of a block
    complete = attn.Mask.attend(size * block + size <= i + 1)
    compressed, weights = attn.attention(q, keys, values, mask=complete, weights="full")
    # the blocks are chosen per key head, by the weights of its query heads; the own block always
    importance = weights.detach().unflatten(1, (k.shape[1], -1)).sum(2) + 10 * (block == i // size)
    chosen = attn.Mask.blocks(importance.topk(best).indices, (1, size)) & attn.Mask.causal()
    selected = attn.attention(q, k, v, mask=chosen)
    window = attn.attention(q, k, v, mask=f"causal & window({left}, 0)")
    g = torch.sigmoid(gates)
    return g[0] * compressed + g[1] * selected + g[2] * window


INDEXED = {"k": of_one_head, "v": of_one_head, "q_index": lambda z: (z.B, 3, z.T, z.D // 2),
           "k_index": lambda z: (z.B, 1, z.T, z.D // 2), "w": lambda z: (z.B, 3, z.T)}


def _lightning(q, k, v, q_index, k_index, w, keys=6):
    i, j = pairs(q)
    index = (w.unsqueeze(3) * torch.relu(q_index @ k_index.mT)).sum(1, keepdim=True)
    return plainly(q, k, v, _gathered(index.masked_fill(j > i, -math.inf).topk(keys).indices, q.shape[2]))


@row(C, "Lightning indexer", "the n keys with the largest sum over h of w[i, h] relu(q'[i, h] . k'[j])",
     "DeepSeek-V3.2, 2512.02556", "attention(q, k1, v1, {.mask = Mask::blocks(chosen, 1) & Mask::causal()}).output",
     _lightning, large={"keys": 256}, **INDEXED)
def lightning_indexer(q, k, v, q_index, k_index, w, keys=6):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    with torch.no_grad():                                                # it learns by the next recipe alone
        index = (w.unsqueeze(3) * torch.relu(q_index @ k_index.mT)).sum(1, keepdim=True)
        chosen = index.masked_fill(j > i, -math.inf).topk(keys).indices  # [B, 1, T, keys]: one choice for all heads
    return attn.attention(q, k, v, mask=attn.Mask.blocks(chosen, 1) & attn.Mask.causal())


def _index_loss(q, k, v, q_index, k_index, w, keys=6):
    i, j = pairs(q)
    index = (w.unsqueeze(3) * torch.relu(q_index @ k_index.mT)).sum(1)
    chosen = _gathered(index.masked_fill(j > i, -math.inf).topk(keys).indices, q.shape[2])
    weights = weights_of(scaled(q, k), chosen.unsqueeze(1))
    p = weights.mean(1).detach()
    loss = F.kl_div(index.masked_fill(~chosen, -1e30).log_softmax(-1), p, reduction="none").sum(-1)
    return torch.cat((weights @ v, loss[:, None, :, None].expand(-1, q.shape[1], -1, 1)), -1)


@row(C, "Lightning indexer, its training",
     "KL(mean over h of the weights of the chosen keys || softmax of their index)", "DeepSeek-V3.2, 2512.02556",
     "attention(q, k1, v1, {.mask = Mask::blocks(chosen, 1) & Mask::causal(), "
     ".weights = Weights::head_average}).weights",
     _index_loss, large={"keys": 256}, **INDEXED)
def train_indexer(q, k, v, q_index, k_index, w, keys=6):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    index = (w.unsqueeze(3) * torch.relu(q_index @ k_index.mT)).sum(1).masked_fill(j > i, -math.inf)
    best = index.topk(keys)
    mask = attn.Mask.blocks(best.indices.unsqueeze(1), 1) & attn.Mask.causal()
    y, weights = attn.attention(q, k, v, mask=mask, weights="head_average")   # one matrix for all heads
    p = weights.detach().gather(2, best.indices)
    loss = F.kl_div(best.values.clamp(min=-1e30).log_softmax(-1), p, reduction="none").sum(-1)
    return torch.cat((y, loss[:, None, :, None].expand(-1, q.shape[1], -1, 1)), -1)


# --- monotonic --------------------------------------------------------------------------------------------------------


def _chunks(q, k, v, size=3):
    rows = q.shape[2]
    shown, at = torch.zeros(*q.shape[:3], rows, dtype=torch.bool), q.new_zeros(*q.shape[:2], 1, dtype=torch.long)
    for i in range(rows):
        stops = ((q[:, :, i:i + 1] @ k.mT)[:, :, 0] > 0) & (torch.arange(rows) >= at)
        found = stops.any(-1, keepdim=True)
        at = torch.where(found, stops.int().argmax(-1, keepdim=True), at)
        shown[:, :, i] = found & (torch.arange(rows) <= at) & (torch.arange(rows) > at - size)
    return plainly(q, k, v, shown)


@row(C, "Monotonic chunks", "softmax over the 3 keys up to the first j >= the last one with sigmoid(s) >= 1/2",
     "MoChA as it decodes, Chiu 2017, 1712.05382", "attention(q, k, v, {.mask = Mask::blocks(chosen, 1)}).output",
     _chunks, large={"size": 8})
def monotonic_chunks(q, k, v, size=3):
    at, keys = torch.zeros(*q.shape[:2], 1, dtype=torch.long), []
    for i in range(q.shape[2]):
        stops = ((q[:, :, i:i + 1] @ k.mT)[:, :, 0] > 0) & (torch.arange(k.shape[2]) >= at)
        found = stops.any(-1, keepdim=True)
        at = torch.where(found, stops.int().argmax(-1, keepdim=True), at)
        keys.append(torch.where(found, (at + torch.arange(1 - size, 1)).clamp(min=-1), -1))
    return attn.attention(q, k, v, mask=attn.Mask.blocks(torch.stack(keys, 2), 1))


def _sum_of(x, size, before):
    """Of x [.., T] the sum of each number and of the size - 1 before it, or behind it."""
    x = F.pad(x, (size - 1, 0) if before else (0, size - 1))
    return x.unfold(-1, size, 1).sum(-1)


def _expected_chunks(q, q_chunk, k, v, size=3):
    scores, far = scaled(q, k), scaled(q_chunk, k)
    before = torch.full(scores.shape[:2] + scores.shape[3:], -math.inf, dtype=q.dtype)
    before[..., 0] = 0
    rows = []
    for i in range(q.shape[2]):
        passed = F.pad(F.logsigmoid(-scores[:, :, i, :-1]).cumsum(-1), (1, 0))
        before = F.logsigmoid(scores[:, :, i]) + passed + torch.logcumsumexp(before - passed, -1)
        rows.append(before.exp())
    alpha, e = torch.stack(rows, 2), far.exp()
    return (e * _sum_of(alpha / _sum_of(e, size, True), size, False)) @ v


@row(C, "Monotonic chunks, their training",
     "alpha[i, j] = p[i, j] (alpha[i - 1, j] + (1 - p[i, j - 1]) alpha[i, j - 1] / p[i, j - 1]), "
     "y = sum_j alpha[i, j] attention(q', the 3 keys up to j)",
     "MoChA, Chiu 2017, 1712.05382; Raffel 2017, 1704.00784",
     "attention(q, k, v, {.bias = Bias::dense(log(rand({2, 4, 24, 24})))}).output",
     _expected_chunks, large={"size": 8})
def train_monotonic_chunks(q, q_chunk, k, v, size=3):
    def sums(x, before):                             # of each number and the size - 1 before it, or behind it
        return F.pad(x, (size - 1, 0) if before else (0, size - 1)).unfold(-1, size, 1).sum(-1)

    s, e = q @ k.mT / q.shape[3] ** 0.5, torch.exp(q_chunk @ k.mT / q.shape[3] ** 0.5)   # these matrices are stored
    p, go_on = torch.sigmoid(s), F.pad(F.logsigmoid(-s[..., :-1]), (1, 0))
    one = torch.ones(k.shape[0], 1, k.shape[2], 1)
    alpha, rows = F.one_hot(torch.zeros(q.shape[:2], dtype=torch.long), k.shape[2]).to(q.dtype), []
    for i in range(q.shape[2]):                      # along the keys it is a linear recurrence of one number
        reached, _ = attn.linear_attention(one, one, alpha.unsqueeze(3), go_on[:, :, i].contiguous(), scale=1.0)
        alpha = p[:, :, i] * reached.squeeze(3)
        rows.append(alpha)
    share = sums(torch.stack(rows, 2) / sums(e, True), False)
    y, lse = attn.attention(q_chunk, k, v, bias=attn.Bias.dense(share.clamp(min=1e-30).log()), return_logsumexp=True)
    return y * torch.exp(lse).unsqueeze(3)           # the shares of a row sum to less than 1 where it stops at no key
