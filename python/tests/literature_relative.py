# python/tests/literature_relative.py: scores of the literature with a second product, of the query or the key with a
# table of relative positions.
import math

import attn
import torch

from literature import pairs, row, scaled, weights_of

P = "Positions in the score"


def _by_distance(q, table, rows):
    """q . table[rows[i, j]] for all pairs; table [H, N, D] or [N, D]."""
    products = q @ (table if table.dim() == 3 else table.expand(q.shape[1], -1, -1)).mT
    return products.gather(3, rows.expand(*q.shape[:2], -1, -1))


TABLE = {"r": lambda z: (z.H, 2 * z.T - 1, z.D), "u": lambda z: (z.H, 1, z.D), "w": lambda z: (z.H, 1, z.D)}


def _shaw(q, k, v, r):
    (i, j), most = pairs(q), r.shape[0] // 2
    return weights_of(scaled(q, k) + _by_distance(q, r, (j - i).clamp(-most, most) + most) / q.shape[3] ** 0.5) @ v


@row(P, "Relative keys", "s = q . (k + R[clip(j - i, 4)]) / sqrt(D)", "Shaw 2018, 1803.02155",
     "attention(q, k, v, {.bias = Bias::relative_product(r_near, RelativeIndex::distance(4, 4))}).output",
     _shaw, r=lambda z: (9, z.D))
def relative_keys(q, k, v, r):
    most = r.shape[0] // 2
    return attn.attention(q, k, v, bias=attn.Bias.relative_product(r, attn.RelativeIndex.distance(most, most)))


def _with_biases(q, k, v, r, u, w, causal=False):
    i, j = pairs(q)
    far = _by_distance(q + w, r, j - i + q.shape[2] - 1) / q.shape[3] ** 0.5
    return weights_of(scaled(q + u, k) + far, j <= i if causal else None) @ v


@row(P, "Content and position biases", "s = ((q + u) . k + (q + w) . R[i - j]) / sqrt(D), j <= i",
     "Transformer-XL, Dai 2019, 1901.02860",
     "attention(add(q, u), k, v, {.mask = Mask::causal(), .bias = Bias::relative_product(r_far, "
     "RelativeIndex::distance(23, 23), {.operand = add(q, u_r)})}).output",
     lambda q, k, v, r, u, w: _with_biases(q, k, v, r, u, w, True), **TABLE)
def content_and_position_biases(q, k, v, r, u, w):
    far = q.shape[2] - 1
    r = attn.Bias.relative_product(r, attn.RelativeIndex.distance(far, far), operand=q + w)
    return attn.attention(q + u, k, v, mask="causal", bias=r)


@row(P, "Both directions", "s = ((q + u) . k + (q + w) . R[i - j]) / sqrt(D)", "Conformer, Gulati 2020, 2005.08100",
     "attention(add(q, u), k, v, {.bias = Bias::relative_product(r_far, RelativeIndex::distance(23, 23), "
     "{.operand = add(q, u_r)})}).output",
     _with_biases, **TABLE)
def both_directions(q, k, v, r, u, w):
    far = q.shape[2] - 1                             # no shift, no T x 2T matrix
    r = attn.Bias.relative_product(r, attn.RelativeIndex.distance(far, far), operand=q + w)
    return attn.attention(q + u, k, v, bias=r)


def _bucket(distance, buckets, most):
    middle = buckets // 2
    far = torch.ceil(torch.log(distance.abs().clamp(middle) / middle) / math.log((most - 1) / middle) * (middle - 1))
    bucket = torch.where(distance.abs() <= middle, distance, ((far + middle) * distance.sign()).long())
    return (bucket + buckets).clamp(0, 2 * buckets - 1)


def _disentangled(q, k, v, r_k, r_q):
    i, j = pairs(q)
    rows = _bucket(i - j, 8, 20)
    scores = q @ k.mT + _by_distance(q, r_k, rows) + _by_distance(k, r_q, rows.mT).mT
    return weights_of(scores / math.sqrt(3 * q.shape[3])) @ v


@row(P, "Disentangled", "s = (q[i] . k[j] + q[i] . Rk[bucket(i - j)] + k[j] . Rq[bucket(i - j)]) / sqrt(3 D)",
     "DeBERTa, He 2020, 2006.03654",
     "attention(q, k, v, {.scale = 0.144, .bias = Bias::relative_product(r_k, RelativeIndex::log_buckets(8, 20)) + "
     "Bias::relative_product(r_q, RelativeIndex::log_buckets(8, 20), {.of_keys = true})}).output",
     _disentangled, r_k=lambda z: (z.H, 16, z.D), r_q=lambda z: (z.H, 16, z.D))
def disentangled(q, k, v, r_k, r_q):
    near = attn.RelativeIndex.log_buckets(8, 20)
    bias = attn.Bias.relative_product(r_k, near) + attn.Bias.relative_product(r_q, near, of_keys=True)
    return attn.attention(q, k, v, bias=bias, scale=1 / math.sqrt(3 * q.shape[3]))


def _width(z):
    """Of a picture of z.T cells."""
    return 32 if z.T % 32 == 0 else 6


def _decomposed(q, k, v, r_y, r_x):
    i, j = pairs(q)
    height, width = r_y.shape[0] // 2 + 1, r_x.shape[0] // 2 + 1
    return weights_of(scaled(q, k) + _by_distance(q, r_y, i // width - j // width + height - 1)
                      + _by_distance(q, r_x, i % width - j % width + width - 1)) @ v


@row(P, "Rows and columns of a picture", "s = q . k / sqrt(D) + q . Ry[y[i] - y[j]] + q . Rx[x[i] - x[j]]",
     "MViTv2, Li 2021, 2112.01526; SAM, Kirillov 2023, 2304.02643",
     "attention(q, k, v, {.bias = Bias::relative_product(r_y, RelativeIndex::picture_rows(4, 6), {.scale = 1}) + "
     "Bias::relative_product(r_x, RelativeIndex::picture_columns(6), {.scale = 1})}).output",
     _decomposed, r_y=lambda z: (2 * (z.T // _width(z)) - 1, z.D), r_x=lambda z: (2 * _width(z) - 1, z.D))
def rows_and_columns(q, k, v, r_y, r_x):
    height, width = r_y.shape[0] // 2 + 1, r_x.shape[0] // 2 + 1
    bias = (attn.Bias.relative_product(r_y, attn.RelativeIndex.picture_rows(height, width), scale=1)
            + attn.Bias.relative_product(r_x, attn.RelativeIndex.picture_columns(width), scale=1))
    return attn.attention(q, k, v, bias=bias)
