#!/usr/bin/env python3
# bench/peers/linear_attention.py: the gated delta rule beside transformers' torch functions: times in turns, or the
# memory of one training step.
import argparse
import resource

import torch

import attn
from turns import in_turns


def operands(rows, key_heads, value_heads, dim):
    torch.manual_seed(0)
    q, k = (torch.randn(1, rows, key_heads, dim) for _ in range(2))
    v = torch.randn(1, rows, value_heads, dim)
    return q, k, v, -torch.rand(1, rows, value_heads), torch.rand(1, rows, value_heads)


def by_attn(q, k, v, g, beta):
    return attn.gated_delta_rule(*(x.transpose(1, 2) for x in (q, k, v, g, beta)), l2norm=True)[0].transpose(1, 2)


def by_transformers(q, k, v, g, beta):
    import transformers
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    transformers.logging.set_verbosity_error()
    return torch_chunk_gated_delta_rule(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)[0]


def main():
    parser = argparse.ArgumentParser(description="the gated delta rule of attn and of transformers")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--heads", type=int, nargs=2, default=(16, 32), help="of q and k, and of v")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="only attn's: the peak of one forward and backward pass")
    given = parser.parse_args()
    tensors = operands(given.rows, *given.heads, given.dim)
    shape = f"{given.rows} rows, {given.heads[0]} and {given.heads[1]} heads of {given.dim}"
    if not given.memory:
        with torch.no_grad():
            ours, theirs = in_turns([lambda: by_attn(*tensors), lambda: by_transformers(*tensors)], given.rounds)
        print(f"forward, {shape}: attn {ours:.1f} ms, transformers {theirs:.1f} ms, {theirs / ours:.2f}", flush=True)
    for x in tensors:
        x.requires_grad_()
    if given.memory:
        megabytes = sum(x.numel() for x in tensors) * 4 / 2**20
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spent = milliseconds(lambda: by_attn(*tensors).sum().backward())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{shape}: inputs {megabytes:.0f} MB, the pass {peak - before:.0f} MB more, {spent / 1e3:.1f} s")
        return

    def step(function):
        function(*tensors).sum().backward()

    ours, theirs = in_turns([lambda: step(by_attn), lambda: step(by_transformers)], given.rounds)
    print(f"forward and backward: attn {ours:.1f} ms, transformers {theirs:.1f} ms, {theirs / ours:.2f}")


if __name__ == "__main__":
    main()
