# python/attn/integrations/transformers.py: registers attn as an attention implementation of Hugging Face transformers.
"""`register()`, then `attn_implementation="attn"`:

import attn.integrations.transformers
attn.integrations.transformers.register()
model = AutoModel.from_pretrained(name, attn_implementation="attn")
"""

import functools
import inspect
import sys
import weakref

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface

from attn._arguments import shown
from attn.integrations._eager_mask import EagerMask, blind_rows, eager_mask
from attn.integrations._model_source import asks_for_flash, calls_attention, lacks_a_class
from attn.integrations._packed import is_packed, packed_attention
from attn.integrations._recurrent_layers import adopt
from attn.torch import _call
from attn.torch.functional import _FULL, _NONE, attend

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # other versions have it elsewhere: then weights are returned only if the model requests them
    _active_collector = None

__all__ = ["attention", "register"]

# Options that change the result and are not supported: an error is better than a wrong number.
_REFUSED = ("score_mod", "block_mask", "head_mask")
# Options that an eager function may take and that need no refusal: supported here too, or (a window) already in the
# mask.
_KNOWN = frozenset(
    "module query key value query_states key_states value_states attention_mask scaling dropout is_causal softcap "
    "s_aux sinks position_bias output_attentions sliding_window".split()
)

_names = set()
_parts = (
    weakref.WeakValueDictionary()
)  # configs of models inside a model, by identity: comparing them for equality is slow


@functools.lru_cache(maxsize=None)
def _unknown(module_class):
    """Returns those options of the model's own eager function that this integration does not support."""
    eager = getattr(sys.modules.get(module_class.__module__), "eager_attention_forward", None)
    named = inspect.signature(eager).parameters.values() if inspect.isfunction(eager) else ()
    return tuple(p.name for p in named if p.kind is not p.VAR_KEYWORD and p.name not in (*_KNOWN, *_REFUSED))


def _weights_wanted():
    """Returns whether transformers is now collecting attention weights; few models pass output_attentions on."""
    if _active_collector is None:
        return False
    # Dynamo cannot read a context variable; for it the collector also has a plain variable.
    collected = _active_collector.global_var if torch.compiler.is_compiling() else _active_collector.get()
    return collected is not None and any("attentions" in name for name in collected)


def _chosen(indices, keys):
    """Returns [B, 1, Tq, Tk], true for the keys that each row chose; indices [B, Tq, n]."""
    return (
        indices.new_zeros((*indices.shape[:-1], keys), dtype=torch.bool).scatter(-1, indices.long(), True).unsqueeze(1)
    )


def _block_mask(module, block_indices, causal, mask, query, key, position_ids):
    """Returns the module's own mask of the blocks that its rows chose, in the form of "eager". Without a mask the
    indexer's mask is causal, so a call that is not causal gives it a mask of ones."""
    if not hasattr(module, "indexer"):
        raise TypeError(f"attention: block_indices are given, of which {type(module).__name__} makes no mask: "
                        "it has no indexer")
    rows, keys = query.shape[2], key.shape[2]
    if mask is None and not causal:
        mask = query.new_ones(1, 1, rows, keys, dtype=torch.bool)
    positions = torch.arange(keys - rows, keys, device=query.device) if position_ids is None else position_ids
    positions = (positions if positions.dim() > 1 else positions[None]).expand(query.shape[0], -1)
    return module.indexer.build_block_mask(block_indices, mask, keys, query.dtype, query.device, positions)


