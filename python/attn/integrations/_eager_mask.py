# python/attn/integrations/_eager_mask.py: makes masks in the form of transformers' "eager" implementation;
# the numbers of a mask are computed only when code other than attn reads them.
import copy

import torch
from torch.utils._pytree import tree_map_only
from transformers import masking_utils

from attn.torch import _call


def blind_rows(allowed):
    """Returns [B, 1, Tq, 1], true for rows that see no key under the mask; None if there are none."""
    sees = allowed.any(dim=-1, keepdim=True)
    return None if sees.device.type != "cpu" or sees.all() else ~sees


class EagerMask(torch.Tensor):
    """An additive mask [B, 1, Tq, Tk] (0, or the dtype's lowest number where a key is masked)
    that does not yet take memory.

    attn's function reads the short form: `allowed` (bool); or, if that is None, the mask is causal (`causal` computes
    it). Every other operation computes the numbers and reads them, so code that does not know attn computes the same
    as under "eager".
    """

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, allowed, causal, shape, dtype, device):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)

    def __init__(self, allowed, causal, shape, dtype, device):
        self._allowed, self._causal, self._numbers = allowed, causal, None
        self._shared = self._blind = False  # _blind False: not computed yet

    def numbers(self):
        """Returns the mask as an ordinary tensor."""
        if self._numbers is None:
            allowed = self._causal() if self._allowed is None else self._allowed
            zero = torch.zeros((), dtype=self.dtype, device=self.device)
            self._numbers = torch.where(allowed, zero, torch.finfo(self.dtype).min)
        return self._numbers

    def short_form(self, rows, keys):
        """Returns (causal, mask, blind), which replace the mask in a call with that many rows and keys. blind:
        true for rows that see no key, or None."""
        if self._shared or self.shape[2:] != (rows, keys):
            return False, self.numbers(), None
        if self._blind is False:
            self._blind = None if self._allowed is None else blind_rows(self._allowed)
        return self._allowed is None, self._allowed, self._blind

    # torch does not dispatch these methods to subclasses
    def tolist(self):
        return self.numbers().tolist()

    def numpy(self, **options):
        self._shared = True
        return self.numbers().numpy(**options)

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.numbers(), memo)

    def __reduce_ex__(self, protocol):
        return self.numbers().__reduce_ex__(protocol)

    def __repr__(self, **_):
        return f"EagerMask({self.numbers()!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        # Some operations write to the numbers, or return a view that may be written to: after them
        # `allowed` no longer describes the mask.
        shared = any(argument.alias_info is not None for argument in func._schema.arguments)

        def numbers(mask):
            mask._shared = mask._shared or shared
            return mask.numbers()

        args, kwargs = tree_map_only(EagerMask, numbers, (args, kwargs or {}))
        return func(*args, **kwargs)


def eager_mask(
    batch_size,
    q_length,
    kv_length,
    q_offset=0,
    kv_offset=0,
    mask_function=masking_utils.causal_mask_function,
    attention_mask=None,
    dtype=torch.float32,
    allow_is_causal_skip=True,
    allow_is_bidirectional_skip=False,
    device="cpu",
    **options,
):
    """The mask function that is registered with the attention. It returns None only where "eager" also returns None."""
    given = dict(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=mask_function, attention_mask=attention_mask,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip, device=device, **options,
    )  # fmt: skip
    # For one row whose mask a compiled function will read (generate with a static cache), graphs need ordinary tensors.
    if not _call.is_direct() or (q_length == 1 and not allow_is_causal_skip):
        return masking_utils.eager_mask(dtype=dtype, **given)
    allowed = masking_utils.sdpa_mask(allow_is_causal_skip=allow_is_causal_skip, **given)
    if allowed is None and not allow_is_causal_skip:
        return None
    shape = (batch_size, 1, q_length, kv_length) if allowed is None else allowed.shape
    return EagerMask(
        allowed, lambda: masking_utils.sdpa_mask(allow_is_causal_skip=False, **given), shape, dtype, device
    )
