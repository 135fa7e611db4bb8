# python/attn/integrations/transformers.py: attn as an attention implementation of Hugging Face transformers.
"""`register()`, then `attn_implementation="attn"`:

    import attn.integrations.transformers
    attn.integrations.transformers.register()
    model = AutoModel.from_pretrained(name, attn_implementation="attn")
"""

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from attn.torch import _call
from attn.torch.functional import _FULL, _NONE, attend

# What changes the result and is not understood here: better an error than another number.
_REFUSED = ("score_mod", "block_mask", "head_mask")


def attention(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    is_causal=None,
    softcap=None,
    s_aux=None,
    position_bias=None,
    cache=None,
    output_attentions=False,
    **options,
):
    """One layer's attention: query [B, Hq, Tq, D], key [B, Hk, Tk, D], value [B, Hk, Tk, Dv] -> ([B, Tq, Hq, Dv], weights or None).

    attention_mask: bool (True takes part) or floating (added), broadcastable to [B, Hq, Tq, Tk]. None means: every key, or, of a causal
    module with more rows than one, those up to the row, from the first key on (keys of a static cache that are not there yet are
    beyond it). `softcap`, `s_aux` (a logit a head that takes weight: sinks) and `position_bias` (added) as the models give them.
    """
    for name in _REFUSED:
        if options.get(name) is not None:
            raise ValueError(f"attn: {type(module).__name__} gives {name}, which this integration does not know")
    elsewhere = f"query is on {query.device}" if query.device.type not in ("cpu", "meta") else "ONNX is written" if _call.writes_onnx() else None
    if elsewhere is not None:
        if softcap is not None or s_aux is not None:
            raise ValueError(f"attn: {elsewhere}, where torch's function takes the call, which knows no softcap or sinks")
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, position_bias=position_bias, cache=cache, **options
        )
    if cache is not None:
        key, value = cache.update(key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=options)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    batch = max(query.shape[0], key.shape[0])
    query, key, value = (x if x.shape[0] == batch else x.expand(batch, *x.shape[1:]) for x in (query, key, value))

    mask = bias = None
    if attention_mask is not None and attention_mask.dtype is torch.bool:
        mask = attention_mask
    elif attention_mask is not None:
        bias = attention_mask
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    if bias is not None and bias.dtype not in (torch.float32, query.dtype):
        bias = bias.to(query.dtype)
    numbers = _call.Numbers(
        scale=query.shape[-1] ** -0.5 if scaling is None else _call.number("attn", "scaling", scaling),
        softcap=0.0 if softcap is None else _call.number("attn", "softcap", softcap),
        causal=bool(is_causal and attention_mask is None and query.shape[2] > 1),
        dropout_p=_call.number("attn", "dropout", dropout),
    )
    sinks = None if s_aux is None else s_aux.reshape(-1).to(_call.compute_dtype(query.dtype))
    output, weights = attend(query, key, value, numbers, mask, bias, sinks, weights=_FULL if output_attentions else _NONE)
    return output.transpose(1, 2).contiguous(), weights


def register(name: str = "attn") -> None:
    """Makes attn_implementation=name known: the attention, and the masks it is given.

    Both are needed: a name without a mask function gets no mask at all, and the padding of a batch would be attended to.
    """
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, sdpa_mask)
