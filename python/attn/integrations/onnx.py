# python/attn/integrations/onnx.py: a backend of ONNX whose Attention operator (opset 23 to 25) is attn.
"""`attn.integrations.onnx.run_model(model, inputs)`: models whose Attention nodes are computed by attn, other nodes by onnx's reference."""

import numpy as np
from onnx import ModelProto, TensorProto
from onnx.backend.base import Backend, BackendRep, Device, DeviceType
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import attn

_RAW, _CAPPED, _MASKED, _WEIGHTS = range(4)


def _heads(x, count):
    """[B, T, H * D] as [B, H, T, D]: a view."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def _padded(mask, keys):
    """A mask that tells of the first keys only hides the others."""
    missing = keys - mask.shape[-1]
    if missing <= 0:
        return mask
    hidden = False if mask.dtype == np.bool_ else -np.inf
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=hidden)


def _check(function, given):
    for name in ("left_window_size", "right_window_size"):
        if given[name] < -1:
            raise ValueError(f"{function}: {name} is {given[name]}; it must be -1 (no limit) or not negative")


def attention(
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    nonpad_kv_seqlen=None,
    *,
    is_causal=0,
    scale=None,
    softcap=0.0,
    q_num_heads=None,
    kv_num_heads=None,
    qk_matmul_output_mode=0,
    softmax_precision=None,
    left_window_size=-1,
    right_window_size=-1,
    wants_qk=True,
):
    """The operator Attention of ONNX (opset 23 to 25) on NumPy arrays: (Y, present_key, present_value, qk_matmul_output).

    Shapes: Q [B, Hq, Tq, D], K [B, Hk, Tk, D], V [B, Hk, Tk, Dv], or [B, T, H * D] with q_num_heads and kv_num_heads.
    Positions count from the start of the cache: row i stands at past + i, or at nonpad_kv_seqlen[b] - Tq + i. A row that sees no key
    gives 0. Softmax is computed in float32 (float64 for float64, or where softmax_precision asks for it).
    """
    _check("Attention", {"left_window_size": left_window_size, "right_window_size": right_window_size})
    if (past_key is None) != (past_value is None):
        raise ValueError("Attention: past_key and past_value are given together or not at all")
    if nonpad_kv_seqlen is not None and past_key is not None:
        raise ValueError("Attention: nonpad_kv_seqlen and past_key are both given; one says where the keys end")
    flat = Q.ndim == 3
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise ValueError("Attention: inputs of rank 3 need q_num_heads and kv_num_heads")
        Q, K, V = _heads(Q, q_num_heads), _heads(K, kv_num_heads), _heads(V, kv_num_heads)
    if past_key is not None:
        K, V = np.concatenate((past_key, K), axis=2), np.concatenate((past_value, V), axis=2)
    dtype, (batch, heads, rows, _), keys = Q.dtype, Q.shape, K.shape[2]
    q, k, v = Q, K, V
    if softmax_precision == TensorProto.DOUBLE or dtype.itemsize == 2:
        # 16 bits: nothing is rounded but the results, as the operator's own tests want it to a unit in the last place.
        wide = np.float64 if softmax_precision == TensorProto.DOUBLE else np.float32
        q, k, v = (x.astype(wide) for x in (Q, K, V))

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
            bias = attn_mask if attn_mask.dtype in (q.dtype, np.float32) else attn_mask.astype(q.dtype if q.dtype == np.float64 else np.float32)

    scale = float(scale) if scale is not None else q.shape[-1] ** -0.5
    wants_weights = wants_qk and qk_matmul_output_mode == _WEIGHTS
    result = attn.attention(
        q, k, v, scale=scale, mask=mask, bias=bias, softcap=float(softcap or 0.0), weights="full" if wants_weights else None, **lengths
    )
    output, qk = result if wants_weights else (result, None)
    if wants_qk and not wants_weights:
        qk = attn.attention_scores(q, k, scale=scale)
        if qk_matmul_output_mode != _RAW and softcap:
            qk = (np.tanh(qk.astype(np.float64) / softcap) * softcap).astype(qk.dtype)
        if qk_matmul_output_mode == _MASKED:
            seen = mask.dense(batch, heads, rows, keys, **lengths)
            added = qk.astype(np.float64) if bias is None else qk.astype(np.float64) + bias.astype(np.float64)
            qk = np.where(seen, added, -np.inf)
    output = output.astype(dtype, copy=False)
    if flat:
        output = output.transpose(0, 2, 1, 3).reshape(batch, rows, -1)
    return output, K, V, None if qk is None else qk.astype(dtype, copy=False)


class Attention(OpRun):
    """attn in the place of the reference's own."""

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


class _Prepared(BackendRep):
    def __init__(self, model):
        self._evaluator = ReferenceEvaluator(model, new_ops=[Attention])

    def run(self, inputs, **_):
        """inputs: arrays in the graph's order, or a dict by name; gives the graph's outputs."""
        if not isinstance(inputs, dict):
            given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            inputs = dict(zip(self._evaluator.input_names, given))
        return tuple(self._evaluator.run(None, inputs))


class AttnBackend(Backend):
    """onnx.backend.base.Backend on the CPU."""

    @classmethod
    def is_compatible(cls, model, device="CPU", **_):
        return isinstance(model, ModelProto) and cls.supports_device(device)

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        if not cls.supports_device(device):
            raise ValueError(f"attn: device is {device}; it must be CPU")
        super().prepare(model, device, **kwargs)
        return _Prepared(model)

    @classmethod
    def supports_device(cls, device):
        return Device(device).type == DeviceType.CPU


prepare = AttnBackend.prepare
run_model = AttnBackend.run_model
is_compatible = AttnBackend.is_compatible
supports_device = AttnBackend.supports_device
