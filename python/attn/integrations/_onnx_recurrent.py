# python/attn/integrations/_onnx_recurrent.py: ONNX's LinearAttention and CausalConvWithState (opset 27), on attn.
import numpy as np
from onnx.reference.op_run import OpRun

import attn
from attn._arguments import shown
from attn.integrations._onnx_checks import FLOATS, number, whole

_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
_ACTIVATIONS = ("none", "silu", "swish")


def _check(operator, name, x, sizes, dtype=None):
    """An array of these sizes; a text stands for any size. The first argument's dtype, or any floating one."""
    if not isinstance(x, np.ndarray):
        given = "None" if x is None else f"a {type(x).__name__}"
        raise TypeError(f"{operator}: {name} is {given}; a NumPy array is needed")
    if x.dtype.name not in FLOATS or (dtype is not None and x.dtype != dtype):
        needed = " or ".join(FLOATS) if dtype is None else dtype
        raise TypeError(f"{operator}: {name} is {x.dtype}; it must be {needed}")
    if x.ndim != len(sizes) or any(isinstance(n, int) and n != m for n, m in zip(sizes, x.shape)):
        raise ValueError(f"{operator}: {name} has shape {list(x.shape)}; it must be [{', '.join(map(str, sizes))}]")


def _heads(operator, name, x, heads, attribute):
    """[B, T, H * D] as [B, H, T, D]."""
    if heads < 1 or x.shape[2] % heads:
        raise ValueError(f"{operator}: {name} has shape {list(x.shape)}; "
                         f"its last dim must be a multiple of {attribute} {heads}")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def linear_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    chunk_size: int = 64,
) -> tuple[np.ndarray, np.ndarray]:
    """The operator LinearAttention of ONNX (opset 27) on NumPy arrays: (output, present_state).

    query [B, T, Hq * D], key [B, T, Hk * D], value [B, T, Hk * Dv], past_state [B, Hk, D, Dv], decay [B, T, Hk] or
    [B, T, Hk * D], beta [B, T, Hk] or [B, T, 1]. Query heads that share a state each compute it. Sums are float32
    (float64 for float64); present_state has the dtype of past_state, else of query. chunk_size changes nothing.
    """
    name = "LinearAttention"
    q_num_heads, kv_num_heads = whole(name, "q_num_heads", q_num_heads), whole(name, "kv_num_heads", kv_num_heads)
    scale = number(name, "scale", scale) or None
    whole(name, "chunk_size", chunk_size)
    if update_rule not in _RULES:
        raise ValueError(f"{name}: update_rule is {shown(update_rule)}; it must be {', '.join(_RULES)}")
    for argument, x, needed in zip(("decay", "beta"), (decay, beta), _RULES[update_rule]):
        if (x is not None) != needed:
            raise ValueError(f"{name}: {argument} is {'missing' if needed else 'given'}; update_rule "
                             f"{update_rule} {'needs' if needed else 'has no'} {argument}")
    _check(name, "query", query, ["B", "T", "Hq * D"])
    batch, rows, dtype = *query.shape[:2], query.dtype
    _check(name, "key", key, [batch, rows, "Hk * D"], dtype)
    _check(name, "value", value, [batch, rows, "Hk * Dv"], dtype)
    if not q_num_heads or not kv_num_heads or kv_num_heads < 1 or q_num_heads < 1 or q_num_heads % kv_num_heads:
        raise ValueError(f"{name}: q_num_heads is {q_num_heads}; it must be a multiple of kv_num_heads {kv_num_heads}")
    q, k, v = (_heads(name, *given) for given in (("query", query, q_num_heads, "q_num_heads"),
                                                  ("key", key, kv_num_heads, "kv_num_heads"),
                                                  ("value", value, kv_num_heads, "kv_num_heads")))
    if k.shape[3] != q.shape[3]:
        raise ValueError(f"{name}: key has {k.shape[3]} columns a head; it must have {q.shape[3]} as query")
    if decay is not None:
        _check(name, "decay", decay, [batch, rows, "Hk or Hk * D"], dtype)
        if decay.shape[2] == kv_num_heads:
            decay = decay.transpose(0, 2, 1)
        elif decay.shape[2] == kv_num_heads * k.shape[3]:
            decay = _heads(name, "decay", decay, kv_num_heads, "kv_num_heads")
        else:
            raise ValueError(f"{name}: decay has shape {list(decay.shape)}; its last dim must be {kv_num_heads} or "
                             f"{kv_num_heads * k.shape[3]}")
    if beta is not None:
        _check(name, "beta", beta, [batch, rows, "Hk or 1"], dtype)
        if beta.shape[2] not in (1, kv_num_heads):
            raise ValueError(f"{name}: beta has shape {list(beta.shape)}; its last dim must be {kv_num_heads} or 1")
        beta = np.broadcast_to(beta, (batch, rows, kv_num_heads)).transpose(0, 2, 1)
    if past_state is not None:
        _check(name, "past_state", past_state, [batch, kv_num_heads, k.shape[3], v.shape[3]])
    group = q_num_heads // kv_num_heads
    shared = (k, v, decay, beta, past_state)
    if group > 1:
        shared = tuple(x if x is None else np.repeat(x, group, axis=1) for x in shared)
    keys, values, decay, beta, state = shared
    output, present = attn.linear_attention(q, keys, values, decay, beta, initial_state=state, scale=scale)
    output = output.transpose(0, 2, 1, 3).reshape(batch, rows, q_num_heads * v.shape[3])
    return output, present[:, ::group].astype(dtype if past_state is None else past_state.dtype)


