# python/tests/literature_scores.py: scores, positions and normalisers of the literature.
import math

import attn
import torch
import torch.nn.functional as F

from literature import pairs, plainly, row, scaled, weights_of

S, P, N = "Scores", "Positions in the score", "Around the softmax"


@row(S, "Scaled dot product", "softmax(q k^T / sqrt(D)) v", "Vaswani 2017, 1706.03762",
     "attention(q, k, v).output", plainly)
def scaled_dot_product(q, k, v):
    return attn.attention(q, k, v)


@row(S, "Additive", "s = w . tanh(Wq q + Wk k)", "Bahdanau 2014, 1409.0473",
     "attention(q, k, v, {.score = Score::additive(a_q, a_k, a)}).output",
     lambda q, k, v, w_q, w_k, w: weights_of(
         torch.tanh((q @ w_q.T).unsqueeze(3) + (k @ w_k.T).unsqueeze(2)) @ w) @ v,
     w_q=lambda z: (z.D // 2, z.D), w_k=lambda z: (z.D // 2, z.D), w=lambda z: (z.D // 2,))
def additive(q, k, v, w_q, w_k, w):
    return attn.attention(q, k, v, score=attn.Score.additive(w_q, w_k, w))


@row(S, "Dot", "s = q . k", "Luong 2015, 1508.04025", "attention(q, k, v, {.score = Score::dot()}).output",
     lambda q, k, v: weights_of(q @ k.mT) @ v)
def dot(q, k, v):
    return attn.attention(q, k, v, score="dot")


@row(S, "General", "s = q^T W k", "Luong 2015, 1508.04025", "attention(q, k, v, {.score = Score::general(w)}).output",
     lambda q, k, v, w: weights_of(q @ w @ k.mT) @ v, w=lambda z: (z.D, z.D))
def general(q, k, v, w):
    return attn.attention(q, k, v, score=attn.Score.general(w))


@row(S, "Cosine", "s = tau q . k / (|q| |k|)", "Swin v2, Liu 2021, 2111.09883",
     "attention(div(q, sqrt(mul(q, q).sum({-1}, true))), div(k, sqrt(mul(k, k).sum({-1}, true))), v, "
     "{.scale = 10}).output",
     lambda q, k, v: weights_of(10 * (q / q.norm(dim=-1, keepdim=True)) @ (k / k.norm(dim=-1, keepdim=True)).mT) @ v)
def cosine(q, k, v):
    return attn.attention(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, scale=10.0)


@row(S, "Multi-query", "all query heads read one key head", "Shazeer 2019, 1911.02150",
     "attention(q, k1, v1).output", plainly, k=lambda z: (z.B, 1, z.T, z.D), v=lambda z: (z.B, 1, z.T, z.D))
def multi_query(q, k, v):
    return attn.attention(q, k, v)


@row(S, "Grouped queries", "query head h reads key head h // (Hq / Hk)", "Ainslie 2023, 2305.13245",
     "attention(q, k2, v2).output", plainly, k=lambda z: (z.B, z.H // 2, z.T, z.D),
     v=lambda z: (z.B, z.H // 2, z.T, z.D))
def grouped_queries(q, k, v):
    return attn.attention(q, k, v)


# --- positions --------------------------------------------------------------------------------------------------------


def _alibi(q, k, v, slopes):
    i, j = pairs(q)
    return weights_of(scaled(q, k) + slopes[:, None, None] * (j - i), j <= i) @ v


@row(P, "ALiBi", "s + slope[h] (j - i)", "Press 2021, 2108.12409",
     "attention(q, k, v, {.mask = Mask::causal(), .bias = Bias::alibi(slopes)}).output",
     _alibi, slopes=lambda z: (z.H,))
def alibi(q, k, v, slopes):
    return attn.attention(q, k, v, mask="causal", bias=attn.Bias.alibi(slopes))


def _t5(q, k, v, table):
    i, j = pairs(q)
    distance = (j - i).abs()
    far = 8 + (torch.log(distance.clamp(min=1) / 8) / math.log(128 / 8) * 8).long()
    bucket = torch.where(distance < 8, distance, far.clamp(max=15)) + 16 * (j > i)
    return weights_of(q @ k.mT + table[bucket].permute(2, 0, 1)) @ v


@row(P, "Relative bias by buckets", "s + table[bucket(j - i), h]", "T5, Raffel 2019, 1910.10683",
     "attention(q, k, v, {.score = Score::dot(), .bias = Bias::relative(table)}).output", _t5,
     table=lambda z: (32, z.H))
def relative_buckets(q, k, v, table):
    return attn.attention(q, k, v, score="dot", bias=attn.Bias.relative(table))


def _by_distance(q, k, v, bias):
    i, j = pairs(q)
    return weights_of(scaled(q, k) + bias[:, j - i + q.shape[2] - 1]) @ v


@row(P, "Learned bias by distance", "s + bias[h, j - i]", "Swin, Liu 2021, 2103.14030",
     "attention(q, k, v, {.score_mod = [&](auto s, auto, auto h, auto i, auto j) "
     "{ return s + bias(h, j - i + 23); }}).output",
     _by_distance, bias=lambda z: (z.H, 2 * z.T - 1))
def learned_distance(q, k, v, bias):
    table, last = attn.ScoreTable(bias), k.shape[2] - 1
    return attn.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + table[h, j - i + last])


def _forgetting(q, k, v, f):
    c = F.logsigmoid(f).cumsum(-1)
    i, j = pairs(q)
    return weights_of(scaled(q, k) + c.unsqueeze(3) - c.unsqueeze(2), j <= i) @ v


@row(P, "Forgetting", "s + c[i] - c[j], c = cumsum(log sigmoid(f))", "Forgetting Transformer, Lin 2025, 2503.02130",
     "attention(q, k, v, {.mask = Mask::causal(), .score_mod = [&](auto s, auto b, auto h, auto i, auto j) "
     "{ return s + c(b, h, i) - c(b, h, j); }}).output",
     _forgetting, f=lambda z: (z.B, z.H, z.T))
def forgetting(q, k, v, f):
    c = attn.ScoreTable(F.logsigmoid(f).cumsum(-1))
    return attn.attention(q, k, v, mask="causal", score_mod=lambda s, b, h, i, j: s + c[b, h, i] - c[b, h, j])


# --- around the softmax -----------------------------------------------------------------------------------------------


@row(N, "Softcap", "c tanh(s / c)", "Gemma 2, 2408.00118", "attention(q, k, v, {.softcap = 20}).output",
     lambda q, k, v: weights_of(20 * torch.tanh(scaled(q, k) / 20)) @ v)
def softcap(q, k, v):
    return attn.attention(q, k, v, softcap=20.0)


def _with_sink(q, k, v, sinks):
    scores = torch.cat((sinks[:, None, None].expand(*q.shape[:3], 1), scaled(q, k)), -1)
    return scores.softmax(-1)[..., 1:] @ v


@row(N, "Softmax-1", "exp(s) / (1 + sum exp(s))", "Miller 2023, evanmiller.org/attention-is-off-by-one.html",
     "attention(q, k, v, {.normalizer = Normalizer::softmax1()}).output",
     lambda q, k, v: _with_sink(q, k, v, q.new_zeros(q.shape[1])))
def softmax_1(q, k, v):
    return attn.attention(q, k, v, normalizer="softmax1")


@row(N, "Learned sink", "exp(s) / (exp(sink[h]) + sum exp(s))", "gpt-oss, 2508.10925",
     "attention(q, k, v, {.sinks = logits}).output", _with_sink, sinks=lambda z: (z.H,))
def learned_sink(q, k, v, sinks):
    return attn.attention(q, k, v, sinks=sinks)


def _scalable(q, k, v, a):
    i, j = pairs(q)
    return weights_of(a[:, None, None] * torch.log(i + 1.0) * scaled(q, k), j <= i) @ v


@row(N, "Scalable softmax", "softmax(a log(n) s), n keys are seen", "Nakanishi 2025, 2501.19399",
     "attention(mul(q, log_n), k, v, {.mask = Mask::causal()}).output", _scalable, a=lambda z: (z.H,))
def scalable_softmax(q, k, v, a):
    n = torch.arange(1, q.shape[2] + 1)[:, None]
    return attn.attention(q * (a[:, None, None] * n.log()), k, v, mask="causal")


def _local_p(q, k, v, w, u, reach=6):
    keys = k.shape[2]
    from_centre = torch.arange(keys) - keys * torch.sigmoid(torch.tanh(q @ w) @ u).unsqueeze(-1)
    near = from_centre.abs() <= reach
    return (weights_of(scaled(q, k), near) * torch.exp(from_centre.square() / (-reach * reach / 2))) @ v


@row(N, "Local-p", "softmax(s, |j - p| <= D) exp(-(j - p)^2 / (2 (D/2)^2)), p = T sigmoid(u . tanh(W q))",
     "Luong 2015, 1508.04025",
     "attention(q, k, v, {.weight_mod = [&](auto w, auto b, auto h, auto i, auto j) "
     "{ return w * exp((j - c(b, h, i)) * (c(b, h, i) - j) / 18.0); }}).output",
     _local_p, large={"reach": 64}, w=lambda z: (z.D, z.D // 2), u=lambda z: (z.D // 2,))
def local_p(q, k, v, w, u, reach=6):
    p = attn.ScoreTable(k.shape[2] * torch.sigmoid(torch.tanh(q @ w) @ u))

    def near(s, b, h, i, j):
        return attn.where(abs(j - p[b, h, i]) <= float(reach), s, -math.inf)

    def gaussian(w, b, h, i, j):
        return w * attn.exp((j - p[b, h, i]) * (p[b, h, i] - j) / (reach * reach / 2))

    return attn.attention(q, k, v, score_mod=near, weight_mod=gaussian)


@row(N, "Differential", "(softmax(s1) - lambda softmax(s2)) v", "Ye 2024, 2410.05258",
     "sub(attention(q, k, v).output, mul(attention(q_b, k_b, v).output, 0.8))",
     lambda q, k, q2, k2, v, factor: (weights_of(scaled(q, k)) - factor * weights_of(scaled(q2, k2))) @ v,
     factor=lambda z: (z.H, 1, 1))
def differential(q, k, q2, k2, v, factor):
    return attn.attention(q, k, v) - factor * attn.attention(q2, k2, v)


@row(N, "Gate on the output", "sigmoid(g) * o", "Qiu 2025, 2505.06708",
     "mul(attention(q, k, v).output, sigmoid(gate))", lambda q, k, v, g: torch.sigmoid(g) * plainly(q, k, v))
def gate(q, k, v, g):
    return torch.sigmoid(g) * attn.attention(q, k, v)
