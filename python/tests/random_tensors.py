# python/tests/random_tensors.py: normal tensors of torch, the same in every run and every test.
import torch


def draw(*sizes, dtype=torch.float32, again=0):
    """Normal numbers that depend on the sizes (and `again`) alone, drawn in float64 and rounded to dtype."""
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes) + 100_000 * again)
    return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype)
