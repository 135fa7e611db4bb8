# python/attn/torch/_changes.py: whether what a backward pass reads again is still what the call read.
"""torch counts the changes of a tensor in place. NumPy's arrays count none: of them a checksum is taken."""

import numpy
import torch

from attn import _core


def of_options(options):
    """(name, array) of the options and of what a mask, a bias, a score, an expression or Weights are made of."""
    for name, x in zip(_core.attention_options, options):
        if isinstance(x, (torch.Tensor, numpy.ndarray)):
            yield name, x
        for array in getattr(x, "arrays", ()):
            yield f"the array of {name}", array


def _stamp(x):
    if isinstance(x, torch.Tensor):
        return None if x.is_inference() else x._version
    if not isinstance(x, numpy.ndarray):  # what speaks DLPack: JAX's never change
        return None
    own = x[tuple(slice(1) if stride == 0 else slice(None) for stride in x.strides)]  # what was broadcast, once
    return _core.checksum(numpy.ascontiguousarray(own).view(numpy.uint8)) if own.size else 0


def watched(arrays):
    """What `check` looks at, of (name, array)."""
    return [(name, x, _stamp(x)) for name, x in arrays]


def check(watched):
    """RuntimeError, as torch's own, for what was changed."""
    for name, x, stamp in watched:
        if stamp is not None and _stamp(x) != stamp:
            raise RuntimeError(f"attention: {name} of shape {list(x.shape)} was changed in place after the call; its gradients need it as it was")
