#!/usr/bin/env python3
# bench/peers/beside.py: attn and PyTorch in one process, in turns without pauses:
# how much the threads of each slow the other.
import argparse
import ctypes
import os
import statistics
import sys
import time

import native


def time_of(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def alone(call, rounds):
    time.sleep(0.3)  # the other's threads sleep
    for _ in range(20):
        call()
    return statistics.median(time_of(call) for _ in range(rounds)) * 1e6


def in_turns(first, second, rounds):
    for _ in range(20):
        first()
        second()
    times = [(time_of(first), time_of(second)) for _ in range(rounds)]
    return [statistics.median(t) * 1e6 for t in zip(*times)]


def main():
    parser = argparse.ArgumentParser(description="attn beside PyTorch in one process")
    parser.add_argument("--rounds", type=int, default=300, help="calls of a measurement")
    parser.add_argument("--windows", type=int, default=9, help="measurements; their median counts")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    library = native.ROOT / "build/release/src"
    beside = native.load("beside", f"-I{native.ROOT}/include", f"-L{library}", f"-Wl,-rpath,{library}", "-lattn")
    beside.beside_make.restype = ctypes.c_void_p
    beside.beside_make.argtypes = [ctypes.c_int] + [ctypes.c_int64] * 3
    beside.beside_call.argtypes = [ctypes.c_void_p]
    work = beside.beside_make(options.threads, 8, 128, 64)
    a, b, x = torch.randn(192, 192), torch.randn(192, 192), torch.randn(192, 192)

    def of_attn():
        beside.beside_call(work)

    def of_torch():
        torch.exp(torch.mm(a, b) * 1e-3 + x)

    windows = []
    for _ in range(options.windows):
        windows.append((alone(of_torch, options.rounds), alone(of_attn, options.rounds),
                        *in_turns(of_torch, of_attn, options.rounds)))
    torch_alone, attn_alone, torch_beside, attn_beside = (statistics.median(column) for column in zip(*windows))
    slower = {"torch": statistics.median(w[2] / w[0] for w in windows),
              "attn": statistics.median(w[3] / w[1] for w in windows)}
    print(f"torch {torch.__version__}, {options.threads} threads; microseconds of a call, alone and in turns")
    print(f"torch  {torch_alone:8.1f} {torch_beside:8.1f}   x {slower['torch']:.3f}")
    print(f"attn   {attn_alone:8.1f} {attn_beside:8.1f}   x {slower['attn']:.3f}")
    return 0 if max(slower.values()) <= 1.15 else 1


if __name__ == "__main__":
    sys.exit(main())
