# python/attn/torch/_mutations.py: keeps the tensors of a call for torch to save, and detects whether an array that a
# backward pass reads again was changed after the call.
"""The counts and checksums are those of attn._watched. What torch itself saves without a count is copied."""

import torch

from attn._watched import check, of_options, once, watched  # noqa: F401


def owned(x):
    """Returns `x`, or a copy, for torch to save: torch does not save tensors of inference mode, so these are copied."""
    return _copy(x) if x is not None and x.is_inference() else x


def owned_mask(x):
    """Returns a mask, or a copy, for torch to save. A bool mask is copied, so it may be changed after the call: torch's
    own functions also save a converted copy."""
    return _copy(x) if x is not None and x.dtype is torch.bool else owned(x)


def _copy(x):
    return once(x, x.stride()).clone().expand(x.shape)


def stamps(arrays):
    """Returns only the version counters and checksums, as a tensor that one pass of a graph hands to the next."""
    return torch.tensor([stamp for _, _, stamp in watched(arrays)], dtype=torch.int64)


def check_stamps(arrays, stamps):
    check([(*array, stamp) for array, stamp in zip(arrays, stamps.tolist())])