def causal_conv_with_state(
    input: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    past_state: np.ndarray | None = None,
    *,
    activation: str = "none",
) -> tuple[np.ndarray, np.ndarray]:
    """The operator CausalConvWithState of ONNX (opset 27) on NumPy arrays: (output, present_state).

    input [B, C, T], weight [C, 1, K], bias [C], past_state [B, C, K - 1]. activation: none, silu or swish, which are
    one. 16-bit sums are rounded before it, as in the operator's body.
    """
    name = "CausalConvWithState"
    if activation not in _ACTIVATIONS:
        raise ValueError(f"{name}: activation is {shown(activation)}; it must be {', '.join(_ACTIVATIONS)}")
    _check(name, "input", input, ["B", "C", "T"])
    _check(name, "weight", weight, [input.shape[1], 1, "K"], input.dtype)
    if weight.shape[2] == 0:
        raise ValueError(f"{name}: weight has shape {list(weight.shape)}; K must be at least 1")
    if bias is not None:
        _check(name, "bias", bias, [input.shape[1]], input.dtype)
    if past_state is not None:
        _check(name, "past_state", past_state, [*input.shape[:2], weight.shape[2] - 1], input.dtype)
    active, half = activation != "none", input.dtype.itemsize == 2
    output, state = attn.causal_conv1d(input, weight[:, 0], bias, initial_state=past_state, silu=active and not half)
    if active and half:
        wide = output.astype(np.float32)
        with np.errstate(over="ignore"):
            output = (wide / (1 + np.exp(-wide))).astype(input.dtype)
    return output, state


class LinearAttention(OpRun):
    """Replaces the reference's own LinearAttention."""

    op_domain = ""

    def _run(self, query, key, value, past_state=None, decay=None, beta=None, chunk_size=None, kv_num_heads=None,
             q_num_heads=None, scale=None, update_rule=None):
        results = linear_attention(query, key, value, past_state, decay, beta, q_num_heads=q_num_heads,
                                   kv_num_heads=kv_num_heads, scale=scale or 0.0,
                                   update_rule=update_rule or "gated_delta")
        return results[:len(self.onnx_node.output)]


class CausalConvWithState(OpRun):
    """Replaces the reference's own CausalConvWithState."""

    op_domain = ""

    def _run(self, input, weight, bias=None, past_state=None, activation=None):
        results = causal_conv_with_state(input, weight, bias, past_state, activation=activation or "none")
        return results[:len(self.onnx_node.output)]
