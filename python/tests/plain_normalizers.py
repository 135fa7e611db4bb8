# python/tests/plain_normalizers.py: normalizers with a threshold in plain torch, over the last dim.
import torch


def plain_sparsemax(s):
    """By sorting, as the paper gives it."""
    z = s.sort(-1, descending=True).values
    n = torch.arange(1, s.shape[-1] + 1, dtype=s.dtype)
    count = (1 + n * z > z.cumsum(-1)).sum(-1, keepdim=True)
    return torch.clamp(s - (z.cumsum(-1).gather(-1, count - 1) - 1) / count, min=0)


def plain_entmax15(s):
    """By sorting, as the paper gives it."""
    s = (s - s.max(-1, keepdim=True).values.detach()) / 2
    z = s.sort(-1, descending=True).values
    n = torch.arange(1, s.shape[-1] + 1, dtype=s.dtype)
    mean, square = z.cumsum(-1) / n, z.square().cumsum(-1) / n
    t = mean - torch.sqrt(torch.clamp((1 - n * (square - mean.square())) / n, min=1e-12))
    count = (t <= z).sum(-1, keepdim=True)
    return torch.clamp(s - t.gather(-1, count - 1), min=0).square()
