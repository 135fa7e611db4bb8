# python/tests/literature_masks.py: patterns of the literature.
import math

import attn
import torch

from literature import pairs, plainly, row

M = "Patterns"
Y, X = torch.arange(24) // 6, torch.arange(24) % 6  # of the pictures of masks


def seen(rule):
    """A plain form under the mask whose pairs are rule(i, j), or rule(i, j, settings)."""
    return lambda q, k, v, **settings: plainly(q, k, v, rule(*pairs(q), **settings))


def picture(mask, size=12):
    return lambda: (mask if isinstance(mask, attn.Mask) else attn.Mask(mask)).print(size, size)


@row(M, "Causal", "j <= i", "Vaswani 2017, 1706.03762", "attention(q, k, v, {.mask = Mask::causal()}).output",
     seen(lambda i, j: j <= i), picture("causal", 8))
def causal(q, k, v):
    return attn.attention(q, k, v, mask="causal")


@row(M, "Prefix", "j <= i or j < n", "T5, Raffel 2019, 1910.10683",
     "attention(q, k, v, {.mask = Mask::causal() | Mask::prefix(5)}).output", 
     seen(lambda i, j, n=5: (j <= i) | (j < n)), picture("causal | prefix(5)", 8), large={"n": 256})
def prefix(q, k, v, n=5):
    return attn.attention(q, k, v, mask=f"causal | prefix({n})")


@row(M, "Sliding window", "i - 3 <= j <= i", "Mistral, 2310.06825",
     "attention(q, k, v, {.mask = Mask::causal() & Mask::window(3, 0)}).output",
     seen(lambda i, j, left=3: (j <= i) & (j >= i - left)), picture("causal & window(3, 0)", 8), large={"left": 255})
def sliding_window(q, k, v, left=3):
    return attn.attention(q, k, v, mask=f"causal & window({left}, 0)")


@row(M, "Window with sinks", "i - 3 <= j <= i or j < 2 and j <= i", "StreamingLLM, Xiao 2023, 2309.17453",
     "attention(q, k, v, {.mask = Mask::causal() & (Mask::window(3, 0) | Mask::prefix(2))}).output",
     seen(lambda i, j, left=3, first=2: (j <= i) & ((j >= i - left) | (j < first))),
     picture("causal & (window(3, 0) | prefix(2))", 8), large={"left": 255, "first": 4})
def window_with_sinks(q, k, v, left=3, first=2):
    return attn.attention(q, k, v, mask=f"causal & (window({left}, 0) | prefix({first}))")


@row(M, "Dilated window", "|i - j| <= 6 and i = j (mod 3)", "Longformer, Beltagy 2020, 2004.05150",
     "attention(q, k, v, {.mask = Mask::window(6, 6) & Mask::documents(ids)}).output",
     seen(lambda i, j, reach=6, step=3: ((i - j).abs() <= reach) & (i % step == j % step)),
     picture(attn.Mask("window(6, 6)") & attn.Mask.documents(torch.arange(12) % 3)), large={"reach": 256, "step": 4})
def dilated_window(q, k, v, reach=6, step=3):
    of_step = attn.Mask.documents(torch.arange(q.shape[2]) % step)
    return attn.attention(q, k, v, mask=attn.Mask.window(reach, reach) & of_step)


@row(M, "Strided", "j <= i and (j >= i - 3 or i = j (mod 4))", "Sparse Transformer, Child 2019, 1904.10509",
     "attention(q, k, v, {.mask = Mask::causal() & (Mask::window(3, 0) | Mask::documents(ids))}).output",
     seen(lambda i, j, stride=4: (j <= i) & ((j > i - stride) | (i % stride == j % stride))),
     picture(attn.Mask.causal() & (attn.Mask.window(3, 0) | attn.Mask.documents(torch.arange(12) % 4))),
     large={"stride": 32})
def strided(q, k, v, stride=4):
    column = attn.Mask.documents(torch.arange(q.shape[2]) % stride)
    return attn.attention(q, k, v, mask=attn.Mask.causal() & (attn.Mask.window(stride - 1, 0) | column))


