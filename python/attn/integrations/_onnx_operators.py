# python/attn/integrations/_onnx_operators.py: ONNX's RotaryEmbedding (opset 23) and the preview of FlexAttention, on
# attn.
from collections.abc import Callable

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference.op_run import OpRun

import attn
from attn.integrations._onnx_checks import FLOATS, number, whole


def _check(operator, arrays, rank=None):
    first, of = next(iter(arrays.items()))
    for name, x in arrays.items():
        if not isinstance(x, np.ndarray):
            shown = "None" if x is None else f"a {type(x).__name__}"
            raise TypeError(f"{operator}: {name} is {shown}; a NumPy array is needed")
        if x.dtype.name not in FLOATS or x.dtype != of.dtype:
            raise TypeError(f"{operator}: {name} is {x.dtype}; it must be {' or '.join(FLOATS)}, as {first}")
        if rank is not None and x.ndim != rank:
            raise ValueError(f"{operator}: {name} has shape {list(x.shape)}; it must be [B, H, T, D]")


# --- RotaryEmbedding --------------------------------------------------------------------------------------------------


def _angles(name, table, position_ids, batch, rows, half):
    """A table as [B, T, half]: looked up by positions, or given so."""
    wanted = ["positions", half] if position_ids is not None else [batch, rows, half]
    fits = table.ndim == len(wanted) and table.shape[-1] == half and (position_ids is not None
                                                                     or list(table.shape) == wanted)
    if not fits:
        shown = f"[{', '.join(map(str, wanted))}]"
        raise ValueError(f"RotaryEmbedding: {name} has shape {list(table.shape)}; it must be {shown}")
    return table if position_ids is None else table[position_ids]


def _positions(x, batch, rows, length):
    if x is None:
        return None
    if not isinstance(x, np.ndarray) or x.dtype.name not in ("int64", "int32") or x.shape != (batch, rows):
        shown = f"{x.dtype} of shape {list(x.shape)}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
        raise ValueError(f"RotaryEmbedding: position_ids is {shown}; it must be int64 [{batch}, {rows}]")
    if x.size and (x.min() < 0 or x.max() >= length):
        raise ValueError(f"RotaryEmbedding: position_ids holds {x.min() if x.min() < 0 else x.max()}; cos_cache has "
                         f"{length} positions")
    return x


def rotary_embedding(
    X: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    position_ids: np.ndarray | None = None,
    *,
    interleaved: int = 0,
    rotary_embedding_dim: int = 0,
    num_heads: int | None = None,
) -> np.ndarray:
    """The operator RotaryEmbedding of ONNX (opset 23) on NumPy arrays: X [B, H, T, D], or [B, T, H * D] with num_heads.

    Column pairs (a, b) become (a cos - b sin, a sin + b cos): interleaved, columns 0 and 1, 2 and 3, ..., else columns
    0 and half, 1 and half + 1, ... 16-bit inputs are computed in float32 and rounded once.
    """
    name = "RotaryEmbedding"
    _check(name, {"X": X, "cos_cache": cos_cache, "sin_cache": sin_cache})
    interleaved, width = whole(name, "interleaved", interleaved), whole(name, "rotary_embedding_dim",
                                                                        rotary_embedding_dim)
    heads = whole(name, "num_heads", num_heads)
    if X.ndim not in (3, 4):
        raise ValueError(f"{name}: X has shape {list(X.shape)}; it must be [B, H, T, D] or [B, T, H * D]")
    if X.ndim == 3 and (not heads or heads < 1 or X.shape[2] % heads):
        raise ValueError(f"{name}: X has shape {list(X.shape)}; its last dim must be a multiple of num_heads {heads}")
    rows = X.reshape(*X.shape[:2], heads, -1) if X.ndim == 3 else X.transpose(0, 2, 1, 3)  # [B, T, H, D]
    width = width or rows.shape[3]
    if width % 2 or not 0 < width <= rows.shape[3]:
        raise ValueError(f"{name}: {width} columns are rotated; it must be an even number, at most {rows.shape[3]}")
    batch, length, half = *rows.shape[:2], width // 2
    position_ids = _positions(position_ids, batch, length, len(cos_cache) if cos_cache.ndim == 2 else 0)
    wide = np.float64 if X.dtype == np.float64 else np.float32
    cos, sin = (_angles(n, x, position_ids, batch, length, half)[:, :, None].astype(wide)
                for n, x in (("cos_cache", cos_cache), ("sin_cache", sin_cache)))
    result = rows.astype(wide)
    a, b = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, half), slice(half, width))
    left, right = result[..., a].copy(), result[..., b].copy()
    result[..., a], result[..., b] = left * cos - right * sin, left * sin + right * cos
    result = result.astype(X.dtype)
    return result.reshape(X.shape) if X.ndim == 3 else result.transpose(0, 2, 1, 3)