def _check(tensors, elsewhere):
    """Raises an error for an argument that is not a tensor as a layer passes it.
    Shapes that do not fit each other are reported later, by the call."""
    _call.check_tensors("attention", tensors, tuple(tensors)[3:], anywhere=elsewhere)
    query, key = tensors["query"], tensors["key"]
    batch = max(x.shape[0] if x.dim() else 0 for x in (query, key))
    for name in ("query", "key", "value"):
        x = tensors[name]
        if x.dim() != 4 or x.shape[0] not in (1, batch):
            raise ValueError(f"attention: {name} has shape {list(x.shape)}; "
                             f"it must be [{batch}, H, T, D], or [1, H, T, D]")
    for name in ("attention_mask", "position_bias", "s_aux", "sinks"):
        x, masks = tensors[name], name == "attention_mask"
        if x is not None and not x.is_floating_point() and not (masks and x.dtype is torch.bool):
            needed = "bool (True takes part) or floating (added)" if masks else "floating"
            raise TypeError(f"attention: {name} is {x.dtype}; it must be {needed}")
    rows, indices, sinks = [batch, query.shape[2]], tensors["indices"], tensors["sinks"]
    if sinks is not None and not _fits(sinks, each := [batch, query.shape[1], query.shape[2], 1]):
        raise ValueError(f"attention: sinks has shape {list(sinks.shape)}; it must be {each}")
    if indices is not None and (indices.dtype not in (torch.int32, torch.int64) or indices.dim() != 3
                                or list(indices.shape[:2]) != rows):
        raise ValueError(f"attention: indices is {indices.dtype} of shape {list(indices.shape)}; it must be int32 or "
                         f"int64 [{rows[0]}, {rows[1]}, n]")
    if (indices is not None and _call.is_direct() and indices.numel()
            and not 0 <= indices.min() <= indices.max() < key.shape[2]):
        raise ValueError(f"attention: indices is from {indices.min()} to {indices.max()}; "
                         f"it must be from 0 to {key.shape[2] - 1}")


def _fits(x, sizes):
    return x.dim() == len(sizes) and all(have in (1, want) for have, want in zip(x.shape, sizes))


def _with_sinks(query, key, value, causal, mask, bias, sinks):
    """Returns (key, value, mask, bias) with one more key, whose score is the row's sink and whose value is 0."""
    rows, keys = query.shape[2], key.shape[2]
    sinks = sinks.expand(*query.shape[:3], 1)
    if causal:
        mask = torch.ones(1, 1, rows, keys, dtype=torch.bool, device=query.device).tril()
    if mask is not None:
        mask = torch.nn.functional.pad(mask, (0, 1), value=True)
    bias = sinks.new_zeros(1, 1, 1, keys) if bias is None else bias
    bias = torch.cat((bias.expand(*sinks.shape[:3], keys), sinks.to(bias.dtype)), dim=-1)
    key, value = (torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (key, value))
    return key, value, mask, bias


