#!/usr/bin/env python3
# bench/peers/flash_attn_cpu.py: what a module with flash-attn's functions does with each of their arguments on CPU
# tensors: honoured, ignored without a word, or refused.
"""By default the module is the flash-attn2 of the kernels hub, which the package `kernels` fetches; --module names an
installed one. Every call is compared with the formula in float64 and with the same call without the argument."""
import argparse
import importlib
import sys

import torch

from attn.integrations import flash_attn as ours

HUB = "kernels-community/flash-attn2"
LENGTHS, HEADS, DIM = (37, 90), 4, 32


def theirs(given):
    """The module, or a line that says what is missing."""
    if given.module:
        try:
            return importlib.import_module(given.module)
        except ImportError as missing:
            raise SystemExit(f"flash_attn_cpu: there is no module {given.module}: {missing}")
    try:
        from kernels import get_kernel
    except ImportError:
        raise SystemExit("flash_attn_cpu: the package kernels is not installed; pip install kernels, or name a module "
                         "with --module")
    try:
        return get_kernel(HUB)
    except Exception as error:  # no network, no build for this system
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SystemExit(f"flash_attn_cpu: the kernels hub gave no {HUB}: {reason}")


def drawn(dtype):
    torch.manual_seed(0)
    return [torch.randn(sum(LENGTHS), HEADS, DIM).to(dtype) for _ in range(3)]


def formula(q, k, v, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, softmax_scale=None,
            seqused_k=None, **_):
    """The output of all sequences, in float64."""
    parts, first = [], 0
    for n, rows in enumerate(LENGTHS):
        x, y, z = (t[first : first + rows].double().transpose(0, 1) for t in (q, k, v))
        distance = torch.arange(rows) - torch.arange(rows).unsqueeze(1)
        s = x @ y.transpose(1, 2) * (DIM**-0.5 if softmax_scale is None else softmax_scale)
        if softcap:
            s = torch.tanh(s / softcap) * softcap
        if alibi_slopes is not None:
            s = s - alibi_slopes.double().view(-1, 1, 1) * distance.abs()
        left, right = window_size[0], 0 if causal else window_size[1]
        hidden = ((distance > right) & (right >= 0)) | ((distance < -left) & (left >= 0))
        if seqused_k is not None:
            hidden = hidden | (torch.arange(rows) >= seqused_k[n])
        parts.append((s.masked_fill(hidden, -torch.inf).softmax(-1) @ z).transpose(0, 1))
        first += rows
    return torch.cat(parts)


ARGUMENTS = {
    "causal": dict(causal=True),
    "window_size": dict(causal=True, window_size=(8, 0)),
    "softmax_scale": dict(softmax_scale=0.5),
    "softcap": dict(softcap=1.0),
    "alibi_slopes": dict(alibi_slopes=torch.tensor([0.5, 0.25, 0.125, 0.0625])),
    "dropout_p": dict(dropout_p=0.5),
    "seqused_k": dict(seqused_k=torch.tensor([5, 7], dtype=torch.int32)),
    "return_attn_probs": dict(return_attn_probs=True),
}


def call(module, tensors, options):
    ends = torch.tensor([0, LENGTHS[0], sum(LENGTHS)], dtype=torch.int32)
    return module.flash_attn_varlen_func(*tensors, ends, ends, max(LENGTHS), max(LENGTHS), **options)


def verdict(module, tensors, name):
    """honoured, ignored, wrong, or refused with the first line of the error."""
    options = ARGUMENTS[name]
    try:
        result = call(module, tensors, options)
    except Exception as error:
        return "refused: " + (str(error).splitlines() or [type(error).__name__])[0][:80]
    if name == "return_attn_probs":
        there = isinstance(result, tuple) and len(result) > 1 and result[1] is not None and result[1].numel() > 0
        return "honoured" if there else "ignored: no softmax_lse"
    y = (result[0] if isinstance(result, tuple) else result).double()
    rest = {key: x for key, x in options.items() if key == "causal" and name != "causal"}
    without = formula(*tensors, **rest)
    near = lambda truth: (y - truth).abs().max() <= 0.02 * truth.abs().max()  # noqa: E731; 16 bits
    if name == "dropout_p":  # the mean over many weights stays, single rows move
        return "ignored" if near(without) else "honoured"
    if near(formula(*tensors, **options)):
        return "honoured"
    return "ignored" if near(without) else "wrong"


def main():
    parser = argparse.ArgumentParser(description="which arguments of flash_attn_varlen_func a module honours on a CPU")
    parser.add_argument("--module", help="an installed module with flash_attn_varlen_func")
    given = parser.parse_args()
    module = theirs(given)
    if not hasattr(module, "flash_attn_varlen_func"):
        raise SystemExit(f"flash_attn_cpu: {getattr(module, '__name__', HUB)} has no flash_attn_varlen_func")
    tensors = drawn(torch.bfloat16)
    print(f"{'argument':<20} {'attn':<12} {given.module or HUB}")
    bad = False
    for name in ARGUMENTS:
        mine = verdict(ours, tensors, name)
        bad = bad or mine != "honoured"
        print(f"{name:<20} {mine:<12} {verdict(module, tensors, name)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
