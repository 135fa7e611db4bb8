# python/tests/literature_masks.py: patterns of the literature, and keys that are chosen by index.
import math

import attn
import torch

from literature import pairs, plainly, row, scaled, weights_of

M, C = "Patterns", "Keys that are chosen"
I, J = pairs()
HEIGHT, WIDTH = 4, 6  # of the picture whose 24 pixels are the tokens
Y, X = torch.arange(24) // WIDTH, torch.arange(24) % WIDTH


def seen(rule):
    """A plain form under the mask whose pairs (i, j) are `rule`."""
    return lambda q, k, v: plainly(q, k, v, rule)


def picture(mask, size=12):
    return lambda: (mask if isinstance(mask, attn.Mask) else attn.Mask(mask)).print(size, size)


@row(M, "Causal", "j <= i", "Vaswani 2017, 1706.03762", "attention(q, k, v, {.mask = Mask::causal()}).output",
     seen(J <= I), picture("causal", 8))
def causal(q, k, v):
    return attn.attention(q, k, v, mask="causal")


@row(M, "Prefix", "j <= i or j < n", "T5, Raffel 2019, 1910.10683",
     "attention(q, k, v, {.mask = Mask::causal() | Mask::prefix(5)}).output", seen((J <= I) | (J < 5)),
     picture("causal | prefix(5)", 8))
def prefix(q, k, v):
    return attn.attention(q, k, v, mask="causal | prefix(5)")


@row(M, "Sliding window", "i - 3 <= j <= i", "Mistral, 2310.06825",
     "attention(q, k, v, {.mask = Mask::causal() & Mask::window(3, 0)}).output", seen((J <= I) & (J >= I - 3)),
     picture("causal & window(3, 0)", 8))
def sliding_window(q, k, v):
    return attn.attention(q, k, v, mask="causal & window(3, 0)")


@row(M, "Window with sinks", "i - 3 <= j <= i or j < 2 and j <= i", "StreamingLLM, Xiao 2023, 2309.17453",
     "attention(q, k, v, {.mask = Mask::causal() & (Mask::window(3, 0) | Mask::prefix(2))}).output",
     seen((J <= I) & ((J >= I - 3) | (J < 2))), picture("causal & (window(3, 0) | prefix(2))", 8))
def window_with_sinks(q, k, v):
    return attn.attention(q, k, v, mask="causal & (window(3, 0) | prefix(2))")


@row(M, "Dilated window", "|i - j| <= 6 and i = j (mod 3)", "Longformer, Beltagy 2020, 2004.05150",
     "attention(q, k, v, {.mask = Mask::window(6, 6) & Mask::documents(ids)}).output",
     seen(((I - J).abs() <= 6) & (I % 3 == J % 3)),
     picture(attn.Mask("window(6, 6)") & attn.Mask.documents(torch.arange(12) % 3)))
def dilated_window(q, k, v):
    return attn.attention(q, k, v, mask=attn.Mask("window(6, 6)") & attn.Mask.documents(torch.arange(24) % 3))


@row(M, "Strided", "j <= i and (j >= i - 3 or i = j (mod 4))", "Sparse Transformer, Child 2019, 1904.10509",
     "attention(q, k, v, {.mask = Mask::causal() & (Mask::window(3, 0) | Mask::documents(ids))}).output",
     seen((J <= I) & ((J >= I - 3) | (I % 4 == J % 4))),
     picture(attn.Mask.causal() & (attn.Mask.window(3, 0) | attn.Mask.documents(torch.arange(12) % 4))))
def strided(q, k, v):
    column = attn.Mask.documents(torch.arange(24) % 4)
    return attn.attention(q, k, v, mask=attn.Mask.causal() & (attn.Mask.window(3, 0) | column))


