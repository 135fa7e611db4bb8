#!/usr/bin/env python3
# bench/peers/python_calls.py: the cost of a call from Python:
# rows of `attn bench` on torch tensors compared with C++, and the smallest call.
import argparse
import os
import statistics
import time
import timeit

import attn_case
import native


def median_us(call, rounds):
    call()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def call_of(case, torch, sdpa):
    b, hq, hk, tq, tk, d, dv = case.shape
    dtype = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[case.dtype]
    q, k, v = (torch.randn(sizes).to(dtype) for sizes in ((b, hq, tq, d), (b, hk, tk, d), (b, hk, tk, dv)))
    causal = case.mask == "causal"
    return lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=hq != hk)


def rows(options):
    import torch

    import attn

    child = attn_case.Attn(options.command, os.environ.copy())
    lines = options.lines or [f"attention {dtype} {shape} mask={mask}" for dtype in ("f32", "bf16") for shape in SHAPES
                              for mask in ("none", "causal")]
    print(f"{'row':<58} {'C++ us':>9} {'Python us':>9} {'ratio':>6}")
    for line in lines:
        case = attn_case.parse(line)
        with torch.no_grad():
            call = call_of(case, torch, attn.scaled_dot_product_attention)
            call()
            ratios, theirs, ours = [], [], []
            for _ in range(options.windows):
                time.sleep(0.02)  # the other's threads sleep
                theirs.append(child.microseconds(line))
                time.sleep(0.02)
                ours.append(median_us(call, max(9, min(200, int(3e4 / theirs[-1])))))
                ratios.append(ours[-1] / theirs[-1])
        print(f"{line:<58} {statistics.median(theirs):>9.1f} {statistics.median(ours):>9.1f} "
              f"{statistics.median(ratios):>6.3f}")
    child.close()


def smallest():
    import numpy
    import torch

    import attn

    x = numpy.random.standard_normal((1, 1, 8, 8)).astype(numpy.float32)
    y = torch.from_numpy(x)
    best = lambda call: min(timeit.repeat(call, number=5000, repeat=9)) / 5000 * 1e6
    with torch.no_grad():
        print(f"1,1,8,8   NumPy {best(lambda: attn.scaled_dot_product_attention(x, x, x)):.2f} us")
        print(f"          torch {best(lambda: attn.scaled_dot_product_attention(y, y, y)):.2f} us")
        print(f"          torch's own {best(lambda: torch.nn.functional.scaled_dot_product_attention(y, y, y)):.2f} us")


SHAPES = ("B=8 Hq=12 Tq=512 D=64", "Hq=12 Tq=512 D=64", "Hq=12 Tq=1024 D=64", "Hq=16 Tq=2048 D=128")


def main():
    parser = argparse.ArgumentParser(description="what a call costs from Python")
    parser.add_argument("lines", nargs="*", help="rows, as attn bench --list shows them")
    parser.add_argument("--command", default=native.ROOT / "build/release/attn", help="the command attn")
    parser.add_argument("--windows", type=int, default=9, help="measurements of each; their median counts")
    options = parser.parse_args()
    smallest()
    rows(options)


if __name__ == "__main__":
    main()
