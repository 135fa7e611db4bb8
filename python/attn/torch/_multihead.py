# python/attn/torch/_multihead.py: implements torch.nn.MultiheadAttention with attn's products and attention,
# including the returned weights.
"""Masks, dropout and returned weights are those of the fused pass, and so are gradients, except through the weights."""

import math

import torch
from torch import Tensor

from attn.torch import _call
from attn.torch._linear import linear
from attn.torch.functional import _AVERAGE, _FULL, _NONE, attend

_NAME = "MultiheadAttention"


def _shape(x):
    return list(x.shape)


def _check_mask(mask, name, shapes):
    if mask.dtype is not torch.bool and not mask.is_floating_point():
        raise TypeError(f"{_NAME}: {name} is {mask.dtype}; it must be bool (True is masked) or floating (added)")
    if tuple(mask.shape) not in shapes:
        raise ValueError(f"{_NAME}: {name} has shape {_shape(mask)}; it must be "
                         f"{' or '.join(str(list(s)) for s in shapes)}")


class MultiheadAttention(torch.nn.MultiheadAttention):
    """A subclass of torch.nn.MultiheadAttention with the same arguments, parameters, state dict and pickles.

    Shapes: query [N, L, E], key [N, S, kdim], value [N, S, vdim] with batch_first, else [L, N, E] and so on, unbatched
    [L, E]. Returns the output in query's layout, and the weights [N, L, S] (for each head [N, H, L, S] with
    average_attn_weights=False) or None. Differs from torch: a row whose keys are all masked gives out_proj.bias and
    weights 0, never NaN; the contents of a masked key change nothing; dropout draws one seed from torch's generator.
    Tensors that are not dense or not on the CPU are computed by torch. Errors: TypeError, ValueError.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        for name, x in (("query", query), ("key", key), ("value", value), ("key_padding_mask", key_padding_mask),
                        ("attn_mask", attn_mask)):
            if not isinstance(x, torch.Tensor) and not (x is None and name.endswith("mask")):
                raise TypeError(f"{_NAME}: {name} is {'None' if x is None else f'a {type(x).__name__}'}; "
                                "a torch tensor is needed")
        need_weights, is_causal = (_call.flag(_NAME, "need_weights", need_weights),
                                   _call.flag(_NAME, "is_causal", is_causal))
        tensors = [query, key, value, self.out_proj.weight,
                   *(x for x in (key_padding_mask, attn_mask) if x is not None)]
        if any(x.device.type not in ("cpu", "meta") or x.layout is not torch.strided or x.is_nested for x in tensors):
            return super().forward(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights,
                                   is_causal)
        batched = query.dim() == 3
        sizes = self._check(query, key, value, key_padding_mask, attn_mask, is_causal)
        takes_hint = (is_causal and not need_weights and key_padding_mask is None
                      and not self._is_torch_fused(query, key, value, attn_mask))
        q, k, v = self._project(query, key, value, batched)
        extra = k.shape[2] - sizes[2]
        mask, bias = self._masks(None if takes_hint else attn_mask, key_padding_mask, sizes, extra, batched, q.dtype)
        numbers = _call.Numbers(scale=1 / math.sqrt(self.head_dim), causal=takes_hint,
                                dropout_p=self.dropout if self.training else 0.0)
        kind = (_NONE if not need_weights
                else _AVERAGE if _call.flag(_NAME, "average_attn_weights", average_attn_weights) else _FULL)
        output, weights = attend(q, k, v, numbers, mask, bias, weights=kind)
        # converts [N, H, L, D] to the caller's layout
        output = output.permute(0, 2, 1, 3) if self.batch_first or not batched else output.permute(2, 0, 1, 3)
        output = linear(output.flatten(-2), self.out_proj.weight, self.out_proj.bias)
        if batched:
            return output, weights
        return output.squeeze(0), None if weights is None else weights.squeeze(0)

    def _check(self, query, key, value, key_padding_mask, attn_mask, is_causal):
        """Checks the shapes; returns (N, L, S)."""
        if query.dim() not in (2, 3):
            raise ValueError(f"{_NAME}: query has shape {_shape(query)}; it must have 2 dims, or 3 with a batch")
        for name, x, width in (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)):
            if x.dim() != query.dim() or x.shape[-1] != width:
                raise ValueError(f"{_NAME}: {name} has shape {_shape(x)}; "
                                 f"it must have {query.dim()} dims as query, the last {width}")
        if key.shape[:-1] != value.shape[:-1]:
            raise ValueError(f"{_NAME}: key has shape {_shape(key)}, value {_shape(value)}; their rows must be as many")
        if is_causal and attn_mask is None:
            raise ValueError(f"{_NAME}: is_causal is a hint about attn_mask, which is not given; "
                             "torch.nn.Transformer.generate_square_subsequent_mask makes one")
        batch_dim = 0 if self.batch_first else 1
        batch, rows, keys = 1, query.shape[0], key.shape[0]
        if query.dim() == 3:
            batch, rows, keys = query.shape[batch_dim], query.shape[1 - batch_dim], key.shape[1 - batch_dim]
            if key.shape[batch_dim] != batch:
                raise ValueError(f"{_NAME}: key has shape {_shape(key)}; "
                                 f"its batch must be {batch} as that of query {_shape(query)}")
        if key_padding_mask is not None:
            _check_mask(key_padding_mask, "key_padding_mask", [(batch, keys) if query.dim() == 3 else (keys,)])
        if attn_mask is not None:
            _check_mask(attn_mask, "attn_mask", [(rows, keys), (batch * self.num_heads, rows, keys)])
        return batch, rows, keys

    def _is_torch_fused(self, query, key, value, attn_mask):
        """Returns whether torch would use its fused inference path,
        which applies the mask and ignores the is_causal hint."""
        if (self.training or query is not key or key is not value or query.dim() != 3 or not self.batch_first
                or self.num_heads % 2):
            return False
        if self.in_proj_bias is None or not self._qkv_same_embed_dim or self.bias_k is not None or self.add_zero_attn:
            return False
        return attn_mask.dtype is torch.bool and not _call.wants_gradient(query, *self.parameters())

    def _project(self, query, key, value, batched):
        """Returns q, k, v as [N, H, T, D]; the learned key and the zero key are appended if the module has them."""
        heads = self.num_heads

        def split(x, parts):
            """Splits [.., T, parts * E] into `parts` tensors [N, H, T, D], as views."""
            x = x.unflatten(-1, (parts, heads, self.head_dim))
            if not batched:
                x = x.unsqueeze(0)
            order = (2, 0, 3, 1, 4) if self.batch_first or not batched else (2, 1, 3, 0, 4)
            return x.permute(order).unbind(0)

        if not self._qkv_same_embed_dim:
            biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            q, k, v = (split(linear(x, w, b), 1)[0] for x, w, b in zip((query, key, value), weights, biases))
        elif query is key and key is value:
            q, k, v = split(linear(query, self.in_proj_weight, self.in_proj_bias), 3)
        else:
            E = self.embed_dim
            weights = self.in_proj_weight.split((E, 2 * E))
            biases = (None, None) if self.in_proj_bias is None else self.in_proj_bias.split((E, 2 * E))
            (q,) = split(linear(query, weights[0], biases[0]), 1)
            if key is value:
                k, v = split(linear(key, weights[1], biases[1]), 2)
            else:
                halves = (None, None) if self.in_proj_bias is None else biases[1].chunk(2)
                k, v = (split(linear(x, w, b), 1)[0] for x, w, b in zip((key, value), weights[1].chunk(2), halves))
        batch = k.shape[0]
        if self.bias_k is not None:
            more = [x.view(1, heads, 1, self.head_dim).expand(batch, -1, -1, -1).to(k.dtype)
                    for x in (self.bias_k, self.bias_v)]
            k, v = torch.cat((k, more[0]), 2), torch.cat((v, more[1]), 2)
        if self.add_zero_attn:
            zero = k.new_zeros((batch, heads, 1, self.head_dim))
            k, v = torch.cat((k, zero), 2), torch.cat((v, zero), 2)
        return q, k, v

    def _masks(self, attn_mask, key_padding_mask, sizes, extra, batched, dtype):
        """Returns (bool mask, True for visible pairs, or None; float mask or None), both of rank 4."""
        seen, added = [], []
        if attn_mask is not None:
            shape = ((1, 1, *attn_mask.shape) if attn_mask.dim() == 2
                     else (sizes[0], self.num_heads, *attn_mask.shape[1:]))
            (seen if attn_mask.dtype is torch.bool else added).append(attn_mask.view(shape))
        if key_padding_mask is not None:
            padding = key_padding_mask.view(sizes[0], 1, 1, sizes[2])
            (seen if padding.dtype is torch.bool else added).append(padding)
        mask = bias = None
        for blocked in seen:
            mask = ~blocked if mask is None else mask & ~blocked
        for values in added:
            bias = values if bias is None else bias + values
        if bias is not None and bias.dtype not in (torch.float32, dtype):
            bias = bias.to(dtype)
        if extra and mask is not None:
            mask = torch.nn.functional.pad(mask, (0, extra), value=True)
        if extra and bias is not None:
            bias = torch.nn.functional.pad(bias, (0, extra))
        return mask, bias
