# tests/golden/transformer/make.py: writes transformer.json with PyTorch 2.13.0 (CPU): random configurations of torch.nn's
# Transformer and its parts, digests of their initial values, outputs and gradients, and their error against float64.
import copy
import hashlib
import json
import math
import pathlib
import random
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
INPUTS = {"encoder_layer": ["src"], "encoder": ["src"], "decoder_layer": ["tgt", "src"], "decoder": ["tgt", "src"],
          "transformer": ["src", "tgt"]}


def numbers(x):
    return [v if math.isfinite(v := float(format(e, ".9g"))) else str(v) for e in x.detach().double().flatten().tolist()]


def make(case):
    """The module of a case, drawn by its seed, with norms and biases that are not all ones and zeros."""
    torch.manual_seed(case["seed"])
    o = case["options"]
    layer = dict(dim_feedforward=o["dim_feedforward"], dropout=o["dropout"], activation=o["activation"],
                 layer_norm_eps=o["layer_norm_eps"], batch_first=o["batch_first"], norm_first=o["norm_first"], bias=o["bias"])
    sizes, kind = (o["d_model"], o["nhead"]), case["kind"]
    norm = nn.LayerNorm(o["d_model"]) if case["norm"] else None
    if kind == "transformer":
        module = nn.Transformer(*sizes, num_encoder_layers=2, num_decoder_layers=1, **layer)
    elif kind.startswith("encoder"):
        module = nn.TransformerEncoderLayer(*sizes, **layer)
        module = nn.TransformerEncoder(module, 2, norm) if kind == "encoder" else module
    else:
        module = nn.TransformerDecoderLayer(*sizes, **layer)
        module = nn.TransformerDecoder(module, 2, norm) if kind == "decoder" else module
    case["initial"] = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in module.parameters())).hexdigest()
    case["names"] = list(module.state_dict())
    for parameter in module.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, 0.5, 0.2)
    return module


def mask(kind, batch, heads, rows, keys):
    """A mask of attention; drawn from the global generator."""
    if kind == "causal":
        return nn.Transformer.generate_square_subsequent_mask(rows)
    if kind == "bool":
        return torch.rand(rows, keys) > 0.6
    return torch.randn(rows, keys) if kind == "float" else torch.randn(batch * heads, rows, keys)


def padding(lengths, rows, batched, dtype):
    hidden = torch.tensor([[j >= length for j in range(rows)] for length in lengths])
    hidden = hidden if batched else hidden[0]
    return hidden if dtype == "bool" else torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)


def call_of(case):
    """The inputs and keyword arguments of the call, drawn after the module."""
    o, batch = case["options"], case["batch"]
    rows = {"src": case["src_rows"], "tgt": case["tgt_rows"]}
    inputs = {}
    for name in ("src", "tgt"):
        shape = (batch, rows[name], o["d_model"]) if o["batch_first"] else (rows[name], batch, o["d_model"])
        inputs[name] = torch.randn(*(shape if case["batched"] else (rows[name], o["d_model"])))
    sides = {"src_mask": "ss", "mask": "ss", "tgt_mask": "tt", "memory_mask": "ts"}
    arguments = {}
    for name, kind in case["masks"].items():
        q, k = (rows["src" if side == "s" else "tgt"] for side in sides[name])
        arguments[name] = mask(kind, batch, o["nhead"], q, k)
    for name, (kind, lengths) in case["padding"].items():
        arguments[name] = padding(lengths, rows["tgt" if name.startswith("tgt") else "src"], case["batched"], kind)
    return [inputs[name] for name in INPUTS[case["kind"]]], arguments | case["hints"]


