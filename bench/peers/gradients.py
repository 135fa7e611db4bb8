#!/usr/bin/env python3
# bench/peers/gradients.py: a forward and a backward pass of attention, attn and eager PyTorch in turns;
# the ratio is that of the medians.
import argparse
import os
import statistics
import subprocess
import sys
import time

import native

options = argparse.ArgumentParser(description="forward and backward, attn beside PyTorch")
options.add_argument("--only", default="", help="rows that hold this text: additive, dropout, bias, plain")
options.add_argument("--seconds", type=float, default=1.0, help="of each turn")
options.add_argument("--rounds", type=int, default=2)
options.add_argument("--threads", type=int, default=os.cpu_count())
options.add_argument("--torch", default="", help=argparse.SUPPRESS)
arguments = options.parse_args()


def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name))


def torch_turn(name):
    """In a separate process, whose peak memory is that of this call."""
    import torch

    torch.set_num_threads(arguments.threads)
    if name == "additive":
        w_q, w_k, w = torch.randn(256, 256) / 16, torch.randn(256, 256) / 16, torch.randn(256) / 16
        inputs = [*torch.randn(3, 4, 512, 256).unbind(), w_q, w_k, w]

        def forward(q, k, v, w_q, w_k, w):
            return torch.softmax(torch.tanh((q @ w_q).unsqueeze(2) + (k @ w_k).unsqueeze(1)) @ w, -1) @ v
    else:
        inputs = [*torch.randn(3, 1, 16, 2048, 128).unbind()]
        if name == "bias":
            inputs.append(torch.randn(2048, 2048))
        dropout = 0.1 if name == "dropout" else 0.0

        def forward(q, k, v, bias=None):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)

    incoming = torch.randn_like(inputs[2])
    inputs = [x.detach().requires_grad_() for x in inputs]
    before = memory("VmRSS")
    torch.autograd.grad(forward(*inputs), inputs, incoming)
    times, end = [], time.perf_counter() + arguments.seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        torch.autograd.grad(forward(*inputs), inputs, incoming)
        times.append(1e3 * (time.perf_counter() - begin))
    results = (sum(x.numel() for x in inputs) + incoming.numel()) * 4 / 2**20
    print(f"{statistics.median(times):.3f} {memory('VmHWM') - before - results:.1f}")


def built():
    native.BUILT.mkdir(parents=True, exist_ok=True)
    program, release = native.BUILT / "gradients", native.ROOT / "build" / "release" / "src"
    command = ["g++", "-std=c++20", "-O2", "-DATTN_STATIC", "-I", native.ROOT / "include", native.HERE / "gradients.cc",
               "-o", program, release / "libattn.a", "-pthread", "-ldl"]
    subprocess.run(command, check=True)
    return program


if arguments.torch:
    torch_turn(arguments.torch)
    sys.exit()

program, environment = built(), os.environ | {"ATTN_NUM_THREADS": str(arguments.threads)}
print(f"{arguments.threads} threads, forward and backward; MiB beside inputs, output and gradients")
print(f"{'':10}{'attn ms':>10}{'MiB':>8}{'PyTorch ms':>12}{'MiB':>8}{'ratio':>8}")
for name in ("additive", "dropout", "bias", "plain"):
    if arguments.only not in name:
        continue
    turns = {"attn": [], "torch": []}
    for _ in range(arguments.rounds):
        for who, command in (("attn", [program, name, str(arguments.seconds)]),
                             ("torch",
                              [sys.executable, __file__, "--torch", name, "--seconds", str(arguments.seconds),
                               "--threads", str(arguments.threads)])):
            answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            turns[who].append([float(x) for x in answer.split()])
    (ours, our_memory), (theirs, their_memory) = ([statistics.median(column) for column in zip(*turns[who])]
                                                  for who in ("attn", "torch"))
    print(f"{name:10}{ours:10.1f}{our_memory:8.0f}{theirs:12.1f}{their_memory:8.0f}{theirs / ours:8.2f}")
