# python/tests/flash_formula.py: attention by its formula in torch operations, for one sequence of the layout that
# FlashAttention has, and random calls that are compared with it.
import numpy as np
import torch
from error_rule import assert_as_close_as

HALVES = (torch.float16, torch.bfloat16)


class _Fused(torch.autograd.Function):
    """Output of scores and values as fused kernels have it: its gradient is taken from the output. In 16 bits weights,
    output and the gradient of the scores are rounded."""

    @staticmethod
    def forward(ctx, scores, weights, v, factor, dtype):
        output = ((weights * factor) @ v).to(dtype).to(v.dtype)
        ctx.dtype, ctx.factor = dtype, factor
        ctx.save_for_backward(weights, v, output)
        return output

    @staticmethod
    def backward(ctx, grad):
        weights, v, output = ctx.saved_tensors
        pulled = weights * (grad @ v.transpose(1, 2) * ctx.factor - (grad * output).sum(2, keepdim=True))
        return pulled.to(ctx.dtype).to(v.dtype), None, (weights * ctx.factor).transpose(1, 2) @ grad, None, None


def formula(q, k, v, *, scale=None, causal=False, window=(-1, -1), softcap=0.0, slopes=None, kept=None, dropout_p=0.0,
            fused=None):
    """q [Tq, Hq, D], k [Tk, Hk, D], v [Tk, Hk, Dv] -> output [Tq, Hq, Dv], logsumexp [Hq, Tq]. kept: which weights
    dropout keeps, [Hq, Tq, Tk]. fused: the dtype of a call that is computed as fused kernels do."""
    rows, heads, keys = q.shape[0], q.shape[1], k.shape[0]
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(heads // x.shape[0], 0) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    # float64 has no finer truth: another order of the same sums tells how far two orders are apart
    if fused is torch.float64:
        scores = (q.flip(-1) * scale) @ k.flip(-1).transpose(1, 2)
    else:
        scores = q @ k.transpose(1, 2) * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(rows)[:, None] + keys - rows - torch.arange(keys)
    if slopes is not None:
        scores = scores - slopes.to(scores.dtype)[:, None, None] * distance.abs()
    left, right = window
    seen = torch.ones(rows, keys, dtype=torch.bool)
    if causal:
        seen &= distance >= 0
    if left >= 0:
        seen &= distance <= left
    if right >= 0:
        seen &= distance >= -right
    some = seen.any(1)
    scores = scores.masked_fill(~seen, -torch.inf)
    greatest = scores.detach().amax(2).masked_fill(~some, 0) if keys else scores.new_zeros(heads, rows)
    powers = torch.exp(scores - greatest[:, :, None])
    if fused in HALVES:  # before their sum, so that the weights of a row add up to 1
        powers = powers.detach().to(fused).to(powers.dtype)
    sums = powers.sum(2)
    total = (greatest + sums.log()).masked_fill(~some, -torch.inf)
    weights = powers / sums.masked_fill(~some, 1)[:, :, None]
    factor = 1 if kept is None else kept.to(scores.dtype) / (1 - dropout_p)
    if fused is None:
        output = (weights * factor) @ v
    else:
        output = _Fused.apply(scores, weights.detach(), v, factor, fused)
    return output.transpose(0, 1), total


def usual_of(dtype):
    """The formula's options and the dtype in which a usual implementation computes."""
    return torch.float64 if dtype is torch.float64 else torch.float32, {"fused": dtype}


class Comparison:
    """Ours, the usual result and the truth of the tensors of a call; of many calls, as one tensor each."""

    def __init__(self):
        self.found = {}

    def add(self, name, ours, usual, truth):
        self.found.setdefault(name, []).append([x.detach().flatten() for x in (ours, usual.to(ours.dtype), truth)])

    def check(self, label, most=1):
        for name, parts in self.found.items():
            assert_as_close_as(*(torch.cat(x) for x in zip(*parts)), f"{label} {name}",
                               1 if name in ("output", "logsumexp") else most)


def check_calls(run, draw, seed, count, misses):
    """The error rule for each call; if one does not satisfy it, for 256 calls that differ in their numbers alone, as
    one tensor. run(case, generator, comparison) makes a call of draw(random). misses: {number: how many times the bound
    its gradients may have}."""
    wrong = []
    for number in range(count):
        case = draw(np.random.default_rng([seed, number]))
        comparison = Comparison()
        run(case, torch.Generator().manual_seed(number), comparison)
        try:
            comparison.check("")
            continue
        except AssertionError as error:
            if "from the truth" not in str(error):
                raise
        many = Comparison()
        for n in range(256):
            run(case, torch.Generator().manual_seed(1000 * number + n + 1), many)
        try:
            many.check(f"call {number} {case}:", misses.get(number, 1))
        except AssertionError as error:
            wrong.append(str(error))
    print(f"{count} calls")
    assert not wrong, "\n".join(wrong)


def draw_options(random, name_scale="softmax_scale"):
    """Options that all the functions take, as a dict of the formula's and one of the call's."""
    scale = random.choice([None, None, 0.3, 1.0])
    window = tuple(int(random.choice([-1, -1, 0, 1, 3, 9])) for _ in range(2))
    return {"scale": scale, "window": window}, {name_scale: scale, "window_size": window}


def draw_flash_options(random, batch, heads):
    """The options of flash-attn: for the formula, and for the call without its slopes."""
    ours, theirs = draw_options(random)
    causal, softcap = bool(random.random() < 0.5), float(random.choice([0, 0, 2.5, 20]))
    slopes = random.choice([None, None, "heads", "both"])
    if slopes is not None:
        slopes = torch.from_numpy(random.uniform(0, 1, (heads,) if slopes == "heads" else (batch, heads)))
        slopes = slopes.float()
    window = ours["window"]
    return ({**ours, "window": (window[0], -1) if causal else window, "causal": causal, "softcap": softcap},
            {**theirs, "causal": causal, "softcap": softcap}, slopes)


def draw_shape(random):
    heads_k, group = int(random.integers(1, 4)), int(random.integers(1, 4))
    width = int(random.choice([1, 4, 8, 17, 32, 64]))
    dtype = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16][int(random.integers(5))]
    return heads_k * group, heads_k, width, width if random.random() < 0.7 else int(random.integers(1, 40)), dtype


def normal(generator, *sizes, dtype):
    return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype)


def slopes_of(slopes, item):
    return None if slopes is None else slopes if slopes.dim() == 1 else slopes[item]