@row(M, "Fixed", "j <= i and (i // 4 = j // 4 or j % 4 = 3)", "Sparse Transformer, Child 2019, 1904.10509",
     "attention(q, k, v, {.mask = Mask::causal() & (Mask::documents(ids) | Mask::attend(global))}).output",
     seen((J <= I) & ((I // 4 == J // 4) | (J % 4 == 3))),
     picture(attn.Mask.causal() & (attn.Mask.documents(torch.arange(12) // 4)
                                   | attn.Mask.attend((torch.arange(12) % 4 == 3)[None]))))
def fixed(q, k, v):
    i = torch.arange(24)
    summaries = attn.Mask.attend((i % 4 == 3)[None])
    return attn.attention(q, k, v, mask=attn.Mask.causal() & (attn.Mask.documents(i // 4) | summaries))


@row(M, "Packed documents", "id[i] = id[j]", "Krell 2021, 2107.02027",
     "attention(q, k, v, {.mask = Mask::documents(ids)}).output", seen((I >= 9) == (J >= 9)),
     picture(attn.Mask.documents((torch.arange(12) >= 5).long())))
def packed_documents(q, k, v):
    return attn.attention(q, k, v, mask=attn.Mask.documents((torch.arange(24) >= 9).long()))


def _is_global(size):
    return (torch.arange(size) % 11) == 0


def _longformer(size):
    far = _is_global(size)
    return attn.Mask.window(2, 2) | attn.Mask.attend(far[None]) | attn.Mask.attend(far[:, None])


@row(M, "Window with global tokens", "|i - j| <= 2 or global[i] or global[j]", "Longformer, Beltagy 2020, 2004.05150",
     "attention(q, k, v, {.mask = Mask::window(2, 2) | Mask::attend(global) | "
     "Mask::attend(global.transpose(0, 1))}).output",
     seen(((I - J).abs() <= 2) | _is_global(24) | _is_global(24)[:, None]), picture(_longformer(12)))
def global_tokens(q, k, v):
    far = torch.arange(24) % 11 == 0
    mask = attn.Mask.window(2, 2) | attn.Mask.attend(far[None]) | attn.Mask.attend(far[:, None])
    return attn.attention(q, k, v, mask=mask)


# --- pictures ---------------------------------------------------------------------------------------------------------

_shifted = (Y + 1) // 2 * 3 + (X + 1) // 3


@row(M, "Windows of a picture", "window(i) = window(j), shifted by s", "Swin, Liu 2021, 2103.14030",
     "attention(q, k, v, {.mask = Mask::documents(ids)}).output", seen(_shifted[:, None] == _shifted),
     picture(attn.Mask.documents(_shifted), 24))
def windows(q, k, v):
    y, x = torch.arange(24) // 6, torch.arange(24) % 6   # 4 x 6 pixels
    window = (y + 1) // 2 * 3 + (x + 1) // 3             # windows of 2 x 3, shifted by 1; without + 1: not shifted
    return attn.attention(q, k, v, mask=attn.Mask.documents(window))


def _near():
    top, left = (Y - 1).clamp(0, HEIGHT - 3), (X - 1).clamp(0, WIDTH - 3)
    at = torch.arange(3)
    return ((top[:, None, None] + at[:, None]) * WIDTH + left[:, None, None] + at).flatten(1)


def _neighbourhood():
    top, left = (Y - 1).clamp(0, HEIGHT - 3)[:, None], (X - 1).clamp(0, WIDTH - 3)[:, None]
    return (Y >= top) & (Y < top + 3) & (X >= left) & (X < left + 3)


@row(M, "Neighbourhood of a pixel", "j in the 3 x 3 pixels around i, moved inside at the border",
     "NATTEN, Hassani 2022, 2204.07143", "attention(q, k, v, {.mask = Mask::blocks(chosen, 1)}).output",
     seen(_neighbourhood()), picture(attn.Mask.blocks(_near()[None, None], 1), 24))
def neighbourhood(q, k, v):
    height, width, size = 4, 6, 3
    i, at = torch.arange(height * width), torch.arange(size)
    top = (i // width - size // 2).clamp(0, height - size)
    left = (i % width - size // 2).clamp(0, width - size)
    near = (top[:, None, None] + at[:, None]) * width + left[:, None, None] + at
    return attn.attention(q, k, v, mask=attn.Mask.blocks(near.flatten(1)[None, None], 1))


def _axial(q, k, v):
    def along(x, dim):
        return x.unflatten(2, (HEIGHT, WIDTH)).transpose(dim, 3)

    rows = plainly(*(along(x, 3).flatten(1, 2) for x in (q, k, v))).unflatten(1, (4, HEIGHT)).flatten(2, 3)
    return plainly(*(along(x, 2).flatten(1, 2) for x in (q, k, rows))).unflatten(1, (4, WIDTH)).transpose(2, 3).flatten(
        2, 3)


@row(M, "Axial", "along the rows of a picture, then along its columns", "Ho 2019, 1912.12180",
     "attention(q, k, attention(q, k, v, {.mask = Mask::documents(y)}).output, "
     "{.mask = Mask::documents(x)}).output",
     _axial, picture(attn.Mask.documents(Y) | attn.Mask.documents(X), 24))
def axial(q, k, v):
    y, x = torch.arange(24) // 6, torch.arange(24) % 6
    rows = attn.attention(q, k, v, mask=attn.Mask.documents(y))
    return attn.attention(q, k, rows, mask=attn.Mask.documents(x))


# --- keys that are chosen ---------------------------------------------------------------------------------------------


def _bigbird():
    block = torch.arange(6)
    return torch.stack([(block - 1) % 6, block, (block + 1) % 6, (block * 2 + 3) % 6], 1)


def _of_blocks(lists, rows, keys):
    shown = torch.zeros(lists.shape[0], 24 // keys, dtype=torch.bool).scatter_(1, lists, True)
    return shown.repeat_interleave(rows, 0).repeat_interleave(keys, 1)


@row(C, "Window, random and global blocks",
     "the block of i, both beside it, random ones; the first block sees all and is seen by all",
     "BigBird, Zaheer 2020, 2007.14062",
     "attention(q, k, v, {.mask = Mask::blocks(blocks, 4) | Mask::prefix(4) | "
     "Mask::attend(global.transpose(0, 1))}).output",
     seen(_of_blocks(_bigbird(), 4, 4) | (J < 4) | (I < 4)),
     picture(attn.Mask.blocks(_bigbird()[None, None], 4) | attn.Mask.prefix(4)
             | attn.Mask.attend((torch.arange(24) < 4)[:, None]), 24))
def big_bird(q, k, v):
    block = torch.arange(6)                                # of 4 tokens
    near = torch.stack([(block - 1) % 6, block, (block + 1) % 6, (block * 2 + 3) % 6], 1)   # the last one: random
    first = attn.Mask.attend((torch.arange(24) < 4)[:, None])
    return attn.attention(q, k, v, mask=attn.Mask.blocks(near[None, None], 4) | attn.Mask.prefix(4) | first)


def _hashed(q, v):
    bucket = torch.cat((q @ _R.to(q.dtype), -q @ _R.to(q.dtype)), -1).argmax(-1)
    return weights_of(scaled(q, q), (bucket.unsqueeze(3) == bucket.unsqueeze(2)) & (J <= I)) @ v


_R = torch.randn(16, 2, generator=torch.Generator().manual_seed(3))


@row(C, "Buckets of a hash", "hash(q[i]) = hash(q[j]), one round, k = q", "Reformer, Kitaev 2020, 2001.04451",
     "attention(q, q, v, {.mask = Mask::documents(ids) & Mask::causal()}).output", _hashed)
def hashed(q, v):
    rotated = q @ torch.randn(16, 2, generator=torch.Generator().manual_seed(3))
    bucket = torch.cat((rotated, -rotated), -1).argmax(-1)
    x, y = q.flatten(0, 1).unsqueeze(1), v.flatten(0, 1).unsqueeze(1)   # ids are those of a batch item, not of a head
    mask = attn.Mask.documents(bucket.flatten(0, 1)) & attn.Mask.causal()
    return attn.attention(x, x, y, mask=mask).view(v.shape)


def _gathered(chosen, keys):
    """The pairs of lists of blocks of keys [.., 24, n]; -1 is none."""
    lists = torch.where(chosen >= 0, chosen, 24)
    shown = torch.zeros(*chosen.shape[:-1], 25, dtype=torch.bool).scatter_(-1, lists, True)[..., :24 // keys]
    return shown.repeat_interleave(keys, -1) & (J <= I)


def _mixture(q, k, v):
    gate = q @ k.unflatten(2, (6, 4)).mean(3).mT
    own = torch.arange(24)[:, None] // 4
    best = gate.masked_fill(torch.arange(6) >= own, -math.inf).topk(2)
    lists = torch.cat((torch.where(best.values > -math.inf, best.indices, -1), own.expand(2, 4, 24, 1)), -1)
    return plainly(q, k, v, _gathered(lists, 4))


_picture_lists = torch.tensor([[0, -1], [0, -1], [1, -1], [1, 0], [2, 0], [2, 1]]).repeat_interleave(2, 0)


@row(C, "Mixture of blocks", "the 2 past blocks with the largest q . mean(k), and the own one",
     "MoBA, Lu 2025, 2502.13189", "attention(q, k, v, {.mask = Mask::blocks(chosen, 1, 4) & Mask::causal()}).output",
     _mixture, picture(attn.Mask.blocks(_picture_lists[None, None], (1, 4)) & attn.Mask.causal()))
def mixture_of_blocks(q, k, v):
    own = torch.arange(24)[:, None] // 4
    gate = (q @ k.unflatten(2, (6, 4)).mean(3).mT).masked_fill(torch.arange(6) >= own, -math.inf).topk(2)
    past = torch.where(gate.values > -math.inf, gate.indices, -1)
    chosen = torch.cat((past, own.expand(2, 4, 24, 1)), -1)
    return attn.attention(q, k, v, mask=attn.Mask.blocks(chosen, (1, 4)) & attn.Mask.causal())


def _native(q, k, v, gates):
    own, done = torch.arange(24)[:, None] // 4, torch.arange(4, 25, 4) <= I + 1
    keys, values = (x.repeat_interleave(2, 1).unflatten(2, (6, 4)).mean(3) for x in (k, v))
    weights = weights_of(scaled(q, keys), done)
    importance = weights.detach().unflatten(1, (2, 2)).sum(2) + 10 * (torch.arange(6) == own)
    lists = importance.topk(2).indices.repeat_interleave(2, 1)
    branches = weights @ values, plainly(q, k, v, _gathered(lists, 4)), plainly(q, k, v, (J <= I) & (J >= I - 5))
    return sum(gate * branch for gate, branch in zip(torch.sigmoid(gates), branches))


@row(C, "Native sparse attention",
     "g1 attention(q, mean of blocks) + g2 attention(q, best 2 blocks) + g3 attention(q, window)",
     "NSA, Yuan 2025, 2502.11089", "attention(q, k2, v2, {.mask = Mask::blocks(chosen, 1, 4) & Mask::causal()}).output",
     _native, k=(2, 2, 24, 16), v=(2, 2, 24, 16), gates=(3, 2, 4, 24, 1))
def native_sparse(q, k, v, gates):
    i, block = torch.arange(24)[:, None], torch.arange(6)                # blocks of 4 tokens, 2 query heads a key head
    keys, values = (x.unflatten(2, (6, 4)).mean(3) for x in (k, v))      # NSA learns what makes one key of a block
    complete = attn.Mask.attend(4 * block + 4 <= i + 1)
    compressed, weights = attn.attention(q, keys, values, mask=complete, weights="full")
    # the blocks are chosen per key head, by the weights of its query heads; the own block always
    importance = weights.detach().unflatten(1, (2, 2)).sum(2) + 10 * (block == i // 4)
    chosen = attn.Mask.blocks(importance.topk(2).indices, (1, 4)) & attn.Mask.causal()
    selected = attn.attention(q, k, v, mask=chosen)
    window = attn.attention(q, k, v, mask="causal & window(5, 0)")
    g = torch.sigmoid(gates)
    return g[0] * compressed + g[1] * selected + g[2] * window


def _lightning(q, k, v, q_index, k_index, w):
    index = (w.unsqueeze(3) * torch.relu(q_index @ k_index.mT)).sum(1, keepdim=True)
    lists = index.masked_fill(J > I, -math.inf).topk(6).indices
    return plainly(q, k, v, _gathered(lists, 1).expand(2, 4, 24, 24))


@row(C, "Lightning indexer", "the n keys with the largest sum over h of w[i, h] relu(q'[i, h] . k'[j])",
     "DeepSeek-V3.2, 2512.02556", "attention(q, k1, v1, {.mask = Mask::blocks(chosen, 1) & Mask::causal()}).output",
     _lightning, k=(2, 1, 24, 16), v=(2, 1, 24, 16), q_index=(2, 3, 24, 8), k_index=(2, 1, 24, 8), w=(2, 3, 24))
def lightning_indexer(q, k, v, q_index, k_index, w):
    index = (w.unsqueeze(3) * torch.relu(q_index @ k_index.mT)).sum(1, keepdim=True)
    future = torch.ones(24, 24, dtype=torch.bool).triu(1)
    chosen = index.masked_fill(future, -math.inf).topk(6).indices        # [B, 1, T, 6]: one choice for all heads
    return attn.attention(q, k, v, mask=attn.Mask.blocks(chosen, 1) & attn.Mask.causal())


def _chunks(q, k, v):
    shown, at = torch.zeros(2, 4, 24, 24, dtype=torch.bool), torch.zeros(2, 4, 1, dtype=torch.long)
    for i in range(24):
        stops = (q[:, :, i:i + 1] @ k.mT)[:, :, 0] > 0
        stops &= torch.arange(24) >= at
        found = stops.any(-1, keepdim=True)
        at = torch.where(found, stops.int().argmax(-1, keepdim=True), at)
        shown[:, :, i] = found & (torch.arange(24) <= at) & (torch.arange(24) > at - 3)
    return plainly(q, k, v, shown)


@row(C, "Monotonic chunks", "softmax over the 3 keys up to the first j >= the last one with sigmoid(s) >= 1/2",
     "MoChA as it decodes, Chiu 2017, 1712.05382", "attention(q, k, v, {.mask = Mask::blocks(chosen, 1)}).output",
     _chunks)
def monotonic_chunks(q, k, v):
    at, keys = torch.zeros(2, 4, 1, dtype=torch.long), []
    for i in range(24):
        stops = ((q[:, :, i:i + 1] @ k.mT)[:, :, 0] > 0) & (torch.arange(24) >= at)
        found = stops.any(-1, keepdim=True)
        at = torch.where(found, stops.int().argmax(-1, keepdim=True), at)
        keys.append(torch.where(found, (at + torch.arange(-2, 1)).clamp(min=-1), -1))
    return attn.attention(q, k, v, mask=attn.Mask.blocks(torch.stack(keys, 2), 1))
