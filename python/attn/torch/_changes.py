# python/attn/torch/_changes.py: whether what a backward pass reads again is still what the call read.
"""torch counts the changes of a tensor in place. What counts none is watched by a checksum of its memory (NumPy's arrays, tensors of inference mode, what
speaks DLPack), or copied where torch itself is to keep it."""

import numpy
import torch

from attn import _core


def of_options(options):
    """(name, array) of the options and of what a mask, a bias, a score, an expression or Weights are made of."""
    for name, x in zip(_core.attention_options, options):
        if hasattr(x, "__dlpack__"):
            yield name, x
        for array in getattr(x, "arrays", ()):
            yield f"the array of {name}", array


def _once(x, strides):
    """What was broadcast, once."""
    return x[tuple(slice(1) if stride == 0 else slice(None) for stride in strides)] if 0 in strides else x


def owned(x):
    """`x` for torch to save, which takes no tensor of inference mode: a copy of one."""
    return _copy(x) if x is not None and x.is_inference() else x


def owned_mask(x):
    """A mask for torch to save: its own functions keep what they make of one of bool, which may be changed after the call."""
    return _copy(x) if x is not None and x.dtype is torch.bool else owned(x)


def _copy(x):
    return _once(x, x.stride()).clone().expand(x.shape)


def _memory(x):
    """The bytes of an array."""
    if isinstance(x, numpy.ndarray):
        return numpy.ascontiguousarray(_once(x, x.strides)).view(numpy.uint8)
    if not isinstance(x, torch.Tensor):
        x = torch.utils.dlpack.from_dlpack(x.__dlpack__())
    return _once(x, x.stride()).detach().resolve_neg().flatten().view(torch.uint8).numpy()


def _stamp(x):
    """A whole number of 64 bits, another one once `x` is changed."""
    if isinstance(x, torch.Tensor) and not x.is_inference():
        return x._version
    return 0 if x is None else _core.checksum(_memory(x)) - 2**63


def watched(arrays):
    """What `check` looks at, of (name, array)."""
    return [(name, x, _stamp(x)) for name, x in arrays]


def stamps(arrays):
    """The numbers alone, as a tensor that goes from the passes of a graph to each other."""
    return torch.tensor([stamp for _, _, stamp in watched(arrays)], dtype=torch.int64)


def check_stamps(arrays, stamps):
    check([(*array, stamp) for array, stamp in zip(arrays, stamps.tolist())])


def check(watched):
    """RuntimeError, as torch's own, for what was changed."""
    for name, x, stamp in watched:
        if _stamp(x) != stamp:
            raise RuntimeError(f"attention: {name} of shape {list(x.shape)} was changed in place after the call; its gradients need it as it was")
