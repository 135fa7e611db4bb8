# python/attn/integrations/onnx.py: provides a backend of ONNX whose Attention operator (opset 23 to 25) runs on attn.
"""`attn.integrations.onnx.run_model(model, inputs)`: models whose Attention, RotaryEmbedding, LinearAttention,
CausalConvWithState and FlexAttention nodes are computed by attn, other nodes by onnx's reference."""

import os
import re

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto
from onnx.backend.base import Backend, BackendRep
from onnx.checker import ValidationError, check_model
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import attn
from attn._arguments import shown
from attn.integrations._onnx_checks import FLOATS, number, whole
from attn.integrations._onnx_operators import FlexAttention, RotaryEmbedding, flex_attention, rotary_embedding
from attn.integrations._onnx_recurrent import (
    CausalConvWithState,
    LinearAttention,
    causal_conv_with_state,
    linear_attention,
)

__all__ = ["AttnBackend", "attention", "causal_conv_with_state", "flex_attention", "is_compatible", "linear_attention",
           "prepare", "rotary_embedding", "run_model", "supports_device"]

_OWN_DTYPES = {"attn_mask": ("bool", *FLOATS), "nonpad_kv_seqlen": ("int64", "int32")}
_RAW, _CAPPED, _MASKED, _WEIGHTS = range(4)


def _precision(kind, dtype):
    """Returns the dtype of the softmax: softmax_precision as a NumPy dtype, else that of the inputs."""
    return dtype if kind is None else tensor_dtype_to_np_dtype(kind)


def _heads(x, count):
    """Reshapes [B, T, H * D] to [B, H, T, D], as a view."""
    return x.reshape(*x.shape[:2], count, x.shape[2] // count).transpose(0, 2, 1, 3)


def _padded(mask, keys):
    """Extends a mask that covers only the first keys, so that the other keys are masked."""
    missing = keys - mask.shape[-1]
    if missing <= 0:
        return mask
    masked = False if mask.dtype == np.bool_ else -np.inf
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=masked)


