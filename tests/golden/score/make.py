# tests/golden/score/make.py: score functions by PyTorch's flex_attention (CPU, eager), and their gradients by its autograd, into torch_score_mod.json.
import json
import pathlib

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.manual_seed(11)
B, H, TQ, TK, D = 2, 3, 7, 7, 4
q, k, v = torch.randn(B, H, TQ, D), torch.randn(B, H, TK, D), torch.randn(B, H, TK, D)
tensors = {
    "slope": torch.rand(H),
    "table": torch.randn(2 * TK - 1, H),
    "small": torch.randn(4, H),
    "bucket": torch.randint(0, 4, (2 * TK - 1,)),
    "c": torch.tensor(0.7),
    "item": torch.randn(B, TQ),
    "flag": torch.rand(TK) > 0.4,
}
slope, table, small, bucket, c, item, flag = tensors.values()
inf = float("inf")

# our notation, then the same as torch takes it
MODS = {
    "s - slope[h] * (i - j)": lambda s, b, h, i, j: s - slope[h] * (i - j),
    "1.5 * tanh(s / 1.5)": lambda s, b, h, i, j: 1.5 * torch.tanh(s / 1.5),
    "s + table[j - i + 6, h]": lambda s, b, h, i, j: s + table[j - i + 6, h],
    "s + small[bucket[j - i + 6], h]": lambda s, b, h, i, j: s + small[bucket[j - i + 6], h],
    "where(i >= j, s, -inf)": lambda s, b, h, i, j: torch.where(i >= j, s, -inf),
    "c * s": lambda s, b, h, i, j: c * s,
    "s * exp(-abs(s) * slope[h]) + item[b, i]": lambda s, b, h, i, j: s * torch.exp(-torch.abs(s) * slope[h]) + item[b, i],
    "max(s, 0.1 * s) - min(s, c) / (1 + b)": lambda s, b, h, i, j: torch.maximum(s, 0.1 * s) - torch.minimum(s, c) / (1 + b),
    "where(flag[j] & (i // 3 == j // 3), s, -s) * (1 + (i - j) % 3)": lambda s, b, h, i, j: torch.where(flag[j] & (i // 3 == j // 3), s, -s) * (1 + (i - j) % 3),
    "table[(i - 2 * j) % 13, h] * s - i * j / 7": lambda s, b, h, i, j: table[(i - 2 * j) % 13, h] * s - (i * j) / 7,
}


def floats(x):
    return [float(f"{value:.9g}") if abs(value) != inf else ("inf" if value > 0 else "-inf") for value in x.detach().flatten().tolist()]


def entry(x):
    dtype = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.bool: "bool"}[x.dtype]
    return {"dtype": dtype, "shape": list(x.shape), "values": floats(x) if x.dtype.is_floating_point else [int(value) for value in x.flatten().tolist()]}


scores = (q @ k.transpose(-1, -2) / D**0.5).detach()
grid = torch.meshgrid(torch.arange(B), torch.arange(H), torch.arange(TQ), torch.arange(TK), indexing="ij")
document = {"q": entry(q), "k": entry(k), "v": entry(v), "scores": entry(scores), "tensors": {name: entry(x) for name, x in tensors.items()}, "cases": []}
for text, mod in MODS.items():
    results = {}
    for dtype in (torch.float32, torch.float64):
        output = flex_attention(*[x.to(dtype) for x in (q, k, v)], score_mod=lambda s, *place: mod(s, *place).to(dtype))
        s = scores.detach().clone().to(dtype).requires_grad_()
        learned = {name: x for name, x in tensors.items() if x.dtype.is_floating_point}
        for x in learned.values():
            x.requires_grad_().grad = None
        modified = mod(s, *grid)
        modified.masked_fill(modified == -inf, 0).sum().backward()
        results[dtype] = {"output": output, "modified": modified, "by s": s.grad}
        results[dtype] |= {f"by {name}": x.grad for name, x in learned.items() if x.grad is not None}
        for x in learned.values():
            x.requires_grad_(False)
    case = {"score_mod": text}
    for name, x in results[torch.float32].items():
        exact = results[torch.float64][name]
        finite = exact.isfinite()
        case[name] = entry(x) | {"error": float((x.double() - exact)[finite].abs().max())}
    document["cases"].append(case)
path = pathlib.Path(__file__).with_name("torch_score_mod.json")
path.write_text(json.dumps(document, separators=(",", ":")).replace('{"score_mod"', '\n{"score_mod"') + "\n")
