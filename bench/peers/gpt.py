# bench/peers/gpt.py: a GPT in PyTorch with the layers, initial values and numbers of attn's LanguageModel,
# to compare with it.
import math

import torch
from torch import nn
from torch.nn import functional as F

SIZES = {  # layers, heads, width, context
    "nano": (4, 4, 128, 64),
    "baby": (6, 6, 384, 256),
    "small": (12, 12, 768, 1024),
}


class Attention(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x, cache=None):
        batch, tokens, width = x.shape
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).split(width, dim=2))
        if cache is not None:
            k, v = cache.append(self, k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1)
        return self.c_proj(y.transpose(1, 2).reshape(batch, tokens, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(heads, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x, cache=None):
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))


class Cache:
    """Keys and values of every layer, in memory that is allocated for all tokens beforehand."""

    def __init__(self, tokens):
        self.tokens, self.length, self.layers = tokens, 0, {}

    def append(self, layer, k, v):
        if layer not in self.layers:
            shape = (*k.shape[:2], self.tokens, k.shape[3])
            self.layers[layer] = (k.new_empty(shape), v.new_empty(shape))
        end = self.length + k.shape[2]
        for kept, new in zip(self.layers[layer], (k, v)):
            kept[:, :, self.length:end] = new
        return tuple(kept[:, :, :end] for kept in self.layers[layer])


class GPT(nn.Module):
    """Created after torch.manual_seed(s), it has the weights of attn::LanguageModel created
    after attn::manual_seed(s)."""

    def __init__(self, size, vocab_size):
        super().__init__()
        layers, heads, width, self.context = SIZES[size]
        self.wte = nn.Embedding(vocab_size, width)
        self.wpe = nn.Embedding(self.context, width)
        self.h = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for name, weight in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers))

    def forward(self, ids, cache=None):
        start = cache.length if cache is not None else 0
        x = self.wte(ids) + self.wpe(torch.arange(start, start + ids.shape[1]))
        for block in self.h:
            x = block(x, cache)
        if cache is not None:
            cache.length += ids.shape[1]
        return self.lm_head(self.ln_f(x))

    def loss(self, ids, targets):
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())
