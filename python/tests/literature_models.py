# python/tests/literature_models.py: how models of the literature call attention.
import attn
import torch
import torch.nn.functional as F

from literature import plainly, row, scaled, weights_of

A = "How models call it"


def _lengths(k):
    return [k.shape[2] - 7 * b for b in range(k.shape[0])]


@row(A, "Encoder and decoder", "q of the decoder, k and v of the encoder, whose items have lengths",
     "Bahdanau 2014, 1409.0473", "attention(q, k, v, {.key_lengths = tensor<std::int64_t>({24, 17})}).output",
     lambda q, k, v: plainly(q, k, v, torch.arange(k.shape[2]) < torch.tensor(_lengths(k))[:, None, None, None]))
def encoder_decoder(q, k, v):
    lengths = [k.shape[2] - 7 * b for b in range(k.shape[0])]
    return attn.attention(q, k, v, key_lengths=lengths)


def _location(q, k, v, w_q, w_k, w_f, w, before, kernel):
    f = F.conv1d(before.unsqueeze(1), kernel, padding=1).mT.unsqueeze(1)
    scores = torch.tanh((q @ w_q.T).unsqueeze(3) + (k @ w_k.T + f @ w_f.T).unsqueeze(2)) @ w
    return torch.cat((weights_of(scores) @ v, weights_of(scores)), -1)


@row(A, "Location-sensitive", "s = w . tanh(Wq q + Wk k + Wf f), f = conv(the weights of the last step)",
     "Chorowski 2015, 1506.07503",
     "attention(one, k1, v1, {.score = Score::additive(a_q, a_k, a), .weights = Weights::full}).output",
     _location, q=lambda z: (z.B, 1, 1, z.D), k=lambda z: (z.B, 1, z.T, z.D), v=lambda z: (z.B, 1, z.T, z.D),
     w_q=lambda z: (z.D // 2, z.D), w_k=lambda z: (z.D // 2, z.D), w_f=lambda z: (z.D // 2, 4),
     w=lambda z: (z.D // 2,), before=lambda z: (z.B, z.T), kernel=(4, 1, 3))
def location_sensitive(q, k, v, w_q, w_k, w_f, w, before, kernel):
    f = F.conv1d(before.unsqueeze(1), kernel, padding=1).mT.unsqueeze(1)
    score = attn.Score.additive(w_q, torch.cat((w_k, w_f), 1), w)
    y, weights = attn.attention(q, torch.cat((k, f), 3), v, score=score, weights="full")   # weights: the next `before`
    return torch.cat((y, weights), -1)


@row(A, "Pointer network", "p(key j) = softmax_j(w . tanh(Wq q + Wk k))", "Vinyals 2015, 1506.03134",
     "attention(q, k, k, {.score = Score::additive(a_q, a_k, a), .weights = Weights::full}).weights",
     lambda q, k, w_q, w_k, w: weights_of(torch.tanh((q @ w_q.T).unsqueeze(3) + (k @ w_k.T).unsqueeze(2)) @ w),
     w_q=lambda z: (z.D // 2, z.D), w_k=lambda z: (z.D // 2, z.D), w=lambda z: (z.D // 2,))
def pointer_network(q, k, w_q, w_k, w):
    _, p = attn.attention(q, k, k, score=attn.Score.additive(w_q, w_k, w), weights="full")
    return p


def _memory(u, m, c):
    for _ in range(3):
        u = u + weights_of(u @ m.mT) @ c
    return u


@row(A, "Memory network", "u + softmax(u . m) c, three times", "Sukhbaatar 2015, 1503.08895",
     "add(one, attention(one, k1, v1, {.score = Score::dot()}).output)", _memory,
     u=lambda z: (z.B, 1, 1, z.D), m=lambda z: (z.B, 1, z.T, z.D), c=lambda z: (z.B, 1, z.T, z.D))
def memory_network(u, m, c):
    for _ in range(3):
        u = u + attn.attention(u, m, c, score="dot")
    return u


def _hopfield(x, memories):
    for _ in range(2):
        x = weights_of(2 * x @ memories.mT) @ memories
    return x


@row(A, "Hopfield network", "x <- softmax(beta x . m) m", "Ramsauer 2020, 2008.02217",
     "attention(q, k, k, {.scale = 2}).output", _hopfield)
def hopfield(x, memories):
    for _ in range(2):
        x = attn.attention(x, memories, memories, scale=2.0)
    return x


@row(A, "Perceiver", "a few learned rows attend to all tokens, then to each other", "Jaegle 2021, 2103.03206",
     "attention(few, k, v).output", lambda latents, k, v: plainly(*[plainly(latents, k, v)] * 3),
     latents=lambda z: (z.B, z.H, z.T // 4, z.D))
def perceiver(latents, k, v):
    x = attn.attention(latents, k, v)
    return attn.attention(x, x, x)


@row(A, "Induced points", "attention(x, h, h), h = attention(points, x, x)", "Set Transformer, Lee 2019, 1810.00825",
     "attention(q, few, attention(few, q, q).output).output",
     lambda points, x: plainly(x, *[plainly(points, x, x)] * 2), points=lambda z: (z.B, z.H, z.T // 4, z.D))
def induced_points(points, x):
    h = attn.attention(points, x, x)
    return attn.attention(x, h, h)


@row(A, "Low rank", "softmax(q (E k)^T / sqrt(D)) F v", "Linformer, Wang 2020, 2006.04768",
     "attention(q, matmul(e, k), matmul(e, v)).output", lambda q, k, v, e, f: plainly(q, e @ k, f @ v),
     e=lambda z: (z.T // 3, z.T), f=lambda z: (z.T // 3, z.T))
def low_rank(q, k, v, e, f):
    return attn.attention(q, e @ k, f @ v)


@row(A, "Keys and values of another layer", "each layer has its own q; k and v are those of one layer",
     "YOCO, Sun 2024, 2405.05254; CLA, Brandon 2024, 2405.12981", "attention(attention(q, k, v).output, k, v).output",
     lambda q, k, v, w: plainly(plainly(q, k, v) @ w, k, v), w=lambda z: (z.D, z.D))
def other_layer(q, k, v, w):
    x = attn.attention(q, k, v)
    return attn.attention(x @ w, k, v)
