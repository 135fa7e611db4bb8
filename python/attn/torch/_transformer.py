# python/attn/torch/_transformer.py: implements torch.nn.Transformer, its encoder, decoder and layers with attn's
# products and attention.
"""Subclasses of torch's modules with the same arguments, parameters and state dicts. A row has one result on every
path: torch's fast path in eval mode, its NaN and its zeros at padded rows do not occur."""

from collections.abc import Callable

import torch
from torch import Tensor

from attn.torch import _call
from attn.torch._linear import linear
from attn.torch._multihead import MultiheadAttention


def _feed_forward(layer, x, last_dropout):
    x = layer.activation(linear(x, layer.linear1.weight, layer.linear1.bias))
    return last_dropout(linear(layer.dropout(x), layer.linear2.weight, layer.linear2.bias))


def _takes(*tensors):
    return all(x is None or (x.device.type in ("cpu", "meta") and x.layout is torch.strided and not x.is_nested)
               for x in tensors)


def _check(name, argument, x, d_model):
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: {argument} is {'None' if x is None else f'a {type(x).__name__}'}; "
                        "a torch tensor is needed")
    if not x.is_nested and (x.dim() not in (2, 3) or x.shape[-1] != d_model):
        raise ValueError(f"{name}: {argument} has shape {list(x.shape)}; it must have 3 dims, or 2 when unbatched, "
                         f"and the last must be d_model = {d_model}")


def _check_masks(name, masks):
    for argument, mask in masks.items():
        if mask is None:
            continue
        if not isinstance(mask, torch.Tensor):
            raise TypeError(f"{name}: {argument} is a {type(mask).__name__}; a torch tensor is needed")
        if mask.dtype is not torch.bool and not mask.is_floating_point():
            raise TypeError(f"{name}: {argument} is {mask.dtype}; it must be bool (True is masked) or floating (added)")


def _check_hint(name, hint, argument, mask):
    if _call.flag(name, f"{argument}'s causal hint", hint) and mask is None:
        raise ValueError(f"{name}: the causal hint is about {argument}, which is not given; "
                         "torch.nn.Transformer.generate_square_subsequent_mask makes one")


def _is_causal(mask, hint, rows):
    """Returns the hint, or without one whether the mask is that of generate_square_subsequent_mask.
    A mask with a gradient stays a mask."""
    if hint is not None or mask is None:
        return bool(hint)
    if mask.shape != (rows, rows) or (mask.requires_grad and torch.is_grad_enabled()) or torch.compiler.is_compiling():
        return False
    causal = torch.full_like(mask, True if mask.dtype is torch.bool else -torch.inf).triu(1)
    return bool((mask == causal).all())


def _rows(x, batch_first):
    return x.shape[0] if x.dim() == 2 or not batch_first else x.shape[1]


class TransformerEncoderLayer(torch.nn.TransformerEncoderLayer):
    """A subclass of torch.nn.TransformerEncoderLayer with the same arguments, parameters and state dict.

    Differs from torch: a row that sees no key gets self_attn.out_proj.bias from attention on every path, never NaN; a
    float mask is always added (torch's fast path masks where it is not 0); the causal hint without a mask is always an
    error. Tensors that are not dense or not on the CPU are computed by torch. Errors: TypeError, ValueError.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.self_attn.__class__ = MultiheadAttention  # the same parameters; torch's class draws them

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        name = "TransformerEncoderLayer"
        _check(name, "src", src, self.self_attn.embed_dim)
        _check_masks(name, {"src_mask": src_mask, "src_key_padding_mask": src_key_padding_mask})
        _check_hint(name, is_causal, "src_mask", src_mask)
        if not _takes(src, src_mask, src_key_padding_mask):
            return super().forward(src, src_mask, src_key_padding_mask, is_causal)

        def attend(x):
            return self.dropout1(self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0])

        if self.norm_first:
            x = src + attend(self.norm1(src))
            return x + _feed_forward(self, self.norm2(x), self.dropout2)
        x = self.norm1(src + attend(src))
        return self.norm2(x + _feed_forward(self, x, self.dropout2))


class TransformerDecoderLayer(torch.nn.TransformerDecoderLayer):
    """A subclass of torch.nn.TransformerDecoderLayer; as TransformerEncoderLayer."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.self_attn.__class__ = self.multihead_attn.__class__ = MultiheadAttention

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        name = "TransformerDecoderLayer"
        _check(name, "tgt", tgt, self.self_attn.embed_dim)
        _check(name, "memory", memory, self.self_attn.embed_dim)
        masks = {"tgt_mask": tgt_mask, "memory_mask": memory_mask, "tgt_key_padding_mask": tgt_key_padding_mask,
                 "memory_key_padding_mask": memory_key_padding_mask}
        _check_masks(name, masks)
        _check_hint(name, tgt_is_causal, "tgt_mask", tgt_mask)
        _check_hint(name, memory_is_causal, "memory_mask", memory_mask)
        if not _takes(tgt, memory, *masks.values()):
            return super().forward(tgt, memory, **masks, tgt_is_causal=tgt_is_causal,
                                   memory_is_causal=memory_is_causal)

        def attend(x):
            return self.dropout1(self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask,
                                                is_causal=tgt_is_causal)[0])

        def look(x):
            return self.dropout2(self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, memory_mask,
                                                     is_causal=memory_is_causal)[0])

        if self.norm_first:
            x = tgt + attend(self.norm1(tgt))
            x = x + look(self.norm2(x))
            return x + _feed_forward(self, self.norm3(x), self.dropout3)
        x = self.norm1(tgt + attend(tgt))
        x = self.norm2(x + look(x))
        return self.norm3(x + _feed_forward(self, x, self.dropout3))


