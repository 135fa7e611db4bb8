# python/tests/test_combined_options.py: four options of attn.attention drawn at random: output, returned weights,
# logsumexp and all gradients against complete matrices in torch, and the same bits on any threads, alone and padded.
import os
import re

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
from combined_options import MASKED, OPTIONS, STAGES, WEIGHTS, Draw, Positions, Sizes  # noqa: E402
from conftest import SEED  # noqa: E402
from error_rule import assert_rule_holds  # noqa: E402

COUNT, PARTS = (4000 if os.environ.get("ATTN_TEST_FULL") == "1" else 48), 8
PAD = 5
BESIDE_DELTA = 1.6   # times the bound: what delta costs where one key has most of the weight (numerics section 7)
GRADIENTS_OF_SCORES = {f"gradient of {name}" for name in ("q", "k", "w", "w_q", "w_k", "bias", "slopes", "table",
                                                          "slope", "c", "r")}
F = torch.nn.functional


class Refused(Exception):
    """The call is one that attn does not compute, and says so."""


class Call:
    """What one seed draws. `items`: the batch items of a call; `pad`: keys behind the last one, which do not count."""

    def __init__(self, seed, again=0):
        d = Draw(seed, again)
        lengths = (1, 3, 8, 17, 33, 64, 70, 130)
        z = self.z = Sizes(d.whole(1, 3), 4, 4, 4, d.one_of(*lengths), d.one_of(*lengths), d.one_of(1, 8, 16, 33),
                           d.one_of(1, 8, 16, 20))
        names = sorted({option.name for option in OPTIONS})
        drawn = [names[n] for n in torch.randperm(len(names), generator=d.choose)[:4].tolist()]
        options = [d.one_of(*(one for one in OPTIONS if one.name == name)) for name in drawn]
        for option in OPTIONS:
            if option in options and option.shape:
                option.shape(d, z)
        self.parts = [option.draw(d, z) for option in options]
        self.label = f"seed {seed}: {', '.join(drawn)}; {z}"
        self.at, self.through_weights, self.kept = Positions(z), d.one_of(True, False), None
        self.operands = {"q": d.normal(z.B, z.H, z.Tq, z.D), "k": d.normal(z.B, z.Hk, z.Tk, z.D),
                         "v": d.normal(z.B, z.Hv, z.Tk, z.Dv)}
        for part in self.parts:
            self.operands |= part.operands
        self.of_item = {"q", "k", "v"}.union(*(part.of_item for part in self.parts))
        self.of_keys = set().union(*(part.of_keys for part in self.parts))
        self.items, self.pad = list(range(z.B)), 0
        self.directions = torch.Generator().manual_seed(seed)

    def with_keys(self, x, value):
        return F.pad(x, (0, self.pad), value=value) if x.shape[-1] == self.z.Tk else x

    def of_items(self, x):
        return x[self.items] if x.shape[0] == self.z.B else x

    def leaves(self, dtype):
        """The operands of a call."""
        found = {}
        for name, x in self.operands.items():
            x = self.of_items(x) if name in self.of_item else x
            if self.pad and name in ("k", "v"):
                x = F.pad(x, (0, 0, 0, self.pad), value=torch.nan)
            found[name] = (self.with_keys(x, 0) if name in self.of_keys else x).to(dtype).requires_grad_()
        return found

    def arguments(self, x, dtype=torch.float32):
        given = {"return_logsumexp": True}
        for part in self.parts:
            for name, value in part.arguments(self, x).items():
                both = given.get(name)
                given[name] = (both & value if both is not None and name == "mask" else
                               both + value if both is not None and name == "bias" else value)
        if self.pad and "key_lengths" not in given:
            given["key_lengths"] = [self.z.Tk] * len(self.items)
        return given

    def by_attn(self, **more):
        """output, logsumexp, and the weights if there are some; the operands."""
        x = self.leaves(torch.float32)
        given = {**self.arguments(x), **more}
        try:
            found = attn.attention(x["q"], x["k"], x["v"], **given)
        except (ValueError, TypeError) as error:
            raise Refused(str(error)) from error
        if not given["return_logsumexp"]:   # it has none: zeros here and in torch
            found = found if isinstance(found, tuple) else (found,)
            found = (*found, found[0].detach()[..., 0] * 0)
        return [found[0], found[-1], *found[1:-1]], x

    def by_torch(self, dtype):
        x, z = self.leaves(dtype), self.z
        self.q = x["q"]
        self.k, v = (y.repeat_interleave(z.H // y.shape[1], 1) for y in (x["k"], x["v"]))
        s = self.q @ self.k.mT / z.D ** 0.5
        for stage in STAGES:
            for part in self.parts:
                if part.stage == stage:
                    s = part.apply(s, x, self)
        seen = self.at.seen
        for part in self.parts:
            seen = seen & part.seen(self.at) if part.seen else seen
        seen = seen.expand_as(s)
        some, self.most_keys = seen.any(-1, keepdim=True), int(seen.sum(-1).max())
        s = s.masked_fill(~seen, -torch.inf).masked_fill(~some, 0)
        if "sinks" in x:
            s = torch.cat((s, x["sinks"][:, None, None].expand(*s.shape[:3], 1)), -1)
        weights = s.softmax(-1)[..., :z.Tk] * seen
        logsumexp = s.logsumexp(-1).masked_fill(~some.squeeze(-1), -torch.inf)
        for part in self.parts:
            if part.stage == "normalizer":
                weights = part.apply(s.masked_fill(~seen, MASKED), x, self) * seen
                logsumexp = logsumexp.detach().new_zeros(logsumexp.shape)
        for stage in WEIGHTS:
            for part in self.parts:
                if part.stage == stage:
                    weights = part.apply(weights, x, self)
        found, kind = [weights @ v, logsumexp], self.arguments(x).get("weights")
        if kind:
            found.append({"full": weights, "rows(0, -1)": weights[:, :, [0, -1]], "head_average": weights.mean(1),
                          "column_sums": weights.sum(2)}[kind])
        return found, x

    def differentiated(self, found, x):
        """And the gradients of a sum with fixed factors."""
        self.directions.manual_seed(1)
        total = 0
        for n, y in enumerate(found):
            factors = torch.randn(y.shape[1:], generator=self.directions).to(y.dtype)   # of every item the same
            if n < 2 or self.through_weights:
                total = total + (y.masked_fill(~y.isfinite(), 0) * factors).sum()
        gradients = torch.autograd.grad(total, list(x.values()), allow_unused=True)
        names = ["output", "logsumexp", "weights"][:len(found)] + [f"gradient of {name}" for name in x]
        return dict(zip(names, [y.detach() for y in found] + list(gradients)))


def computed(call):
    """What attn gives on one, two and three threads, the same bits."""
    found = []
    before = attn.num_threads()
    for threads in (1, 2, 3):
        attn.set_num_threads(threads)
        try:
            found.append(call.differentiated(*call.by_attn()))
        finally:
            attn.set_num_threads(before)
    for other in found[1:]:
        for name, x in found[0].items():
            assert same(x, other[name]), f"{call.label}: {name} on other threads"
    return found[0]


def same(a, b):
    if a is None or b is None:
        return a is b
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())


def compared(seed, again=0):
    call = Call(seed, again)
    ours = computed(call) if again == 0 else call.differentiated(*call.by_attn())
    if any(part.stage == "weights" for part in call.parts):
        call.kept = call.by_attn(weights="full")[0][2].detach() != 0
    plain, truth = (call.differentiated(*call.by_torch(dtype)) for dtype in (torch.float32, torch.float64))
    found = {}
    for name, x in ours.items():
        theirs = [way[name] for way in (plain, truth)]
        if name in GRADIENTS_OF_SCORES and call.most_keys < 3:
            continue   # the output moves little or not at all, and torch's errors cancel (numerics section 7, delta)
        if x is None or theirs[0] is None:   # a gradient of nothing
            zeros = [y is None or not y.any() for y in (x, *theirs)]
            assert all(zeros), f"{call.label}: {name}"
        else:
            found[name] = (x, *theirs)
    return call, ours, found


def check_truth(seed):
    call, ours, found = compared(seed)
    assert_rule_holds(lambda again: compared(seed, again)[2] if again else found, call.label,
                      dict.fromkeys(GRADIENTS_OF_SCORES, BESIDE_DELTA))
    return call, ours


def check_surroundings(call, ours):
    """Each item alone, with keys behind its last one that hold NaN: the same bits."""
    if not all(part.alone for part in call.parts):
        return
    names = ("output", "logsumexp", "weights", "gradient of q", "gradient of k", "gradient of v")
    keys = {"weights": -1, "gradient of k": -2, "gradient of v": -2}
    for item in range(call.z.B):
        call.items, call.pad = [item], PAD
        alone = call.differentiated(*padded(call))
        for name in names:
            if name not in ours:
                continue
            x = alone[name]
            x = x.narrow(keys[name], 0, call.z.Tk) if name in keys else x
            assert same(x[0], ours[name][item]), f"{call.label}: {name} of item {item} alone"
    call.items, call.pad = list(range(call.z.B)), 0


def padded(call):
    found, x = call.by_attn()
    if len(found) > 2:
        found[2] = found[2].narrow(-1, 0, call.z.Tk)
    return found, x


def check(seed):
    """The text of a refusal, or nothing."""
    try:
        call, ours = check_truth(seed)
    except Refused as refusal:
        return f"{Call(seed).label}: {refusal}"
    check_surroundings(call, ours)
    return None


@pytest.mark.parametrize("part", range(PARTS))
def test_four_options_at_random(part, one_thread):
    begin = SEED + part * (COUNT // PARTS)
    print(f"seeds {begin} to {begin + COUNT // PARTS - 1}; of one: ATTN_TEST_SEED")
    refused = [text for seed in range(begin, begin + COUNT // PARTS) if (text := check(seed))]
    for text in refused:
        print(text)
        assert re.search(r": attention: [^\n]+$", text), text
    assert len(refused) <= COUNT // PARTS // 2, refused
