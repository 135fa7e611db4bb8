# python/attn/_watched.py: detects whether an array that a backward pass reads again was changed after the call.
"""torch counts the in-place changes of a tensor. NumPy arrays, tensors of inference mode and DLPack arrays have no such
count: a checksum watches their memory. Nothing here needs torch."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy

from attn import _core


def of_options(options: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yields (name, array) for the options and for the arrays of a mask, a bias, a score, an expression or Weights."""
    for name, x in zip(_core.attention_options, options):
        if hasattr(x, "__dlpack__"):
            yield name, x
        for array in getattr(x, "arrays", ()):
            yield f"the array of {name}", array


def once(x: Any, strides: tuple[int, ...]) -> Any:
    """Returns each stored element of a broadcast array once."""
    return x[tuple(slice(1) if stride == 0 else slice(None) for stride in strides)] if 0 in strides else x


def _memory(x: Any) -> Any:
    """Returns the bytes of an array."""
    torch = sys.modules.get("torch")
    if not isinstance(x, numpy.ndarray) and torch is not None:
        if not isinstance(x, torch.Tensor):
            x = torch.utils.dlpack.from_dlpack(x.__dlpack__())
        return once(x, x.stride()).detach().resolve_neg().flatten().view(torch.uint8).numpy()
    if not isinstance(x, numpy.ndarray):
        try:
            x = numpy.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError):  # a dtype that NumPy itself does not have
            x = numpy.asarray(x)
    return numpy.ascontiguousarray(once(x, x.strides)).view(numpy.uint8)


def _stamp(x: Any) -> int:
    """Returns a 64-bit number that changes if `x` is changed: its version counter, or a checksum."""
    if hasattr(x, "is_inference") and not x.is_inference():  # a tensor of torch
        return x._version
    return 0 if x is None else _core.checksum(_memory(x)) - 2**63


def watched(arrays: Iterable[tuple[str, Any]]) -> list[tuple[str, Any, int]]:
    """Returns the list that `check` compares later, from pairs (name, array)."""
    return [(name, x, _stamp(x)) for name, x in arrays]


def check(watched: Iterable[tuple[str, Any, int]], function: str = "attention") -> None:
    """Raises a RuntimeError like torch's own if an array was changed."""
    for name, x, stamp in watched:
        if _stamp(x) != stamp:
            raise RuntimeError(f"{function}: {name} of shape {list(x.shape)} was changed in place after the call; its "
                               "gradients need it as it was")
