# python/attn/integrations/_eager_mask.py: masks of transformers in the form of "eager", made when others than attn read.
import copy

import torch
from torch.utils._pytree import tree_map_only
from transformers import masking_utils

from attn.torch import _call


def blind_rows(allowed):
    """[B, 1, Tq, 1]: the rows to which a mask shows no key; None where there are none."""
    sees = allowed.any(dim=-1, keepdim=True)
    return None if sees.device.type != "cpu" or sees.all() else ~sees


class EagerMask(torch.Tensor):
    """A mask [B, 1, Tq, Tk] that is added (0, or the dtype's lowest number where a key is hidden), without its memory.

    attn's function takes what it stands for: `allowed` (bool), or, where that is None, keys up to the row (`causal`
    makes those). Every other operation makes the numbers and reads those, so code that never heard of attn computes
    what it computes under "eager".
    """

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, allowed, causal, shape, dtype, device):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)

    def __init__(self, allowed, causal, shape, dtype, device):
        self._allowed, self._causal, self._numbers = allowed, causal, None
        self._shared = self._blind = False  # blind: not looked for yet

    def numbers(self):
        """The mask as an ordinary tensor."""
        if self._numbers is None:
            allowed = self._causal() if self._allowed is None else self._allowed
            zero = torch.zeros((), dtype=self.dtype, device=self.device)
            self._numbers = torch.where(allowed, zero, torch.finfo(self.dtype).min)
        return self._numbers

    def short_form(self, rows, keys):
        """(causal, mask, blind): what stands for it in a call of so many rows and keys; blind: rows that see none, or None."""
        if self._shared or self.shape[2:] != (rows, keys):
            return False, self.numbers(), None
        if self._blind is False:
            self._blind = None if self._allowed is None else blind_rows(self._allowed)
        return self._allowed is None, self._allowed, self._blind

    # What torch gives no subclass.
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
        # What writes to the numbers, or is a view that may be written to, is no longer seen in `allowed`.
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
    """The mask function registered beside the attention: None only where "eager" has None too."""
    given = dict(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=mask_function, attention_mask=attention_mask,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip, device=device, **options,
    )  # fmt: skip
    # One row whose mask a compiled function will read (generate with a static cache): graphs take ordinary tensors.
    if not _call.is_direct() or (q_length == 1 and not allow_is_causal_skip):
        return masking_utils.eager_mask(dtype=dtype, **given)
    allowed = masking_utils.sdpa_mask(allow_is_causal_skip=allow_is_causal_skip, **given)
    if allowed is None and not allow_is_causal_skip:
        return None
    shape = (batch_size, 1, q_length, kv_length) if allowed is None else allowed.shape
    return EagerMask(
        allowed, lambda: masking_utils.sdpa_mask(allow_is_causal_skip=False, **given), shape, dtype, device
    )
