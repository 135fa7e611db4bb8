# python/tests/literature_normalizers.py: normalizers of the literature other than softmax.
import math

import attn
import torch

from literature import row, scaled
from plain_normalizers import plain_entmax15, plain_sparsemax

G = "Other normalizers"


@row(G, "Sigmoid attention", "sigmoid(s - log n), n keys", "Ramapuram 2024, 2409.04431",
     "attention(q, k, v, {.normalizer = Normalizer::sigmoid()}).output",
     lambda q, k, v: torch.sigmoid(scaled(q, k) - math.log(k.shape[2])) @ v)
def sigmoid_attention(q, k, v):
    return attn.attention(q, k, v, normalizer="sigmoid")


@row(G, "Sparsemax", "max(s - t, 0), t such that the sum is 1", "Martins and Astudillo 2016, 1602.02068",
     "attention(q, k, v, {.normalizer = Normalizer::sparsemax()}).output",
     lambda q, k, v: plain_sparsemax(scaled(q, k)) @ v)
def sparsemax(q, k, v):
    return attn.attention(q, k, v, normalizer="sparsemax")


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
