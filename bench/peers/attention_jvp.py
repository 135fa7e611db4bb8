#!/usr/bin/env python3
# bench/peers/attention_jvp.py: forward mode through attention beside torch.func.jvp over plain torch operations, of the
# output or of a gradient (a product with second derivatives): times in turns, and the memory of each.
import argparse
import subprocess
import sys

import torch

import attn
import attn.torch
from memory import peak
from turns import in_turns


def plain(q, k, v):
    return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v


def ours(q, k, v):
    return attn.torch.scaled_dot_product_attention(q, k, v)


FUNCTIONS = {"attn": ours, "torch": plain}


def measured(name, given, x):
    """torch.func.jvp of the function, or of the gradients of half the sum of its squares."""
    f = FUNCTIONS[name]
    first = torch.func.grad(lambda *x: f(*x).square().sum() / 2, (0, 1, 2)) if given.second else f
    return torch.func.jvp(first, tuple(x[:3]), tuple(x[3:]))


def operands(given):
    torch.manual_seed(0)
    return [torch.randn(1, given.heads, given.rows, given.dim) for _ in range(6)]


def main():
    parser = argparse.ArgumentParser(description="torch.func.jvp through attn and through plain operations")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--memory", choices=FUNCTIONS, help="only the peak of one call of this function")
    parser.add_argument("--second", action="store_true", help="jvp of the gradients: second derivatives")
    given = parser.parse_args()
    if given.memory:
        x = operands(given)
        print(f"{peak(lambda: measured(given.memory, given, x)):.0f}")
        return
    x = operands(given)
    calls = [lambda name=name: measured(name, given, x) for name in FUNCTIONS]
    times = in_turns(calls, given.rounds)
    forward = in_turns([lambda: ours(*x[:3])], given.rounds)[0]
    again = [sys.executable, __file__, f"--rows={given.rows}", f"--heads={given.heads}", f"--dim={given.dim}",
             *(["--second"] if given.second else [])]
    peaks = [subprocess.run([*again, "--memory", name], capture_output=True, text=True, check=True).stdout.strip()
             for name in FUNCTIONS]
    what = "jvp of grad" if given.second else "jvp"
    print(f"{what}, {given.heads} heads of {given.rows} x {given.dim}: attn {times[0]:.1f} ms ({forward:.1f} ms the "
          f"forward pass alone), torch {times[1]:.1f} ms, {times[1] / times[0]:.2f}; {peaks[0]} MB and {peaks[1]} MB")


if __name__ == "__main__":
    main()