def _joined(weights, values, seen):
    """Multiplies weights [B, H, Tq, Tk] by values [B, Hk, Tk, Dv]; values of masked keys have no effect."""
    batch, heads, rows, keys = weights.shape
    groups, width = values.shape[1], values.shape[3]
    if not np.isfinite(values.astype(np.float32)).all():
        values = np.repeat(values, heads // groups, axis=1)
        parts = weights[..., None].astype(np.float32) * values[:, :, None].astype(np.float32)
        return np.where(seen[..., None], parts, 0).sum(axis=-2).astype(weights.dtype)
    out = np.empty((batch, groups, heads // groups, rows, width), dtype=weights.dtype)
    attn._core.matmul_into(weights.reshape(batch, groups, heads // groups, rows, keys), values[:, :, None], out)
    return out.reshape(batch, heads, rows, width)


def _step_by_step(q, k, v, scale, softcap, seen, bias, precision):
    """Computes the operator's function body, each step rounded to its type: (output, the scores after each step).

    This order decides the bits of 16-bit results: q and k are each multiplied by sqrt(scale), and the softmax, its sum
    included, is in the inputs' type unless softmax_precision names another. Stores whole matrices, as the body does.
    """
    dtype = q.dtype
    factor = dtype.type(np.sqrt(scale))
    with np.errstate(all="ignore"):  # masked keys may hold any values
        raw = attn.attention_scores(q * factor, k * factor, score="dot")
        capped = raw if not softcap else np.tanh(raw / dtype.type(softcap)) * dtype.type(softcap)
        added = capped if bias is None else capped + bias.astype(dtype)
    masked = np.where(seen, added, dtype.type(-np.inf))
    wide = masked.astype(precision)
    greatest = wide.max(axis=-1, keepdims=True, initial=-np.inf)
    nothing = np.isneginf(greatest)
    powers = np.exp(wide - np.where(nothing, wide.dtype.type(0), greatest))
    total = np.add.reduce(powers, axis=-1, keepdims=True)
    weights = (powers / np.where(nothing, wide.dtype.type(1), total)).astype(dtype)
    return _joined(weights, v, masked != -np.inf), (raw, capped, masked, weights)


def _fused(q, k, v, scale, softcap, mask, bias, lengths, mode):
    """Computes the output in the library's one fused pass; returns (output, the scores after the step that `mode`
    names, or None)."""
    options = dict(scale=scale, mask=mask, bias=bias, softcap=softcap, **lengths)
    if mode == _WEIGHTS:
        return attn.attention(q, k, v, weights="full", **options)
    output = attn.attention(q, k, v, **options)
    if mode is None:
        return output, None
    qk = attn.attention_scores(q, k, scale=scale)
    if mode != _RAW and softcap:
        qk = (np.tanh(qk.astype(np.float64) / softcap) * softcap).astype(qk.dtype)
    if mode == _MASKED:
        seen = mask.dense(*qk.shape, **lengths)
        qk = np.where(seen, qk.astype(np.float64) if bias is None else qk.astype(np.float64) + bias.astype(np.float64),
                      -np.inf)
    return output, qk


def _check_arrays(arrays):
    for name, x in arrays.items():
        if x is not None and not isinstance(x, np.ndarray):
            raise TypeError(f"Attention: {name} is a {type(x).__name__}; a NumPy array is needed")
    Q = arrays["Q"]
    for name in ("Q", "K", "V"):
        x = arrays[name]
        if x is None:
            raise TypeError(f"Attention: {name} is None; a NumPy array is needed")
        if x.ndim not in (3, 4) or x.ndim != Q.ndim:
            raise ValueError(f"Attention: {name} has shape {list(x.shape)}; it must be [B, H, T, D], or [B, T, H * "
                             f"D], and of the rank of Q {list(Q.shape)}")


def _check_dtypes(arrays):
    for name, x in arrays.items():
        own = _OWN_DTYPES.get(name, FLOATS)
        if x is not None and x.dtype.name not in own:
            raise TypeError(f"Attention: {name} is {x.dtype}; it must be {' or '.join(own)}")
    mask = arrays["attn_mask"]
    if mask is not None and mask.ndim == 0:
        raise ValueError("Attention: attn_mask has shape []; it must have 1 or more dims")


def _check_numbers(mode, precision, windows):
    if mode not in range(4):
        raise ValueError(f"Attention: qk_matmul_output_mode is {mode}; it must be from 0 to 3")
    if precision not in (None, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16):
        raise ValueError(f"Attention: softmax_precision is {precision}; it must be a floating type: 1 (float), 10 "
                         "(float16), 11 (double) or 16 (bfloat16)")
    for name, size in windows.items():
        if size < -1:
            raise ValueError(f"Attention: {name} is {size}; it must be -1 (no limit) or not negative")


def _check_heads(name, x, count, attribute):
    if count < 1 or x.shape[2] % count:
        raise ValueError(f"Attention: {name} has shape {list(x.shape)}; "
                         f"its last dim must be a multiple of {attribute} {count}")


def _check_past(name, past, x, of):
    if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (*x.shape[:2], x.shape[3]) or past.dtype != x.dtype:
        needed = f"{x.dtype} [{x.shape[0]}, {x.shape[1]}, past, {x.shape[3]}] to match {of}"
        raise ValueError(f"Attention: {name} is {past.dtype} of shape {list(past.shape)}; it must be {needed}")


def attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    attn_mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    nonpad_kv_seqlen: np.ndarray | None = None,
    *,
    is_causal: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    softmax_precision: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
    wants_qk: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """The operator Attention of ONNX (opset 23 to 25) on NumPy arrays:
    (Y, present_key, present_value, qk_matmul_output).

    Shapes: Q [B, Hq, Tq, D], K [B, Hk, Tk, D], V [B, Hk, Tk, Dv], or [B, T, H * D] with q_num_heads and kv_num_heads.
    Positions count from the start of the cache: row i stands at past + i, or at nonpad_kv_seqlen[b] - Tq + i. A row
    that sees no key gives 0. float32 and float64 run through `attn.attention`, in float64 if softmax_precision requires
    it. 16-bit inputs are computed step by step as in the operator's function body, rounded where it rounds,
    with attn's products.
    """
    arrays = {"Q": Q, "K": K, "V": V, "attn_mask": attn_mask, "past_key": past_key, "past_value": past_value,
              "nonpad_kv_seqlen": nonpad_kv_seqlen}
    _check_arrays(arrays)
    _check_dtypes(arrays)
    scale, softcap = number("Attention", "scale", scale), number("Attention", "softcap", softcap)
    q_num_heads = whole("Attention", "q_num_heads", q_num_heads)
    kv_num_heads = whole("Attention", "kv_num_heads", kv_num_heads)
    is_causal, qk_matmul_output_mode = (whole("Attention", "is_causal", is_causal),
                                        whole("Attention", "qk_matmul_output_mode", qk_matmul_output_mode))
    left_window_size, right_window_size = (whole("Attention", "left_window_size", left_window_size),
                                           whole("Attention", "right_window_size", right_window_size))
    softmax_precision = whole("Attention", "softmax_precision", softmax_precision)
    _check_numbers(qk_matmul_output_mode, softmax_precision,
                   {"left_window_size": left_window_size, "right_window_size": right_window_size})
    if (past_key is None) != (past_value is None):
        raise ValueError("Attention: past_key and past_value are given together or not at all")
    if nonpad_kv_seqlen is not None and past_key is not None:
        raise ValueError("Attention: nonpad_kv_seqlen and past_key are both given; one says where the keys end")
    flat = Q.ndim == 3
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise ValueError("Attention: inputs of rank 3 need q_num_heads and kv_num_heads")
        _check_heads("Q", Q, q_num_heads, "q_num_heads")
        _check_heads("K", K, kv_num_heads, "kv_num_heads")
        _check_heads("V", V, kv_num_heads, "kv_num_heads")
        Q, K, V = _heads(Q, q_num_heads), _heads(K, kv_num_heads), _heads(V, kv_num_heads)
    if past_key is not None:
        _check_past("past_key", past_key, K, "K")
        _check_past("past_value", past_value, V, "V")
        K, V = np.concatenate((past_key, K), axis=2), np.concatenate((past_value, V), axis=2)
    dtype, (batch, heads, rows, _), keys = Q.dtype, Q.shape, K.shape[2]
    q, k, v = Q, K, V
    halves = dtype.itemsize == 2
    if softmax_precision == TensorProto.DOUBLE and not halves:
        q, k, v = (x.astype(np.float64) for x in (Q, K, V))

    mask, bias, lengths = attn.Mask(), None, {}
    if nonpad_kv_seqlen is not None:
        ends = np.asarray(nonpad_kv_seqlen, dtype=np.int64).reshape(-1)
        lengths = {"key_lengths": ends, "query_start": ends - rows}
    elif past_key is not None:
        lengths = {"query_start": np.full(batch, past_key.shape[2], dtype=np.int64)}
    if is_causal:
        mask = mask & attn.Mask.causal("top_left")
    if left_window_size >= 0 or right_window_size >= 0:
        mask = mask & attn.Mask.window(left_window_size, right_window_size, "top_left")
    if attn_mask is not None:
        attn_mask = _padded(attn_mask, keys)
        if attn_mask.dtype == np.bool_:
            mask = mask & attn.Mask.attend(attn_mask)
        else:
            bias = (attn_mask if attn_mask.dtype in (q.dtype, np.float32)
                    else attn_mask.astype(q.dtype if q.dtype == np.float64 else np.float32))

    # with D = 0 each score is 0, whatever the scale
    scale = scale if scale is not None else max(1, q.shape[-1]) ** -0.5
    mode = qk_matmul_output_mode if wants_qk else None
    softcap = softcap or 0.0
    if halves:
        seen = mask.dense(batch, heads, rows, keys, **lengths)
        output, steps = _step_by_step(q, k, v, scale, softcap, seen, bias, _precision(softmax_precision, dtype))
        qk = None if mode is None else steps[mode]
    else:
        output, qk = _fused(q, k, v, scale, softcap, mask, bias, lengths, mode)
    output = output.astype(dtype, copy=False)
    if flat:
        output = output.transpose(0, 2, 1, 3).reshape(batch, rows, heads * output.shape[3])
    return output, K, V, None if qk is None else qk.astype(dtype, copy=False)


class Attention(OpRun):
    """Replaces the reference's own Attention in onnx.reference.ReferenceEvaluator(model, new_ops=[Attention])."""

    op_domain = ""

    def _run(
        self,
        Q,
        K,
        V,
        attn_mask=None,
        past_key=None,
        past_value=None,
        nonpad_kv_seqlen=None,
        scale=None,
        is_causal=0,
        q_num_heads=None,
        kv_num_heads=None,
        softmax_precision=None,
        softcap=0.0,
        qk_matmul_output_mode=0,
        left_window_size=-1,
        right_window_size=-1,
    ):
        wanted = list(self.onnx_node.output)
        results = attention(
            Q,
            K,
            V,
            attn_mask,
            past_key,
            past_value,
            nonpad_kv_seqlen,
            is_causal=is_causal or 0,
            scale=scale,
            softcap=softcap or 0.0,
            q_num_heads=q_num_heads,
            kv_num_heads=kv_num_heads,
            qk_matmul_output_mode=qk_matmul_output_mode or 0,
            softmax_precision=softmax_precision,
            left_window_size=-1 if left_window_size is None else left_window_size,
            right_window_size=-1 if right_window_size is None else right_window_size,
            wants_qk=len(wanted) > 3 and bool(wanted[3]),
        )
        return tuple(np.empty(0, dtype=Q.dtype) if x is None else x for x in results[: len(wanted)])


def _first_line(error):
    return shown(next(iter(str(error).strip().splitlines()), type(error).__name__), 300)


def _checked(model):
    """Returns a model, given as an object, a path or bytes, after onnx has checked it."""
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    if not isinstance(model, (ModelProto, str, bytes)):
        raise TypeError(f"attn: model is a {type(model).__name__}; "
                        "an onnx.ModelProto, the path of a file or its bytes is needed")
    if isinstance(model, str) and not os.path.isfile(model):
        raise ValueError(f'attn: model is "{shown(model, 300)}"; there is no such file')
    try:
        check_model(model)
        return model
    except (ValidationError, ValueError, TypeError, DecodeError, OSError) as error:
        raise ValueError(f"attn: model is not one of ONNX: {_first_line(error)}") from error


class _Prepared(BackendRep):
    def __init__(self, model):
        self._evaluator = ReferenceEvaluator(model, new_ops=[Attention, RotaryEmbedding, FlexAttention, LinearAttention,
                                                             CausalConvWithState])

    def run(self, inputs, **_):
        """Runs the model. inputs: arrays in the graph's order, or a dict by name; returns the graph's outputs."""
        names, known = self._evaluator.input_names, self._evaluator.rt_inits_
        if not isinstance(inputs, dict):
            given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) > len(names):
                raise ValueError(f"attn: {len(given)} inputs are given; the graph has {len(names)}: {', '.join(names)}")
            inputs = dict(zip(names, given))
        for name in inputs:
            if name not in names and name not in known:
                raise ValueError(f"attn: the graph has no input {shown(name)}; it has {', '.join(names)}")
        for name, kind in zip(names, self._evaluator.input_types):
            if name not in inputs and name not in known:
                raise ValueError(f"attn: input {name} is missing; the graph has {', '.join(names)}")
            if (kind.HasField("tensor_type") and name in inputs
                    and not isinstance(inputs[name], (np.ndarray, np.generic))):
                raise TypeError(f"attn: input {name} is a {type(inputs[name]).__name__}; a NumPy array is needed")
        return tuple(self._evaluator.run(None, inputs))


class AttnBackend(Backend):
    """Implements onnx.backend.base.Backend on the CPU."""

    @classmethod
    def is_compatible(cls, model, device="CPU", **_):
        """Returns whether it is a model and the device is the CPU."""
        return isinstance(model, ModelProto) and cls.supports_device(device)

    @classmethod
    def prepare(cls, model, device="CPU", **_):
        """Prepares a model (or the path or bytes of one): `prepare(model).run(inputs)` runs it.
        Raises TypeError, ValueError."""
        if not cls.supports_device(device):
            raise ValueError(f"attn: device is {shown(device)}; it must be CPU")
        return _Prepared(_checked(model))

    @classmethod
    def run_model(cls, model, inputs, device="CPU", **_):
        """Returns the outputs of a model; inputs: in the graph's order, or a dict by name.
        Raises TypeError, ValueError."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def supports_device(cls, device):
        """Returns whether the device is the CPU: "CPU", "CPU:0"."""
        if not isinstance(device, str):
            raise TypeError(f'attn: device is a {type(device).__name__}; a text is needed, as "CPU"')
        return re.fullmatch(r"CPU(:\d+)?", device) is not None


prepare = AttnBackend.prepare
run_model = AttnBackend.run_model
is_compatible = AttnBackend.is_compatible
supports_device = AttnBackend.supports_device