def _as_eager(blind, value, output, weights):
    """Computes rows that see no key (mostly padding) as eager does:
    there the mask's number outweighs the scores, so that all keys get the same weight."""
    mean = value.mean(dim=2, keepdim=True).repeat_interleave(output.shape[1] // value.shape[1], dim=1)
    return torch.where(blind, mean, output), (
        None if weights is None else torch.where(blind, 1 / value.shape[2], weights)
    )


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
    indices=None,
    block_indices=None,
    sinks=None,
    output_attentions=False,
    **options,
):
    """Computes the attention of one layer.

    query [B, Hq, Tq, D], key [B, Hk, Tk, D], value [B, Hk, Tk, Dv] -> ([B, Tq, Hq, Dv], weights or None).

    attention_mask: bool (True takes part) or floating (added), broadcastable to [B, Hq, Tq, Tk]. With None, every key
    is seen. But if the module sets `is_causal` and there is more than one row, a row sees the keys up to its own
    index, counted from the first key (so keys of a static cache that are not written yet are not seen). The other
    arguments are as the models pass them: `softcap`, `s_aux` (one logit for each head, counted in the softmax's sum),
    `sinks` (one such logit for each row: [B, Hq, Tq, 1]), `position_bias` (added), `indices` and `block_indices` (the
    keys, or blocks of keys, that a row chose).

    Packed sequences, as continuous batching passes them: without a mask, and with `cu_seq_lens_q` and `cu_seq_lens_k`
    [N + 1], query [1, Hq, total, D] and key [1, Hk, total_k, D] hold one sequence after another. If the module or
    `is_causal` says so, the last row of a sequence is at its last key; `sliding_window` counts a row's own key.
    """
    _call.check_tensors("attention", {"query": query}, anywhere=True)
    elsewhere = "ONNX is written" if _call.writes_onnx() else None
    if query.device.type not in ("cpu", "meta"):
        elsewhere = f"query is on {query.device}"
    tensors = dict(
        query=query, key=key, value=value, attention_mask=attention_mask, position_bias=position_bias, s_aux=s_aux,
        sinks=sinks, indices=indices, block_indices=block_indices,
    )  # fmt: skip
    _check(tensors, elsewhere is not None)
    # _unknown has a cache, through which Dynamo cannot trace
    for name in _REFUSED if torch.compiler.is_compiling() else (*_REFUSED, *_unknown(type(module))):
        if options.get(name) is not None:
            raise ValueError(
                f"attn: {type(module).__name__} gives {name}, which this integration does not know; "
                'load the model with attn_implementation="eager"'
            )
    packed = is_packed(attention_mask, options)
    causal, blind = False, None
    if type(attention_mask) is EagerMask:
        causal, attention_mask, blind = attention_mask.short_form(query.shape[2], key.shape[2])
    if block_indices is not None:
        attention_mask = _block_mask(
            module, block_indices, causal, attention_mask, query, key, options.get("position_ids")
        )
        causal, blind = False, None
    if attention_mask is None:
        causal = causal or bool(getattr(module, "is_causal", False) if is_causal is None
                                else _call.flag("attention", "is_causal", is_causal))
    if elsewhere is not None:
        if packed or any(x is not None for x in (softcap, s_aux, sinks, indices)):
            raise ValueError(
                f"attn: {elsewhere}, where torch's function takes the call, which knows no "
                + ("packed sequences" if packed else "softcap, sinks or indices")
            )
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=causal,
            position_bias=position_bias,
            **options,
        )
    batch = max(query.shape[0], key.shape[0])
    query, key, value = (x if x.shape[0] == batch else x.expand(batch, *x.shape[1:]) for x in (query, key, value))

    mask = bias = None
    if attention_mask is not None and attention_mask.dtype is torch.bool:
        mask = attention_mask
    elif attention_mask is not None:
        bias = attention_mask
    if indices is not None:
        chosen = _chosen(indices, key.shape[2])
        if bias is not None:
            bias = bias.masked_fill(~chosen, torch.finfo(bias.dtype).min)
        else:
            mask = chosen if mask is None else mask & chosen
            blind = blind_rows(mask)
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    if bias is not None and bias.dtype not in (torch.float32, query.dtype):
        bias = bias.to(query.dtype)
    if sinks is not None:
        key, value, mask, bias = _with_sinks(query, key, value, causal, mask, bias, sinks)
        causal = False
    numbers = _call.Numbers(
        scale=query.shape[-1] ** -0.5 if scaling is None else _call.number("attn", "scaling", scaling),
        softcap=0.0 if softcap is None else _call.number("attn", "softcap", softcap),
        causal=causal and query.shape[2] > 1,
        dropout_p=_call.number("attn", "dropout", dropout),
    )
    aux = None if s_aux is None else s_aux.reshape(-1).to(_call.compute_dtype(query.dtype))
    if packed:
        given = dict(options, position_bias=position_bias, indices=indices, block_indices=block_indices, sinks=sinks)
        return packed_attention(
            query, key, value, causal, options.get("sliding_window"), given, scale=numbers.scale,
            softcap=numbers.softcap, sinks=aux, dropout_p=numbers.dropout_p,
        ), None  # fmt: skip
    asked = output_attentions is not None and _call.flag("attention", "output_attentions", output_attentions)
    wanted = _FULL if asked or _weights_wanted() else _NONE
    output, weights = attend(query, key, value, numbers, mask, bias, aux, weights=wanted)
    if sinks is not None and weights is not None:
        weights = weights[..., :-1]
    if blind is not None and s_aux is None and sinks is None:
        output, weights = _as_eager(blind, value, output, weights)
    return output.transpose(1, 2).contiguous(), weights


