# python/tests/test_relative_calls.py: calls with relative products drawn at random, against complete matrices in torch:
# every index, operands of their own, lengths, packed sequences, what masked keys hold, pictures that are too small.
import os

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
from combined_options import BOTTOM, Draw, Positions, Sizes  # noqa: E402
from conftest import SEED  # noqa: E402
from error_rule import assert_rule_holds  # noqa: E402

COUNT = 2000 if os.environ.get("ATTN_TEST_FULL") == "1" else 40


def _sizes(d):
    """Of a call; a third each with packed sequences, with lengths and with neither."""
    heads, key_heads = d.one_of((1, 1), (2, 2), (4, 2), (6, 3), (4, 1))
    lengths = (1, 3, 17, 40, 70, 130)
    z = Sizes(d.whole(1, 3), heads, key_heads, key_heads, d.one_of(*lengths), d.one_of(*lengths), d.whole(1, 9), 5)
    form = d.one_of("packed", "lengths", "plain")
    if form == "packed":
        z.B, count = 1, d.whole(1, 4)
        z.packed_q, z.packed_k = ([0, *sorted(d.whole(0, n) for _ in range(count - 1)), n] for n in (z.Tq, z.Tk))
    elif form == "lengths":
        z.rows, z.keys = ([d.whole(0, n) for _ in range(z.B)] for n in (z.Tq, z.Tk))
        z.first = [d.whole(0, end) for end in z.keys]
    if d.one_of(True, False):
        z.start = [d.whole(0, 40) for _ in range(z.N)]
    return z


def _lengths(z):
    given = {"cu_seqlens_q": z.packed_q, "cu_seqlens_k": z.packed_k, "query_lengths": z.rows, "key_lengths": z.keys,
             "key_start": z.first, "query_start": z.start}
    return {name: x for name, x in given.items() if x is not None}


def _index(d, at):
    """An index, and its rows [B, 1, Tq, Tk] by the formula of docs/relative_products.md, None: too small a picture."""
    i, j, pairs = at.i, at.j, at.seen.expand(at.seen.shape[0], 1, at.i.shape[2], at.j.shape[3])
    kind, a, b = d.one_of("distance", "rows", "columns"), d.whole(0, 60), d.whole(0, 60)
    if kind == "distance":
        index, rows = attn.RelativeIndex.distance(a, b), (j - i).clamp(-a, b) + a
    elif kind == "columns":
        width = a % 12 + 1
        index, rows = attn.RelativeIndex.picture_columns(width), i % width - j % width + width - 1
    else:
        width = a % 12 + 1
        last = max(0, *(x.expand(pairs.shape)[pairs].amax().item() if pairs.any() else 0 for x in (i, j)))
        height = max(last // width + 1 + b % 5 - 1, 1)
        index, rows = attn.RelativeIndex.picture_rows(height, width), i // width - j // width + height - 1
        if last >= height * width:
            return index, None
    if d.one_of(True, False):
        index, rows = index.reversed(), index.rows - 1 - rows
    if ((i < 0) & pairs).any() and kind != "distance":
        return index, None
    return index, rows.clamp(0, index.rows - 1)


class Call:
    """What one seed draws."""

    def __init__(self, seed, again=0):
        d = Draw(seed, again)
        z = self.z = _sizes(d)
        self.at, self.causal, self.hidden = Positions(z), d.one_of(True, False), d.one_of(0.0, torch.nan, torch.inf)
        self.seen = self.at.seen & (self.at.j <= self.at.i) if self.causal else self.at.seen
        self.terms, self.operands = [], {"q": d.normal(z.B, z.H, z.Tq, z.D), "k": d.normal(z.B, z.Hk, z.Tk, z.D),
                                         "v": d.normal(z.B, z.Hk, z.Tk, z.Dv)}
        for n in range(d.whole(1, 2)):
            index, rows = _index(d, self.at)
            of_keys, scale, width = d.one_of(True, False), d.one_of(None, 0.3, -2.0), d.one_of(None, 7)
            heads = d.one_of((z.H,), (1,), ())
            self.operands[f"r{n}"] = d.normal(*heads, index.rows, width or z.D)
            if width:
                self.operands[f"x{n}"] = d.normal(z.B, *((z.Hk, z.Tk) if of_keys else (z.H, z.Tq)), width)
            self.terms.append((index, rows, of_keys, scale))
        self.label = f"seed {seed}: {z}, {[term[0] for term in self.terms]}"
        self.refused = any(rows is None for _, rows, _, _ in self.terms)

    def by_attn(self):
        x = {name: value.float() for name, value in self.operands.items()}
        nobody = ~self.seen.any(2, keepdim=True).mT.expand(self.z.B, 1, self.z.Tk, 1)
        x |= {name: x[name].masked_fill(nobody, self.hidden) for name in "kv"}
        x = {name: value.requires_grad_() for name, value in x.items()}
        bias = None
        for n, (index, _, of_keys, scale) in enumerate(self.terms):
            term = attn.Bias.relative_product(x[f"r{n}"], index, operand=x.get(f"x{n}"), of_keys=of_keys, scale=scale,
                                              align=BOTTOM)
            bias = term if bias is None else bias + term
        mask = attn.Mask.causal(BOTTOM) if self.causal else None
        return self.results(attn.attention(x["q"], x["k"], x["v"], mask=mask, bias=bias, **_lengths(self.z)), x)

    def by_torch(self, dtype):
        x = {name: value.to(dtype).requires_grad_() for name, value in self.operands.items()}
        z = self.z
        k, v = (x[name].repeat_interleave(z.H // z.Hk, 1) for name in "kv")
        s = x["q"] @ k.mT / z.D ** 0.5
        for n, (_, rows, of_keys, scale) in enumerate(self.terms):
            left = x.get(f"x{n}", x["k" if of_keys else "q"])
            products = left.repeat_interleave(z.H // left.shape[1], 1) @ x[f"r{n}"].mT
            rows = rows.expand_as(s)
            values = products.gather(3, rows.mT).mT if of_keys else products.gather(3, rows)
            s = s + values * (z.D ** -0.5 if scale is None else scale)
        seen = self.seen.expand_as(s)
        weights = s.masked_fill(~seen, -torch.inf).masked_fill(~seen.any(-1, keepdim=True), 0).softmax(-1) * seen
        return self.results(weights @ v, x)

    @staticmethod
    def results(y, x):
        (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)).sum().backward()
        return {"output": y} | {f"gradient of {name}": one.grad for name, one in x.items()}


def _compared(seed, again):
    call = Call(seed, again)
    ways = call.by_attn(), call.by_torch(torch.float32), call.by_torch(torch.float64)
    return {name: tuple(way[name] for way in ways) for name in ways[0]}


def test_calls_at_random():
    refused = 0
    for seed in range(SEED, SEED + COUNT):
        call = Call(seed)
        if call.refused:
            refused += 1
            with pytest.raises(ValueError, match=r"has rows at positions .* and keys at .*; picture_"):
                call.by_attn()
        else:
            assert_rule_holds(lambda again, seed=seed: _compared(seed, again), call.label)
    assert 0 < refused < COUNT / 2
