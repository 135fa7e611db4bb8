# tests/golden/norms/make.py: writes rms_norm.json with PyTorch 2.13.0 (CPU): inputs, torch's results, and their error against float64.
import json
import pathlib

import torch
from torch.nn.functional import rms_norm

torch.manual_seed(1)
names = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def tensor(x):
    digits = ".17g" if x.dtype == torch.float64 else ".9g"
    return {"dtype": names[x.dtype], "shape": list(x.shape), "values": [float(format(v, digits)) for v in x.double().flatten().tolist()]}


def case(name, x, shape, weight=None, eps=None):
    result = rms_norm(x, shape, weight, eps)
    dims = tuple(range(-len(shape), 0))
    wide, epsilon = x.double(), eps if eps is not None else torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    truth = wide / torch.sqrt((wide * wide).mean(dims, keepdim=True) + epsilon) * (1 if weight is None else weight.double())
    inputs = {"input": tensor(x)} | ({} if weight is None else {"weight": tensor(weight)})
    options = {"normalized_shape": list(shape)} | ({} if eps is None else {"eps": eps})
    return {"name": name, "inputs": inputs, "options": options, "expect": {"output": tensor(result)},
            "torch_error_vs_float64": (result.double() - truth).abs().max().item()}


x = torch.randn(3, 5)
cases = [
    case("last dim", x, (5,)),
    case("weight and eps", x, (5,), torch.randn(5), 1e-6),
    case("two dims", torch.randn(2, 3, 4), (3, 4), torch.randn(3, 4), 1e-3),
    case("small numbers: the default eps counts", x * 1e-4, (5,)),
    case("zeros", torch.zeros(2, 5), (5,)),
    case("f64", torch.randn(2, 7, dtype=torch.float64) * 1e-4, (7,)),
    case("bf16", (torch.randn(2, 64) * 1e-3).bfloat16(), (64,), torch.randn(64).bfloat16()),
    case("f16", (torch.randn(2, 64) * 1e-3).half(), (64,), torch.randn(64).half()),
]
text = ",\n".join(json.dumps(c) for c in cases)
pathlib.Path(__file__).with_name("rms_norm.json").write_text('{"torch": "%s", "cases": [\n%s\n]}\n' % (torch.__version__.split("+")[0], text))