def _suited(model, name):
    """Returns `name`, or "eager" for a part of a model that never calls the function.
    Refuses a whole model that never calls it, as transformers refuses "sdpa". A model that does something else under a
    name that contains "flash" is treated in the same way under such a name."""
    cls, config = type(model), model.config
    parts = [part for part in (getattr(config, key, None) for key in config.sub_configs) if part is not None]
    _parts.update((id(part), part) for part in parts)
    chooses = lacks_a_class(cls)
    elsewhere = any(part.__module__.rpartition(".")[0] != config.__module__.rpartition(".")[0] for part in parts)
    flash = "flash" in name and asks_for_flash(cls)
    if not chooses and not flash and (cls._supports_sdpa or calls_attention(cls) or elsewhere):
        return name
    if _parts.get(id(config)) is config:
        return "eager"
    if flash:
        raise ValueError(
            f'attn: {cls.__name__} asks whether the name of its implementation contains "flash", and then computes '
            f'another way; load it with a name that does not, such as attn_implementation="attn", not "{name}"'
        )
    raise ValueError(
        f'attn: {cls.__name__} computes its attention itself and never calls the function that '
        f'attn_implementation="{name}" names; load it with attn_implementation="eager" (attn.torch.patch(linear=True) '
        'still takes its linear maps)'
    )


def _watch():
    """Wraps the method in which models check an implementation: when they are made, and in set_attn_implementation."""
    original = PreTrainedModel.get_correct_attn_implementation

    @functools.wraps(original)
    def get_correct_attn_implementation(self, requested_attention, *args, **kwargs):
        if requested_attention in _names:
            requested_attention = _suited(self, requested_attention)
            adopt(self, _names.__contains__)
        return original(self, requested_attention, *args, **kwargs)

    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation

    # For every name that contains "flash" transformers also looks for the FlashAttention package, or for a kernel to
    # download. The names registered here need neither.
    adjust = PreTrainedModel._check_and_adjust_attn_implementation

    @functools.wraps(adjust)
    def check_and_adjust(self, attn_implementation, is_init_check=False, *args, **kwargs):
        if attn_implementation in _names:
            return self.get_correct_attn_implementation(attn_implementation, is_init_check)
        return adjust(self, attn_implementation, is_init_check, *args, **kwargs)

    PreTrainedModel._check_and_adjust_attn_implementation = check_and_adjust


def register(name: str = "attn") -> None:
    """Registers attn_implementation=name: the attention function, the masks,
    and a check of models that never call the function.

    The same under a second name, "attn_flash" for "attn": continuous batching (`model.generate_batch`) takes only names
    that contain "flash".

    The masks are needed: without a mask function transformers passes no mask at all, so padding would take part. They
    have the form of "eager" for all code but attn's function, so models and layers that compute attention themselves
    read them correctly. A model whose code never calls the function is refused when it is made or the implementation is
    set. Layers of the gated delta rule (Qwen3-Next, Qwen3.5) of other models compute it, and their convolution, by
    attn. Raises TypeError for a name that is not a one-line text.
    """
    if not isinstance(name, str) or not name.isprintable():
        given = f'"{shown(name)}"' if isinstance(name, str) else f"a {type(name).__name__}"
        raise TypeError(f"register: name is {given}; a text of one line is needed")
    if not _names:
        _watch()
    for each in (name, name if "flash" in name else f"{name}_flash"):
        _names.add(each)
        AttentionInterface.register(each, attention)
        AttentionMaskInterface.register(each, eager_mask)
