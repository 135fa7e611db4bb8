# examples/python/train_with_torch.py: replaces torch's attention by attn's in a training loop, which stays the same.
"""A small causal model learns to copy a word: with the same seed,
once with torch's scaled_dot_product_attention and once with attn's."""

import time

import torch

import attn.torch


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(-2))


class Positions(torch.nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(length, width))

    def forward(self, x):
        return x + self.table[: x.shape[1]]


def train(steps=100):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(16, 64), Positions(24, 64), Block(64, 4), Block(64, 4),
                                torch.nn.Linear(64, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        word = torch.randint(16, (32, 12))
        text = torch.cat((word, word), 1)
        logits = model(text[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits[:, 11:].flatten(0, 1), text[:, 12:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


begin = time.perf_counter()
by_torch = train()
middle = time.perf_counter()
with attn.torch.patch(linear=True):
    by_attn = train()
end = time.perf_counter()
print(f"loss after 100 steps: torch {by_torch:.4f} in {middle - begin:.2f} s, "
      f"attn {by_attn:.4f} in {end - middle:.2f} s")
assert abs(by_torch - by_attn) < 0.05
