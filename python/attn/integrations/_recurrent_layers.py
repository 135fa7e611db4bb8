# python/attn/integrations/_recurrent_layers.py: computes the gated delta rule and the causal convolution of
# transformers' models by attn, in the layers of models whose attn_implementation is attn's.
"""Such a model's module has four functions that transformers takes from the packages fla and causal_conv1d or, without
them, computes in torch operations (Qwen3-Next, Qwen3.5, OLMo hybrid). They know neither layer nor config, so the
layers' own methods say whether attn computes."""

import contextvars
import functools
import sys

import torch

from attn.torch import _recurrent

_by_attn = contextvars.ContextVar("attn_recurrent_layers", default=False)


def _takes(x, *others):
    return _by_attn.get() and x.device.type == "cpu" and not torch.compiler.is_compiling() and not any(
        y is not None for y in others)


def _rule(original):
    @functools.wraps(original)
    def rule(query, key, value, g, beta, *positions, initial_state=None, output_final_state=False,
             use_qk_l2norm_in_kernel=False, cu_seqlens=None, **others):
        if positions or not _takes(query, cu_seqlens):
            return original(query, key, value, g, beta, *positions, initial_state=initial_state,
                            output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
                            cu_seqlens=cu_seqlens, **others)
        operands = [x.transpose(1, 2) for x in (query, key, value, g, beta)]
        output, state = _recurrent.linear_attention((*operands, initial_state, None, None), None,
                                                    use_qk_l2norm_in_kernel)
        return output.transpose(1, 2), state if output_final_state else None

    return rule


def _convolution(original):
    @functools.wraps(original)
    def convolution(hidden_states, weight, bias=None, activation=None, **others):
        if activation not in (None, "silu", "swish") or not _takes(hidden_states, others.get("seq_idx")):
            return original(hidden_states, weight, bias, activation=activation, **others)
        return _recurrent.causal_conv1d(hidden_states, weight, bias, None, activation is not None)[0]

    return convolution


def _update(original):
    @functools.wraps(original)
    def update(hidden_states, conv_state, weight, bias=None, activation=None, **others):
        before = weight.shape[-1] - 1
        if (activation not in (None, "silu", "swish") or conv_state.shape[-1] < before
                or not _takes(hidden_states, *others.values())):
            return original(hidden_states, conv_state, weight, bias, activation, **others)
        earlier = conv_state[..., conv_state.shape[-1] - before:]
        output, _ = _recurrent.causal_conv1d(hidden_states, weight, bias, earlier, activation is not None)
        conv_state.copy_(torch.cat((conv_state, hidden_states), dim=-1)[..., -conv_state.shape[-1]:])
        return output

    return update


_FUNCTIONS = {
    "torch_chunk_gated_delta_rule": _rule,
    "torch_recurrent_gated_delta_rule": _rule,
    "causal_conv1d_fn": _convolution,
    "causal_conv1d_update": _update,
}


def _watch(layer_class, is_ours):
    """Wraps the methods of a class of layers: a layer keeps its config, and runs by attn if that asks for attn."""
    make, run = layer_class.__init__, layer_class.forward

    @functools.wraps(make)
    def __init__(self, config, *args, **kwargs):
        make(self, config, *args, **kwargs)
        self._attn_config = config

    @functools.wraps(run)
    def forward(self, *args, **kwargs):
        config = getattr(self, "_attn_config", None)
        if config is None or not is_ours(config._attn_implementation):
            return run(self, *args, **kwargs)
        before = _by_attn.set(True)
        try:
            return run(self, *args, **kwargs)
        finally:
            _by_attn.reset(before)

    layer_class.__init__, layer_class.forward = __init__, forward


_watched = set()


def adopt(model, is_ours):
    """Prepares the module of `model` for layers that attn computes, and the layers that the model has already.
    is_ours(implementation): whether a name of an implementation is one of attn's."""
    module = sys.modules.get(type(model).__module__)  # None: of a class made in a notebook
    if not hasattr(module, "torch_chunk_gated_delta_rule"):
        return
    layers = [x for x in vars(module).values() if isinstance(x, type) and issubclass(x, torch.nn.Module)
              and x.__name__.endswith("GatedDeltaNet") and x.__module__ == module.__name__]
    if module.__name__ not in _watched:
        _watched.add(module.__name__)
        for name, wrapped in _FUNCTIONS.items():
            if hasattr(module, name):
                setattr(module, name, wrapped(getattr(module, name)))
        for layer in layers:
            _watch(layer, is_ours)
    for layer in model.modules():
        if type(layer) in layers and not hasattr(layer, "_attn_config"):
            layer._attn_config = model.config.get_text_config()