class TransformerEncoder(torch.nn.TransformerEncoder):
    """A subclass of torch.nn.TransformerEncoder that computes every row: nothing is packed, so rows of padding have the
    values that they have in training. `enable_nested_tensor` and `mask_check` are taken and change nothing."""

    def __init__(
        self,
        encoder_layer: torch.nn.TransformerEncoderLayer,
        num_layers: int,
        norm: torch.nn.Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm, False, mask_check)
        self.enable_nested_tensor = enable_nested_tensor

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        if not isinstance(self.layers[0], TransformerEncoderLayer):
            return super().forward(src, mask, src_key_padding_mask, is_causal)
        _check("TransformerEncoder", "src", src, self.layers[0].self_attn.embed_dim)
        _check_masks("TransformerEncoder", {"mask": mask, "src_key_padding_mask": src_key_padding_mask})
        if not _takes(src, mask, src_key_padding_mask):
            return super().forward(src, mask, src_key_padding_mask, is_causal)
        is_causal = _is_causal(mask, is_causal, _rows(src, self.layers[0].self_attn.batch_first))
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(torch.nn.TransformerDecoder):
    """A subclass of torch.nn.TransformerDecoder with the same arguments, parameters and state dict."""

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        first = self.layers[0].self_attn
        _check("TransformerDecoder", "tgt", tgt, first.embed_dim)
        _check_masks("TransformerDecoder", {"tgt_mask": tgt_mask})
        tgt_is_causal = _is_causal(tgt_mask, tgt_is_causal, None if tgt.is_nested else _rows(tgt, first.batch_first))
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                        tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
                        tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(torch.nn.Transformer):
    """A subclass of torch.nn.Transformer with the same arguments, parameters and state dict, whose encoder and decoder
    are this module's. The same seed draws the same parameters."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = torch.nn.functional.relu,
        custom_encoder: torch.nn.Module | None = None,
        custom_decoder: torch.nn.Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        of_layer = dict(dim_feedforward=dim_feedforward, dropout=dropout, activation=activation,
                        layer_norm_eps=layer_norm_eps, batch_first=batch_first, norm_first=norm_first, bias=bias,
                        device=device, dtype=dtype)

        def norm():
            return torch.nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        if custom_encoder is None:
            custom_encoder = TransformerEncoder(TransformerEncoderLayer(d_model, nhead, **of_layer),
                                                num_encoder_layers, norm())
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(TransformerDecoderLayer(d_model, nhead, **of_layer),
                                                num_decoder_layers, norm())
        super().__init__(d_model, nhead, custom_encoder=custom_encoder, custom_decoder=custom_decoder,
                         batch_first=batch_first)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        _check("Transformer", "src", src, self.d_model)
        _check("Transformer", "tgt", tgt, self.d_model)
        masks = {"src_mask": src_mask, "tgt_mask": tgt_mask, "memory_mask": memory_mask,
                 "src_key_padding_mask": src_key_padding_mask, "tgt_key_padding_mask": tgt_key_padding_mask,
                 "memory_key_padding_mask": memory_key_padding_mask}
        _check_masks("Transformer", masks)
        return super().forward(src, tgt, **masks, src_is_causal=src_is_causal, tgt_is_causal=tgt_is_causal,
                               memory_is_causal=memory_is_causal)