class RotaryEmbedding(OpRun):
    """Replaces the reference's own RotaryEmbedding."""

    op_domain = ""

    def _run(self, X, cos_cache, sin_cache, position_ids=None, interleaved=None, rotary_embedding_dim=None,
             num_heads=None):
        return (rotary_embedding(X, cos_cache, sin_cache, position_ids, interleaved=interleaved or 0,
                                 rotary_embedding_dim=rotary_embedding_dim or 0, num_heads=num_heads),)


# --- FlexAttention ----------------------------------------------------------------------------------------------------


def _changed(mod, matrix, name):
    result = np.asarray(mod(matrix))
    if result.shape != matrix.shape:
        raise ValueError(f"FlexAttention: {name} gives shape {list(result.shape)}; it must be {list(matrix.shape)}")
    return result.astype(matrix.dtype, copy=False)


def flex_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    *,
    scale: float | None = None,
    score_mod: Callable[[np.ndarray], np.ndarray] | None = None,
    prob_mod: Callable[[np.ndarray], np.ndarray] | None = None,
    softmax_precision: int | None = None,
) -> np.ndarray:
    """The preview operator FlexAttention of ONNX on NumPy arrays: Q [B, Hq, Tq, D], K [B, Hk, Tk, D], V [B, Hk, Tk,
    Dv].

    score_mod and prob_mod take and give the whole matrix [B, Hq, Tq, Tk], in the type of softmax_precision (float32,
    float64 for float64). Without them the call is `attn.attention`. A row whose scores are all -inf gives 0.
    """
    name = "FlexAttention"
    _check(name, {"Q": Q, "K": K, "V": V}, 4)
    scale, kind = number(name, "scale", scale), whole(name, "softmax_precision", softmax_precision)
    for argument, mod in (("score_mod", score_mod), ("prob_mod", prob_mod)):
        if mod is not None and not callable(mod):
            raise TypeError(f"{name}: {argument} is a {type(mod).__name__}; a function of one matrix is needed")
    if kind is not None and kind not in (1, 10, 11, 16):
        raise ValueError(f"{name}: softmax_precision is {kind}; it must be a floating type: 1, 10, 11 or 16")
    precision = tensor_dtype_to_np_dtype(kind) if kind is not None else (
        np.dtype(np.float64) if Q.dtype == np.float64 else np.dtype(np.float32))
    scale = max(1, Q.shape[3]) ** -0.5 if scale is None else scale
    wide = np.float64 if precision == np.float64 else np.float32
    if score_mod is None and prob_mod is None and Q.dtype == precision:
        return attn.attention(Q, K, V, scale=scale)
    if Q.dtype.itemsize == 2:  # sqrt(scale) on each of them and the scores are rounded, as in the operator's body
        factor = Q.dtype.type(np.sqrt(np.float32(scale)))
        scores = attn.attention_scores(Q * factor, K * factor, score="dot")
    else:
        scores = attn.attention_scores(Q, K, scale=scale)
    scores = scores.astype(precision)
    if score_mod is not None:
        scores = _changed(score_mod, scores, "score_mod")
    none = np.zeros((*Q.shape[:3], 1), wide), np.zeros((*K.shape[:3], 1), wide)  # the scores are the bias alone
    values = V.astype(wide)
    output = attn.attention(*none, values, bias=scores.astype(wide), weights="full" if prob_mod is not None else None)
    if prob_mod is not None:
        weights = _changed(prob_mod, output[1].astype(precision), "prob_mod").astype(wide)
        output = np.matmul(weights, values.repeat(Q.shape[1] // V.shape[1], axis=1))
    return output.astype(V.dtype)


class FlexAttention(OpRun):
    """Replaces the reference's own FlexAttention."""

    op_domain = "ai.onnx.preview"

    def _run(self, Q, K, V, scale=None, score_mod=None, prob_mod=None, softmax_precision=None, **_):
        def of_graph(graph):
            return None if graph is None else lambda matrix: graph.run(None, {graph.input_names[0]: matrix})[0]

        return (flex_attention(Q, K, V, scale=scale, score_mod=of_graph(score_mod), prob_mod=of_graph(prob_mod),
                               softmax_precision=softmax_precision),)
