# python/attn/torch/__init__.py: attn for PyTorch: its functions and modules on torch tensors, with gradients, and in place of torch's own.
"""attn for PyTorch on the CPU.

`scaled_dot_product_attention` and `linear` are torch's functions of these names, `MultiheadAttention` is torch's module; `patch()` puts
them in the place of torch's own. Gradients, their gradients, torch.compile, torch.func and autocast work.
"""

from attn.torch import _flops  # noqa: F401: registers formulas for torch's FlopCounterMode
from attn.torch.functional import scaled_dot_product_attention
from attn.torch._linear import linear
from attn.torch._multihead import MultiheadAttention
from attn.torch._patch import patch

__all__ = ["MultiheadAttention", "linear", "patch", "scaled_dot_product_attention"]
