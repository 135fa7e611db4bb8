# python/attn/torch/_mutations.py: detects whether an array that a backward pass reads again was changed after the call.
"""torch counts the in-place changes of a tensor. NumPy arrays, tensors of inference mode and DLPack arrays have no such
count: a checksum watches their memory, or they are copied if torch itself saves them."""

import numpy
import torch

from attn import _core


def of_options(options):
    """Yields (name, array) for the options and for the arrays of a mask, a bias, a score, an expression or Weights."""
    for name, x in zip(_core.attention_options, options):
        if hasattr(x, "__dlpack__"):
            yield name, x
        for array in getattr(x, "arrays", ()):
            yield f"the array of {name}", array


def _once(x, strides):
    """Returns each stored element of a broadcast array once."""
    return x[tuple(slice(1) if stride == 0 else slice(None) for stride in strides)] if 0 in strides else x


def owned(x):
    """Returns `x`, or a copy, for torch to save: torch does not save tensors of inference mode, so these are copied."""
    return _copy(x) if x is not None and x.is_inference() else x


def owned_mask(x):
    """Returns a mask, or a copy, for torch to save. A bool mask is copied, so it may be changed after the call: torch's
    own functions also save a converted copy."""
    return _copy(x) if x is not None and x.dtype is torch.bool else owned(x)


def _copy(x):
    return _once(x, x.stride()).clone().expand(x.shape)


def _memory(x):
    """Returns the bytes of an array."""
    if isinstance(x, numpy.ndarray):
        return numpy.ascontiguousarray(_once(x, x.strides)).view(numpy.uint8)
    if not isinstance(x, torch.Tensor):
        x = torch.utils.dlpack.from_dlpack(x.__dlpack__())
    return _once(x, x.stride()).detach().resolve_neg().flatten().view(torch.uint8).numpy()


def _stamp(x):
    """Returns a 64-bit number that changes if `x` is changed: its version counter, or a checksum."""
    if isinstance(x, torch.Tensor) and not x.is_inference():
        return x._version
    return 0 if x is None else _core.checksum(_memory(x)) - 2**63


def watched(arrays):
    """Returns the list that `check` compares later, from pairs (name, array)."""
    return [(name, x, _stamp(x)) for name, x in arrays]


def stamps(arrays):
    """Returns only the version counters and checksums, as a tensor that one pass of a graph hands to the next."""
    return torch.tensor([stamp for _, _, stamp in watched(arrays)], dtype=torch.int64)


def check_stamps(arrays, stamps):
    check([(*array, stamp) for array, stamp in zip(arrays, stamps.tolist())])


def check(watched):
    """Raises a RuntimeError like torch's own if an array was changed."""
    for name, x, stamp in watched:
        if _stamp(x) != stamp:
            raise RuntimeError(f"attention: {name} of shape {list(x.shape)} was changed in place after the call; its "
                               "gradients need it as it was")
