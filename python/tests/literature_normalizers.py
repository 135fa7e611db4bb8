# python/tests/literature_normalizers.py: normalizers of the literature beside softmax.
import math

import attn
import torch

from literature import row, scaled

G = "Other normalizers"


@row(G, "Sigmoid attention", "sigmoid(s - log n), n keys", "Ramapuram 2024, 2409.04431",
     "attention(q, k, v, {.normalizer = Normalizer::sigmoid()}).output",
     lambda q, k, v: torch.sigmoid(scaled(q, k) - math.log(k.shape[2])) @ v)
def sigmoid_attention(q, k, v):
    return attn.attention(q, k, v, normalizer="sigmoid")


def plain_sparsemax(s):
    """By sorting, as the paper gives it."""
    z = s.sort(-1, descending=True).values
    n = torch.arange(1, s.shape[-1] + 1, dtype=s.dtype)
    count = (1 + n * z > z.cumsum(-1)).sum(-1, keepdim=True)
    return torch.clamp(s - (z.cumsum(-1).gather(-1, count - 1) - 1) / count, min=0)


@row(G, "Sparsemax", "max(s - t, 0), t such that the sum is 1", "Martins and Astudillo 2016, 1602.02068",
     "attention(q, k, v, {.normalizer = Normalizer::sparsemax()}).output",
     lambda q, k, v: plain_sparsemax(scaled(q, k)) @ v)
def sparsemax(q, k, v):
    return attn.attention(q, k, v, normalizer="sparsemax")


def plain_entmax15(s):
    """By sorting, as the paper gives it."""
    s = (s - s.max(-1, keepdim=True).values.detach()) / 2
    z = s.sort(-1, descending=True).values
    n = torch.arange(1, s.shape[-1] + 1, dtype=s.dtype)
    mean, square = z.cumsum(-1) / n, z.square().cumsum(-1) / n
    t = mean - torch.sqrt(torch.clamp((1 - n * (square - mean.square())) / n, min=1e-12))
    count = (t <= z).sum(-1, keepdim=True)
    return torch.clamp(s - t.gather(-1, count - 1), min=0).square()


@row(G, "Entmax-1.5", "max(s / 2 - t, 0)^2, t such that the sum is 1", "Peters 2019, 1905.05702",
     "attention(q, k, v, {.normalizer = Normalizer::entmax15()}).output",
     lambda q, k, v: plain_entmax15(scaled(q, k)) @ v)
def entmax15(q, k, v):
    return attn.attention(q, k, v, normalizer="entmax15")


@row(G, "ReLU squared", "max(s, 0)^2 / n, n keys", "Primer, So 2021, 2109.08668; Wortsman 2023, 2309.08586",
     "attention(q, k, v, {.normalizer = Normalizer::relu_squared()}).output",
     lambda q, k, v: torch.relu(scaled(q, k)).square() / k.shape[2] @ v)
def relu_squared(q, k, v):
    return attn.attention(q, k, v, normalizer="relu_squared")