@row(M, "Fixed", "j <= i and (i // 4 = j // 4 or j % 4 = 3)", "Sparse Transformer, Child 2019, 1904.10509",
     "attention(q, k, v, {.mask = Mask::causal() & (Mask::documents(ids) | Mask::attend(global))}).output",
     seen(lambda i, j, stride=4: (j <= i) & ((i // stride == j // stride) | (j % stride == stride - 1))),
     picture(attn.Mask.causal() & (attn.Mask.documents(torch.arange(12) // 4)
                                   | attn.Mask.attend((torch.arange(12) % 4 == 3)[None]))), large={"stride": 32})
def fixed(q, k, v, stride=4):
    i = torch.arange(q.shape[2])
    summaries = attn.Mask.attend((i % stride == stride - 1)[None])
    return attn.attention(q, k, v, mask=attn.Mask.causal() & (attn.Mask.documents(i // stride) | summaries))


@row(M, "Packed documents", "id[i] = id[j]", "Krell 2021, 2107.02027",
     "attention(q, k, v, {.mask = Mask::documents(ids)}).output",
     seen(lambda i, j, size=9: i // size == j // size), picture(attn.Mask.documents(torch.arange(12) // 5)),
     large={"size": 256})
def packed_documents(q, k, v, size=9):
    return attn.attention(q, k, v, mask=attn.Mask.documents(torch.arange(q.shape[2]) // size))


def _longformer(size):
    far = torch.arange(size) % 11 == 0
    return attn.Mask.window(2, 2) | attn.Mask.attend(far[None]) | attn.Mask.attend(far[:, None])


@row(M, "Window with global tokens", "|i - j| <= 2 or global[i] or global[j]", "Longformer, Beltagy 2020, 2004.05150",
     "attention(q, k, v, {.mask = Mask::window(2, 2) | Mask::attend(global) | "
     "Mask::attend(global.transpose(0, 1))}).output",
     seen(lambda i, j, reach=2, every=11: ((i - j).abs() <= reach) | (i % every == 0) | (j % every == 0)),
     picture(_longformer(12)), large={"reach": 128, "every": 512})
def global_tokens(q, k, v, reach=2, every=11):
    far = torch.arange(q.shape[2]) % every == 0
    mask = attn.Mask.window(reach, reach) | attn.Mask.attend(far[None]) | attn.Mask.attend(far[:, None])
    return attn.attention(q, k, v, mask=mask)


# --- pictures ---------------------------------------------------------------------------------------------------------

def _window_of(i, width, size, shift):
    return (i // width + shift[0]) // size[0], (i % width + shift[1]) // size[1]


def _windows(i, j, width=6, size=(2, 3), shift=(1, 1)):
    (y, x), (there_y, there_x) = (_window_of(n, width, size, shift) for n in (i, j))
    return (y == there_y) & (x == there_x)


@row(M, "Windows of a picture", "window(i) = window(j), shifted by s", "Swin, Liu 2021, 2103.14030",
     "attention(q, k, v, {.mask = Mask::documents(ids)}).output", seen(_windows),
     picture(attn.Mask.documents((Y + 1) // 2 * 3 + (X + 1) // 3), 24),
     large={"width": 32, "size": (8, 8), "shift": (4, 4)})
def windows(q, k, v, width=6, size=(2, 3), shift=(1, 1)):
    y, x = torch.arange(q.shape[2]) // width, torch.arange(q.shape[2]) % width
    window = (y + shift[0]) // size[0] * width + (x + shift[1]) // size[1]   # a number of its own for each window
    return attn.attention(q, k, v, mask=attn.Mask.documents(window))


def _near(n, other, length, size):
    first = (n - size // 2).clamp(0, length - size)
    return (other >= first) & (other < first + size)


def _neighbourhood(i, j, grid=(-1, 6), size=(3, 3)):
    shown, step = torch.ones(i.shape[0], j.shape[0], dtype=torch.bool), 1
    for length, window in zip(reversed(grid), reversed(size)):
        length = i.shape[0] // step if length < 0 else length
        shown &= _near(i // step % length, j // step % length, length, window)
        step *= length
    return shown


@row(M, "Neighbourhood of a pixel", "j in the 3 x 3 pixels around i, moved inside at the border",
     "NATTEN, Hassani 2022, 2204.07143", "attention(q, k, v, {.mask = Mask::blocks(chosen, 1)}).output",
     seen(_neighbourhood), picture(attn.Mask.attend(_neighbourhood(torch.arange(24)[:, None], torch.arange(24))), 24),
     large={"grid": (-1, 32), "size": (7, 7)})
def neighbourhood(q, k, v, grid=(-1, 6), size=(3, 3)):
    # a grid of any number of dims, the last one the fastest; -1: as many as there are tokens for
    grid = torch.empty(q.shape[2]).view(grid).shape
    near = torch.zeros(1, 1, dtype=torch.long)                          # of each place its neighbours, dim by dim
    for length, window in zip(grid, size):
        first = (torch.arange(length) - window // 2).clamp(0, length - window)
        along = first[:, None] + torch.arange(window)
        near = (near[:, None, :, None] * length + along[None, :, None]).flatten(2).flatten(0, 1)
    return attn.attention(q, k, v, mask=attn.Mask.blocks(near[None, None], 1))


def _axial(q, k, v, width=6):
    def along(x, dim):
        return x.unflatten(2, (-1, width)).transpose(dim, 3)

    heads, height = q.shape[1], q.shape[2] // width
    rows = plainly(*(along(x, 3).flatten(1, 2) for x in (q, k, v))).unflatten(1, (heads, height)).flatten(2, 3)
    columns = plainly(*(along(x, 2).flatten(1, 2) for x in (q, k, rows))).unflatten(1, (heads, width))
    return columns.transpose(2, 3).flatten(2, 3)


@row(M, "Axial", "along the rows of a picture, then along its columns", "Ho 2019, 1912.12180",
     "attention(q, k, attention(q, k, v, {.mask = Mask::documents(y)}).output, "
     "{.mask = Mask::documents(x)}).output",
     _axial, picture(attn.Mask.documents(Y) | attn.Mask.documents(X), 24), large={"width": 32})
def axial(q, k, v, width=6):
    q, k, v = (x.unflatten(2, (-1, width)) for x in (q, k, v))               # [B, H, height, width, D]
    rows = attn.attention(*(x.flatten(1, 2) for x in (q, k, v))).view(v.shape)   # each row of pixels as a head
    columns = attn.attention(*(x.transpose(2, 3).flatten(1, 2) for x in (q, k, rows)))
    return columns.view(v.transpose(2, 3).shape).transpose(2, 3).flatten(2, 3)
