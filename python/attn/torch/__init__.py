# python/attn/torch/__init__.py: provides attn's functions and modules for torch tensors, with gradients,
# and in place of torch's own.
"""attn for PyTorch on the CPU.

`scaled_dot_product_attention` and `linear` replace torch's functions of these names; `MultiheadAttention`,
`Transformer` and its parts replace torch's modules; `patch()` installs the functions in torch itself. Gradients, second
derivatives, torch.compile, torch.func and autocast work.
"""

from attn.torch import _flops  # noqa: F401: registers formulas for torch's FlopCounterMode
from attn.torch._flex import flex_attention
from attn.torch.functional import scaled_dot_product_attention
from attn.torch._linear import linear
from attn.torch._multihead import MultiheadAttention
from attn.torch._patch import patch
from attn.torch._transformer import (Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
                                     TransformerEncoderLayer)
from attn.torch._varlen import varlen_attn

__all__ = [
    "MultiheadAttention",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "flex_attention",
    "linear",
    "patch",
    "scaled_dot_product_attention",
    "varlen_attn",
]
