#!/usr/bin/env python3
# bench/peers/models.py: training steps and decoding of attn's and PyTorch's models, in turns;
# the ratio is that of the medians.
import argparse
import os
import statistics
import subprocess
import time

import torch

import native
from gpt import GPT, Cache

WORK = [("nano", "f32"), ("baby", "f32"), ("baby", "bf16"), ("decode", "f32"), ("decode", "bf16")]
options = argparse.ArgumentParser(description="tokens a second, attn beside PyTorch")
options.add_argument("--only", default="", help="rows that hold this text, as in: nano")
options.add_argument("--seconds", type=float, default=2.0, help="of each turn")
options.add_argument("--rounds", type=int, default=3)
options.add_argument("--threads", type=int, default=os.cpu_count())
arguments = options.parse_args()


def built():
    """attn's side: a program built against the release build."""
    native.BUILT.mkdir(parents=True, exist_ok=True)
    program, release = native.BUILT / "models", native.ROOT / "build" / "release" / "src"
    command = ["g++", "-std=c++20", "-O2", "-DATTN_STATIC", "-I", native.ROOT / "include", native.HERE / "models.cc",
               "-o", program,
               release / "libattn_model.a", release / "libattn.a", "-pthread", "-ldl"]
    subprocess.run(command, check=True)
    return program


def median_seconds(step):
    for _ in range(3):
        step()
    times, end = [], time.perf_counter() + arguments.seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def training(size, dtype):
    """bf16: f32 weights with autocast, as in nanoGPT."""
    batch, model = {"nano": 12, "baby": 8}[size], GPT(size, 65)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)

    def step():
        rows = torch.randint(0, 65, (batch, model.context + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = model.loss(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return lambda: batch * model.context / median_seconds(step)


def decoding(dtype):
    model = GPT("small", 50257).eval().to(torch.bfloat16 if dtype == "bf16" else torch.float32)
    state = {"cache": Cache(257), "next": torch.zeros(1, 1, dtype=torch.long)}

    @torch.inference_mode()
    def step():
        if state["cache"].length >= 256:
            state["cache"].length = 0
        state["next"] = model(state["next"], state["cache"])[:, -1].argmax(-1, keepdim=True)

    return lambda: 1 / median_seconds(step)


torch.set_num_threads(arguments.threads)
program = built()
environment = os.environ | {"ATTN_NUM_THREADS": str(arguments.threads)}
print(f"PyTorch {torch.__version__}, {arguments.threads} threads, tokens a second")
print(f"{'':8}{'dtype':6}{'attn':>10}{'PyTorch':>10}{'ratio':>8}")
for name, dtype in WORK:
    if arguments.only not in f"{name} {dtype}":
        continue
    theirs_of = decoding(dtype) if name == "decode" else training(name, dtype)
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(float(subprocess.run([program, name, dtype, str(arguments.seconds)], env=environment, check=True,
                                         capture_output=True, text=True).stdout))
        theirs.append(theirs_of())
    print(f"{name:8}{dtype:6}{statistics.median(ours):10.1f}{statistics.median(theirs):10.1f}"
          f"{statistics.median(ours) / statistics.median(theirs):8.2f}", flush=True)
