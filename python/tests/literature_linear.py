# python/tests/literature_linear.py: mechanisms whose work does not grow with the square of the tokens.
import math

import attn
import torch
import torch.nn.functional as F

from literature import pairs, plainly, row, scaled

L = "Without all pairs"


def _by_features(q, k, v):
    i, j = pairs(q)
    weights = (q @ k.mT) * (j <= i)
    return weights @ v / weights.sum(-1, keepdim=True)


@row(L, "Linear", "f(q) . f(k) in place of exp(q . k), f = elu + 1, j <= i", "Katharopoulos 2020, 2006.16236",
     "linear_attention(exp(q), exp(k), v).output", lambda q, k, v: _by_features(F.elu(q) + 1, F.elu(k) + 1, v))
def linear(q, k, v):
    v = torch.cat((v, torch.ones_like(v[..., :1])), 3)          # its last column becomes the sum of the weights
    y, _ = attn.linear_attention(F.elu(q) + 1, F.elu(k) + 1, v, scale=1.0)
    return y[..., :-1] / y[..., -1:]


def _random_features(q, k, v, features=32):
    def f(x):
        w = torch.randn(x.shape[3], features, generator=torch.Generator().manual_seed(3)).to(x.dtype)
        return torch.exp(x @ w / x.shape[3] ** 0.25 - x.square().sum(-1, keepdim=True) / (2 * math.sqrt(x.shape[3])))

    return _by_features(f(q), f(k), v)


@row(L, "Random features", "f(q) . f(k) in place of exp(q . k / sqrt(D)), f(x) = exp(W x - |x|^2 / 2), j <= i",
     "Performer, Choromanski 2020, 2009.14794", "linear_attention(exp(q), exp(k), v).output", _random_features,
     large={"features": 128})
def random_features(q, k, v, features=32):
    w = torch.randn(q.shape[3], features, generator=torch.Generator().manual_seed(3))
    q, k = (x / q.shape[3] ** 0.25 for x in (q, k))
    q, k = (torch.exp(x @ w - x.square().sum(-1, keepdim=True) / 2) for x in (q, k))
    y, _ = attn.linear_attention(q, k, torch.cat((v, torch.ones_like(v[..., :1])), 3), scale=1.0)
    return y[..., :-1] / y[..., -1:]


def _inverse(a):
    inverse = a.mT / (a.sum(-2).amax(-1) * a.sum(-1).amax(-1))[..., None, None]
    one = torch.eye(a.shape[-1], dtype=a.dtype)
    for _ in range(6):
        b = a @ inverse
        inverse = inverse @ (13 * one - b @ (15 * one - b @ (7 * one - b))) / 4
    return inverse


def _nystrom(q, k, v, points=6):
    few_q, few_k = (x.unflatten(2, (points, -1)).mean(3) for x in (q, k))
    first, middle, last = (scaled(a, b).softmax(-1) for a, b in ((q, few_k), (few_q, few_k), (few_q, k)))
    return first @ (_inverse(middle) @ (last @ v))


@row(L, "Nyström", "softmax(q k'^T) softmax(q' k'^T)^+ softmax(q' k^T) v, q' and k' means of q and k",
     "Nyströmformer, Xiong 2021, 2102.03902", "attention(q, few, attention(few, k, v).output).output", _nystrom,
     large={"points": 64})
def nystrom(q, k, v, points=6):
    few_q, few_k = (x.unflatten(2, (points, -1)).mean(3) for x in (q, k))
    _, a = attn.attention(few_q, few_k, few_k, weights="full")
    one, inverse = torch.eye(points), a.mT / (a.sum(-2).amax(-1) * a.sum(-1).amax(-1))[..., None, None]
    for _ in range(6):                                          # towards the pseudoinverse of a
        b = a @ inverse
        inverse = inverse @ (13 * one - b @ (15 * one - b @ (7 * one - b))) / 4
    return attn.attention(q, few_k, inverse @ attn.attention(few_q, k, v))


def _sorted(function):
    def of_blocks(q, k, v, size=4):
        q, k, v = (x.unflatten(2, (-1, size)) for x in (q, k, v))
        order = q.mean(3) @ k.mean(3).mT
        for _ in range(5):
            order = order - order.logsumexp(-1, keepdim=True)
            order = order - order.logsumexp(-2, keepdim=True)
        sorted_k, sorted_v = (torch.einsum("bhmn,bhnsd->bhmsd", order.exp(), x) for x in (k, v))
        k, v = torch.cat((k, sorted_k), 3), torch.cat((v, sorted_v), 3)
        return function(*(x.flatten(1, 2) for x in (q, k, v))).view(q.shape).flatten(2, 3)

    return of_blocks


@row(L, "Sorted blocks", "each block of rows sees its own keys and block m of P k, P = Sinkhorn(mean(q) . mean(k))",
     "Sparse Sinkhorn attention, Tay 2020, 2002.11296", "attention(q, k, v).output", _sorted(plainly),
     large={"size": 64})
def sorted_blocks(q, k, v, size=4):
    q, k, v = (x.unflatten(2, (-1, size)) for x in (q, k, v))              # [B, H, blocks, size, D]
    order = q.mean(3) @ k.mean(3).mT
    for _ in range(5):
        order = order.log_softmax(-1).log_softmax(-2)
    k, v = (torch.cat((x, (order.exp() @ x.flatten(3)).view(x.shape)), 3).flatten(1, 2) for x in (k, v))
    return attn.attention(q.flatten(1, 2), k, v).view(q.shape).flatten(2, 3)
