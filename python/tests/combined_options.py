# python/tests/combined_options.py: the options of attn.attention as a table, each with what it does to whole matrices
# in torch: any of them can be drawn together.
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import attn
import torch

from plain_normalizers import plain_entmax15, plain_sparsemax

BOTTOM = "bottom_right"
STAGES = ("score", "softcap", "bias", "score_mod", "temperature")  # of the scores, in this order
WEIGHTS = ("weight_mod", "weights")  # of the weights
MASKED = -1e4  # of a score, for the plain forms of normalizers, which cannot take an infinity


@dataclasses.dataclass
class Part:
    """An option as it was drawn.

    arguments: those of attn.attention, from its operands; apply: what its stage does, (x, operands, call) -> x;
    seen: the pairs [B, H, Tq, Tk] that it leaves; operands have gradients and, as all tensors here, are float64.
    `of_item` are the operands whose dim 0 is B, `of_keys` those whose last dim is Tk.
    """

    arguments: Callable[..., dict[str, Any]] = lambda call, x: {}
    stage: str = ""
    apply: Callable[..., torch.Tensor] | None = None
    seen: Callable[..., torch.Tensor] | None = None
    operands: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    of_item: tuple[str, ...] = ()
    of_keys: tuple[str, ...] = ()
    alone: bool = True  # a batch item alone, and padding behind the keys, leave the numbers of a row


class Draw:
    """What one seed draws: the sizes and the options by `choose`, the numbers by `numbers`, others for each `again`."""

    def __init__(self, seed: int, again: int = 0) -> None:
        self.choose = torch.Generator().manual_seed(seed)
        self.numbers = torch.Generator().manual_seed(seed + 1_000_003 * again)

    def whole(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.choose))

    def one_of(self, *values: Any) -> Any:
        return values[self.whole(0, len(values) - 1)]

    def normal(self, *sizes: int) -> torch.Tensor:
        """What float32 holds, in float64."""
        return torch.randn(sizes, generator=self.numbers).double()


@dataclasses.dataclass
class Sizes:
    """Of a call; options change them before operands are drawn."""

    B: int
    H: int
    Hk: int
    Hv: int
    Tq: int
    Tk: int
    D: int
    Dv: int
    # of each item: how many rows and keys there are, the first key, the position of row 0 (None: aligned)
    rows: list[int] | None = None
    keys: list[int] | None = None
    first: list[int] | None = None
    start: list[int] | None = None
    packed_q: list[int] | None = None
    packed_k: list[int] | None = None

    @property
    def N(self) -> int:
        """How many items have positions of their own: packed sequences, or those of the batch."""
        return len(self.packed_q) - 1 if self.packed_q else self.B

    def keys_of(self, b: int) -> tuple[int, int]:
        return self.first[b] if self.first else 0, self.keys[b] if self.keys else self.Tk


class Positions:
    """i of rows [B, 1, Tq, 1] and j of keys [B, 1, 1, Tk], the item b of a row, and which pairs exist."""

    def __init__(self, z: Sizes) -> None:
        i, j = torch.arange(z.Tq), torch.arange(z.Tk)
        rows, keys, seen = [], [], []
        for b in range(z.B):
            first, end = z.keys_of(b)
            own = z.rows[b] if z.rows else z.Tq
            rows.append(i + (z.start[b] if z.start else end - first - own))
            keys.append(j - first)
            seen.append((i < own)[:, None] & (j >= first) & (j < end))
        self.i, self.j = torch.stack(rows)[:, None, :, None], torch.stack(keys)[:, None, None]
        self.seen, self.b = torch.stack(seen)[:, None], torch.arange(z.B)[:, None, None, None]
        if z.packed_q and z.packed_k:
            q_ends, k_ends = torch.tensor(z.packed_q), torch.tensor(z.packed_k)
            of_rows, of_keys = (torch.bucketize(n, ends[1:], right=True) for n, ends in ((i, q_ends), (j, k_ends)))
            start = torch.tensor(z.start) if z.start else k_ends.diff() - q_ends.diff()
            self.i = (i - q_ends[of_rows] + start[of_rows])[None, None, :, None]
            self.j = (j - k_ends[of_keys])[None, None, None]
            self.seen, self.b = (of_rows[:, None] == of_keys)[None, None], of_rows[None, None, :, None]


# --- the table --------------------------------------------------------------------------------------------------------
# Of each name one line is drawn; `shape(draw, sizes)` of all that are drawn come first, in the order of the table. To
# add an option, add a line.