def run(module, inputs, arguments, case, dtype):
    module = copy.deepcopy(module).to(dtype).train(case["mode"] == "train")
    inputs = [x.to(dtype) for x in inputs]
    arguments = {name: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                 for name, x in arguments.items()}
    torch.manual_seed(case["seed"] + 1)
    if case["mode"] == "no_grad":
        with torch.no_grad():
            return [module(*inputs, **arguments)]
    inputs = [x.requires_grad_() for x in inputs]
    output = module(*inputs, **arguments)
    factors = torch.linspace(-1, 1, output.numel()).to(dtype).reshape(output.shape)
    gradients = torch.autograd.grad((output * output * factors).sum(), [*inputs, *module.parameters()])
    return [output, *gradients]


def finish(case):
    module = make(case)
    inputs, arguments = call_of(case)
    torch.backends.mha.set_fastpath_enabled(False)
    slow, truth = (run(module, inputs, arguments, case, dtype) for dtype in (torch.float32, torch.float64))
    torch.backends.mha.set_fastpath_enabled(True)
    case["after"] = numbers(torch.rand(1))  # the generator's position
    case["output"] = numbers(slow[0])
    if case["mode"] == "no_grad":
        case["fast"] = numbers(run(module, inputs, arguments, case, torch.float32)[0])
    else:
        case["gradients"] = [numbers(x) for x in slow[1:]]
    case["errors"] = [float(format((a.double() - b).abs().max().item(), ".3g")) for a, b in zip(slow, truth)]
    return case


def random_case(seed):
    r = random.Random(seed)
    kind = ["encoder_layer", "encoder", "decoder_layer", "decoder", "transformer"][seed % 5]
    mode = ["train", "eval", "no_grad"][seed % 3]
    heads, batched = r.choice([1, 2, 2]), r.random() < 0.8
    options = dict(d_model=r.choice([4, 6]), nhead=heads, dim_feedforward=r.choice([3, 6]),
                   dropout=r.choice([0.0, 0.2, 0.5]), activation=r.choice(["relu", "gelu"]),
                   layer_norm_eps=r.choice([1e-5, 1e-3]), batch_first=r.random() < 0.6, norm_first=r.random() < 0.4,
                   bias=r.random() < 0.8)
    batch = 3 if batched else 1
    case = dict(seed=seed, kind=kind, mode=mode, norm=r.random() < 0.5, options=options, batch=batch, batched=batched,
                src_rows=r.choice([3, 4]), tgt_rows=r.choice([2, 5]), masks={}, padding={}, hints={})
    names = {"encoder_layer": ["src_mask"], "encoder": ["mask"], "transformer": ["src_mask", "tgt_mask", "memory_mask"]}
    for name in names.get(kind, ["tgt_mask", "memory_mask"]):
        square = name != "memory_mask"
        # a fast path takes every float that is not 0 for -inf (docs/torch.md)
        choices = ["bool", *(["causal"] if square else []), *([] if mode == "no_grad" else ["float", "heads"])]
        if r.random() < 0.6:
            case["masks"][name] = r.choice(choices)
    paddings = {"encoder_layer": ["src_key_padding_mask"], "encoder": ["src_key_padding_mask"],
                "transformer": ["src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask"]}
    for name in paddings.get(kind, ["tgt_key_padding_mask", "memory_key_padding_mask"]):
        if r.random() < 0.6:
            rows = case["tgt_rows" if name.startswith("tgt") else "src_rows"]
            case["padding"][name] = [r.choice(["bool", "bool", "float"]),
                                     [r.choice([rows, rows - 1, 1, 0]) for _ in range(batch)]]
    for name, hint in (("src_mask", "is_causal"), ("tgt_mask", "tgt_is_causal")):
        if case["masks"].get(name) == "causal" and kind.endswith("layer") and r.random() < 0.5:
            case["hints"][hint] = True
    return case


cases = [finish(random_case(seed)) for seed in range(60)]
text = ",\n".join(json.dumps(case) for case in cases)
pathlib.Path(__file__).with_name("transformer.json").write_text(
    '{"torch": "%s", "cases": [\n%s\n]}\n' % (torch.__version__.split("+")[0], text))