@dataclasses.dataclass
class Option:
    name: str
    draw: Callable[[Draw, Sizes], Part]
    shape: Callable[[Draw, Sizes], None] | None = None


def _heads(d: Draw, z: Sizes) -> None:
    z.Hk, z.Hv = d.one_of((1, 1), (2, 2), (2, 4), (4, 2), (1, 4))


def _key_lengths(d: Draw, z: Sizes) -> None:
    z.keys = [d.whole(max(z.Tk // 2, 1), z.Tk) for _ in range(z.B)]


def _starts(d: Draw, z: Sizes) -> None:
    z.first = [d.whole(0, z.Tk // 3) for _ in range(z.B)]


def _row_lengths(d: Draw, z: Sizes) -> None:
    z.rows = [d.whole(1, z.Tq) for _ in range(z.B)]


def _query_start(d: Draw, z: Sizes) -> None:
    z.start = [d.whole(0, z.Tk) for _ in range(z.N)]


def _ends(d: Draw, total: int, count: int) -> list[int]:
    return [0, *sorted(d.whole(0, total) for _ in range(count - 1)), total]


def _pack(d: Draw, z: Sizes) -> None:
    count, z.B = d.whole(1, 4), 1
    z.packed_q, z.packed_k = _ends(d, z.Tq, count), _ends(d, z.Tk, count)


def _packed(d: Draw, z: Sizes) -> Part:
    return Part(lambda call, x: {"cu_seqlens_q": z.packed_q, "cu_seqlens_k": z.packed_k}, alone=False)


def _lengths(name: str, field: str) -> Callable[[Draw, Sizes], Part]:
    def of(d: Draw, z: Sizes) -> Part:
        return Part(lambda call, x: {name: getattr(z, field) if z.packed_q else
                                     [getattr(z, field)[b] for b in call.items]})

    return of


def _masked(make: Callable[..., Any], seen: Callable[..., torch.Tensor]) -> Callable[[Draw, Sizes], Part]:
    """mask: (call) -> attn.Mask; seen: (positions) -> bool."""
    return lambda d, z: Part(lambda call, x: {"mask": make(call)}, seen=seen)


def _window(d: Draw, z: Sizes) -> Part:
    left, right = d.one_of(0, 3, 9, 40, -1), d.one_of(0, 2, 30)
    return Part(lambda call, x: {"mask": attn.Mask.window(left, right, BOTTOM)},
                seen=lambda p: (p.j <= p.i + right) & ((p.j >= p.i - left) | (left < 0)))


def _blocks(d: Draw, z: Sizes) -> Part:
    rows, keys, heads = d.one_of(1, 5, 16, 64), d.one_of(1, 4, 16), d.one_of(1, z.Hk)
    blocks = -(-z.Tk // keys)
    lists = torch.randint(-1, blocks, (z.B, heads, -(-z.Tq // rows), d.whole(1, min(blocks, 6))), generator=d.choose)
    shown = torch.zeros(*lists.shape[:3], blocks + 1, dtype=torch.bool)
    shown.scatter_(3, torch.where(lists < 0, blocks, lists), True)
    shown = shown[..., :blocks].repeat_interleave(rows, 2)[:, :, :z.Tq].repeat_interleave(keys, 3)[..., :z.Tk]
    shown = shown.repeat_interleave(z.H // heads, 1)
    return Part(lambda call, x: {"mask": attn.Mask.blocks(lists[call.items], (rows, keys))}, seen=lambda p: shown)


def _bool_mask(d: Draw, z: Sizes) -> Part:
    shape = d.one_of((z.B, 1, 1, z.Tk), (1, z.H, z.Tq, z.Tk), (1, 1, z.Tq, z.Tk))
    shown = torch.rand(shape, generator=d.choose) < 0.6
    return Part(lambda call, x: {"mask": attn.Mask.attend(call.with_keys(call.of_items(shown), True))},
                seen=lambda p: shown)


def _documents(d: Draw, z: Sizes) -> Part:
    ids = [torch.randint(0, 3, (z.B, n), generator=d.choose) for n in (z.Tq, z.Tk)]
    ids = [x.sort(1).values for x in ids] if d.one_of(True, False) else ids
    return Part(lambda call, x: {"mask": attn.Mask.documents(ids[0][call.items],
                                                             call.with_keys(ids[1][call.items], 9))},
                seen=lambda p: (ids[0][:, :, None] == ids[1][:, None])[:, None])


def _dense(d: Draw, z: Sizes) -> Part:
    shape = d.one_of((z.B, 1, 1, z.Tk), (1, z.H, z.Tq, z.Tk), (z.B, z.H, z.Tq, z.Tk), (1, z.H, 1, z.Tk))
    of_item = ("bias",) if shape[0] == z.B else ()
    return Part(lambda call, x: {"bias": attn.Bias.dense(x["bias"])}, "bias", lambda s, x, call: s + x["bias"],
                operands={"bias": d.normal(*shape)}, of_item=of_item, of_keys=("bias",))


def _alibi(d: Draw, z: Sizes) -> Part:
    symmetric = d.one_of(True, False)

    def apply(s: torch.Tensor, x: dict, call: Any) -> torch.Tensor:
        distance = call.at.j - call.at.i
        return s + x["slopes"][:, None, None] * (-distance.abs() if symmetric else distance)

    return Part(lambda call, x: {"bias": attn.Bias.alibi(x["slopes"], BOTTOM, symmetric)}, "bias", apply,
                operands={"slopes": 0.1 * d.normal(z.H)})


def _relative(d: Draw, z: Sizes) -> Part:
    def apply(s: torch.Tensor, x: dict, call: Any) -> torch.Tensor:
        n = (call.at.i - call.at.j).clamp(min=0)
        far = 4 + (torch.log(n.clamp(min=1).double() / 4) / math.log(40 / 4) * 4).long()
        bucket = torch.where(n < 4, n, far.clamp(max=7))
        return s + x["table"][bucket[:, 0]].permute(0, 3, 1, 2)

    return Part(lambda call, x: {"bias": attn.Bias.relative(x["table"], False, 40, BOTTOM)}, "bias", apply,
                operands={"table": d.normal(8, z.H)})


def _relative_product(d: Draw, z: Sizes) -> Part:
    before, after, of_keys = d.one_of(2, 9), d.one_of(1, 7), d.one_of(True, False)
    heads = d.one_of((z.H,), ())

    def apply(s: torch.Tensor, x: dict, call: Any) -> torch.Tensor:
        rows = ((call.at.j - call.at.i).clamp(-before, after) + before).expand_as(s)
        if of_keys:
            return s + 0.3 * (call.k @ x["r"].mT).gather(3, rows.mT).mT
        return s + 0.3 * (call.q @ x["r"].mT).gather(3, rows)

    def made(call: Any, x: dict) -> dict[str, Any]:
        index = attn.RelativeIndex.distance(before, after)
        return {"bias": attn.Bias.relative_product(x["r"], index, of_keys=of_keys, scale=0.3, align=BOTTOM)}

    return Part(made, "bias", apply, operands={"r": d.normal(*heads, before + after + 1, z.D)})


def _score_mod(d: Draw, z: Sizes) -> Part:
    def traced(call: Any, x: dict) -> dict[str, Any]:
        slope = attn.ScoreTable(x["slope"])
        mod = attn.ScoreExpression(lambda s, b, h, i, j: attn.tanh(s) * 2.0 - slope[h] * (i - j))
        return {"score_mod": mod.aligned(BOTTOM)}

    return Part(traced, "score_mod",
                lambda s, x, call: 2 * torch.tanh(s) - x["slope"][:, None, None] * (call.at.i - call.at.j),
                operands={"slope": 0.1 * d.normal(z.H)})


def _table_of_items(d: Draw, z: Sizes) -> Part:
    def traced(call: Any, x: dict) -> dict[str, Any]:
        c = attn.ScoreTable(x["c"])
        return {"score_mod": lambda s, b, h, i, j: s + c[b, h, j % 7]}

    def apply(s: torch.Tensor, x: dict, call: Any) -> torch.Tensor:
        return s + x["c"][call.at.b, torch.arange(z.H)[:, None, None], call.at.j % 7]

    return Part(traced, "score_mod", apply, operands={"c": d.normal(z.N, z.H, 7)}, of_item=("c",))


def _general(d: Draw, z: Sizes) -> Part:
    w = d.normal(*d.one_of((z.D, z.D), (z.H, z.D, z.D))) / z.D
    return Part(lambda call, x: {"score": attn.Score.general(x["w"])}, "score",
                lambda s, x, call: call.q @ x["w"] @ call.k.mT, operands={"w": w})


def _additive(d: Draw, z: Sizes) -> Part:
    def apply(s: torch.Tensor, x: dict, call: Any) -> torch.Tensor:
        rows, keys = call.q @ x["w_q"].mT, call.k @ x["w_k"].mT
        return torch.tanh(rows.unsqueeze(3) + keys.unsqueeze(2)) @ x["w"]

    return Part(lambda call, x: {"score": attn.Score.additive(x["w_q"], x["w_k"], x["w"])}, "score", apply,
                operands={"w_q": d.normal(6, z.D) / 4, "w_k": d.normal(6, z.D) / 4, "w": d.normal(6)})


def _scale(d: Draw, z: Sizes) -> Part:
    scale = d.one_of(0.05, 0.3, 1.0, -0.2)
    return Part(lambda call, x: {"scale": scale}, "score", lambda s, x, call: scale * (call.q @ call.k.mT))


def _number(name: str, *values: float, apply: Callable[..., torch.Tensor]) -> Callable[[Draw, Sizes], Part]:
    def of(d: Draw, z: Sizes) -> Part:
        value = d.one_of(*values)
        return Part(lambda call, x: {name: value}, name, lambda s, x, call: apply(s, value))

    return of


def _sinks(d: Draw, z: Sizes) -> Part:
    return Part(lambda call, x: {"sinks": x["sinks"]}, operands={"sinks": d.normal(z.H)})


def _dropout(d: Draw, z: Sizes) -> Part:
    p, seed = d.one_of(0.1, 0.5), d.whole(0, 1 << 30)
    return Part(lambda call, x: {"dropout_p": p, "dropout_seed": seed}, "weights",
                lambda w, x, call: w * call.kept / (1 - p), alone=False)


def _normalizer(made: str, plain: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Draw, Sizes], Part]:
    return lambda d, z: Part(lambda call, x: {"normalizer": made, "return_logsumexp": False}, "normalizer",
                             lambda s, x, call: plain(s))


def _weight_mod(d: Draw, z: Sizes) -> Part:
    def traced(call: Any, x: dict) -> dict[str, Any]:
        decay = attn.ScoreTable(x["decay"])
        mod = attn.ScoreExpression(lambda w, b, h, i, j: w * attn.exp(-decay[h] * abs(i - j)))
        return {"weight_mod": mod.aligned(BOTTOM)}

    return Part(traced, "weight_mod",
                lambda w, x, call: w * torch.exp(-x["decay"][:, None, None] * (call.at.i - call.at.j).abs()),
                operands={"decay": 0.1 * d.normal(z.H).abs()})


def _returned(kind: str) -> Callable[[Draw, Sizes], Part]:
    return lambda d, z: Part(lambda call, x: {"weights": kind}, alone=kind not in ("head_average", "column_sums"))


OPTIONS = [
    Option("heads", lambda d, z: Part(), _heads),
    Option("lengths", _lengths("key_lengths", "keys"), _key_lengths),
    Option("lengths", _packed, _pack),
    Option("starts", _lengths("key_start", "first"), _starts),
    Option("rows", _lengths("query_lengths", "rows"), _row_lengths),
    Option("query start", _lengths("query_start", "start"), _query_start),
    Option("causal", _masked(lambda call: attn.Mask.causal(BOTTOM), lambda p: p.j <= p.i)),
    Option("window", _window),
    Option("prefix", _masked(lambda call: attn.Mask.prefix(7), lambda p: p.j < 7)),
    Option("blocks", _blocks),
    Option("bool mask", _bool_mask),
    Option("documents", _documents),
    Option("bias", _dense),
    Option("position bias", _alibi),
    Option("position bias", _relative),
    Option("relative product", _relative_product),
    Option("score_mod", _score_mod),
    Option("score_mod", _table_of_items),
    Option("score", _general),
    Option("score", _additive),
    Option("score", _scale),
    Option("softcap", _number("softcap", 1.5, 20.0, apply=lambda s, c: c * torch.tanh(s / c))),
    Option("temperature", _number("temperature", 0.5, 3.0, apply=lambda s, t: s / t)),
    Option("sinks", _sinks),
    Option("normalizer", _normalizer("sigmoid(-2)", lambda s: torch.sigmoid(s - 2))),
    Option("normalizer", _normalizer("sparsemax", plain_sparsemax)),
    Option("normalizer", _normalizer("entmax15", plain_entmax15)),
    Option("normalizer", _normalizer("relu_squared(0.1)", lambda s: 0.1 * torch.relu(s).square())),
    Option("weight_mod", _weight_mod),
    Option("dropout", _dropout),
    Option("weights", _returned("full")),
    Option("weights", _returned("rows(0, -1)")),
    Option("weights", _returned("head_average")),
    Option("weights", _returned("column_sums")),
]
