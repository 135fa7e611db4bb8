# python/attn/_functions.py: defines the functions of the library, with their documentation.
"""Each function calls the extension; those that support gradients pass torch tensors on to attn.torch."""

from typing import Any, NoReturn, TypeVar

from attn import _arguments, _core
from attn._options import AdditiveWeights, in_order, of_constants, prepared

Array = TypeVar("Array")
_by_torch: Any = None


def _imported() -> bool:
    global _by_torch
    if _by_torch is None:
        from attn.torch import functional

        _by_torch = functional
    return True


# runs while a graph is traced, so that this change of state is not part of the graph
_imported._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _torch() -> Any:
    """Returns attn.torch.functional; imports it at the first tensor."""
    _imported()
    return _by_torch


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    **unknown: NoReturn,
) -> Array:
    """torch.nn.functional.scaled_dot_product_attention, argument by argument (PyTorch 2.13),
    for NumPy arrays and torch tensors.

    query [.., Hq, L, E], key [.., H, S, E], value [.., H, S, Ev] -> [.., Hq, L, Ev];
    rank 2 to 8, leading dims broadcast.

    attn_mask   bool (True takes part) or floating (added to the scores), broadcastable to [.., Hq, L, S]
    dropout_p   drops weights if above 0, in training or not. For NumPy arrays the random numbers after
                attn.manual_seed(s) are those that torch draws after torch.manual_seed(s);
                for tensors the seed comes from torch's generator
    is_causal   query i sees the keys 0 to i, also if L != S; may be combined with attn_mask
    scale       default 1 / sqrt(E)
    enable_gqa  query head h reads key head h // (Hq / H)

    Dtypes   float32, float64, bfloat16 (ml_dtypes' in NumPy), float16, the same for all three.
    Memory   any strides, nothing is copied where the last dim is contiguous; the result is laid out as query.
    A query that may see no key gives 0. A masked key changes nothing, even if it is NaN.
    Raises   ValueError for shapes and values, TypeError for dtypes, each with one line that says what is needed.
    Source   Vaswani 2017 (1706.03762); Dao 2022 (2205.14135). Where torch's answer depends on its path: docs/torch.md.

    >>> import numpy as np, attn
    >>> x = np.eye(2, dtype=np.float32)
    >>> attn.scaled_dot_product_attention(x, x, x, is_causal=True).round(4)
    array([[1.    , 0.    ],
           [0.3302, 0.6698]], dtype=float32)
    """
    if unknown:
        _arguments.check("scaled_dot_product_attention", unknown, _SDPA_NAMES)
    if hasattr(query, "__torch_function__"):
        return _torch().scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale,
                                                     enable_gqa)
    return _core.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _chosen(results: tuple, plan: bool) -> Any:
    """Returns the requested results: the output alone, or a tuple that begins with it."""
    output, weights, logsumexp, steps, _ = results
    if weights is None and logsumexp is None and not plan:
        return output
    return (output, *(x for x in (weights, logsumexp) if x is not None), *([steps] if plan else []))


_SDPA_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_NAMES = (*_core.attention_options, "return_plan")


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    score: Any = None,
    scale: float | None = None,
    mask: Any = None,
    bias: Any = None,
    score_mod: Any = None,
    normalizer: str | None = None,
    weight_mod: Any = None,
    softcap: float = 0.0,
    temperature: float = 1.0,
    sinks: Any = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    key_start: Any = None,
    query_start: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
    weights: str | _core.Weights | None = None,
    return_logsumexp: bool = False,
    return_plan: bool = False,
    out: Any = None,
    **unknown: NoReturn,
) -> Any:
    """Attention: softmax over the keys of a score, then the weighted mean of the values;
    with every option of the library.

        s[b,h,i,j] = score(q[b,h,i,:], k[b,g,j,:])          g = h // (Hq / Hk), g' = h // (Hq / Hv)
        o[b,h,i,:] = sum_j softmax_j(mod(cap(s) + bias) / temperature, where mask)[j] v[b,g',j,:]

    q [B, Hq, Tq, D], k [B, Hk, Tk, D], v [B, Hv, Tk, Dv] -> output [B, Hq, Tq, Dv]. Hk and Hv each divide Hq. Rank 3
    means [B, T, D] with one head, rank 2 [T, D].

    score           "scaled_dot" (the default), "dot", attn.Score.general(w), attn.Score.additive(w_q, w_k, w)
    scale           of the scaled dot product; default 1 / sqrt(D)
    mask            attn.Mask or its text, "causal & window(512, 0)"; an expression is never expanded to Tq x Tk
    bias            attn.Bias, or a floating array that broadcasts to [B, Hq, Tq, Tk]
    score_mod       a function of (s, b, h, i, j), traced once into attn.ScoreExpression:
                    lambda s, b, h, i, j: s - slope[h] * (i - j)
    normalizer      how the scores of a row become weights: "softmax" (the default), "softmax1", "sparsemax",
                    "entmax15", "sigmoid" or "sigmoid(BIAS)", "relu_squared" or "relu_squared(SCALE)"
    weight_mod      a function of (w, b, h, i, j) as score_mod, of the weight after the normalizer, before dropout:
                    lambda w, b, h, i, j: w * gate[h, j]
    softcap         c: scores become c * tanh(s / c); 0: off
    temperature     the scores are divided by it, after all other changes
    sinks           [Hq]: an extra logit for each head, which is counted in the softmax's sum but has no value
    query_lengths, key_lengths, key_start, query_start
                    whole numbers [B], a list or an array: which rows and keys exist,
                    and at which position row 0 is (attn.Mask explains them)
    cu_seqlens_q, cu_seqlens_k
                    whole numbers [N + 1], a list or an array: packed sequences, one after the other, without padding:
                    q [total, Hq, D], k [total_k, Hk, D], v [total_k, Hv, Dv], or [1, H, total, D] each
    dropout_p       each weight is dropped with this probability, depending on the seed and its position: the same
                    dropout_seed drops the same weights. Without a seed one is drawn: for NumPy arrays from the
                    generator of attn.manual_seed, for tensors from torch's
    weights         "full" [B, Hq, Tq, Tk], "head_average" [B, Tq, Tk], "column_sums" [B, Hq, Tk],
                    attn.Weights.rows(indices), or attn.Weights.top_k(n), which gives (weights, keys): returns these
                    weights too; only "full" stores the whole matrix. As text: "rows(0, -1)", "top_k(3)"
    return_logsumexp, return_plan
                    return the logsumexp [B, Hq, Tq] too; return which kernel ran, and why not the others
    out             an array that receives the output (not if torch is to compute gradients)

    Returns  output, or the tuple (output, weights, logsumexp, plan) of the requested results.
    Dtypes   float32, float64, bfloat16, float16, the same for q, k, v;
             sums and softmax in float32 (float64 for float64).
    A row that sees no key gives 0 and logsumexp -inf. A masked pair changes nothing, even if its k or v is NaN.
    Bits     the same for a row in any batch, any padding, any number of threads (docs/numerics.md).
    Raises   ValueError for shapes and values, TypeError for types and dtypes: one line that says what is needed.
             Nothing is written then.
    Source   Vaswani 2017 (1706.03762); Bahdanau 2014 (1409.0473); Dao 2022 (2205.14135).

    >>> import numpy as np, attn
    >>> q = k = v = np.eye(3, dtype=np.float32)
    >>> output, weights = attn.attention(q, k, v, mask="causal", bias=attn.Bias.alibi(1), weights="full")
    >>> weights.round(2)
    array([[1.  , 0.  , 0.  ],
           [0.36, 0.64, 0.  ],
           [0.26, 0.26, 0.47]], dtype=float32)
    """
    if unknown:
        _arguments.check("attention", unknown, _NAMES)
    # in the order of _core.attention_options
    options = (
        score,
        scale,
        mask,
        bias,
        score_mod,
        normalizer,
        weight_mod,
        softcap,
        temperature,
        sinks,
        query_lengths,
        key_lengths,
        key_start,
        query_start,
        cu_seqlens_q,
        cu_seqlens_k,
        dropout_p,
        dropout_seed,
        weights,
        return_logsumexp,
        out,
    )
    if hasattr(q, "__torch_function__"):
        return _chosen(_torch().attention(q, k, v, options, return_plan), return_plan)
    return _chosen(_core.attention(q, k, v, prepared("attention", options)), return_plan)


def additive_attention(query: Any, key: Any, value: Any, w_q: Any, w_k: Any, w: Any, **options: Any) -> Any:
    """Additive attention: w . tanh(W_q q + W_k k) as the score, in the same fused pass.

    query [.., Tq, D], key [.., Tk, Dk], value [.., Tk, Dv], w_q [A, D], w_k [A, Dk], w [A] -> [.., Tq, Dv]. `options`
    are those of `attention`, except score.

    Source   Bahdanau 2014 (1409.0473).

    >>> import numpy as np, attn
    >>> x = np.eye(2, dtype=np.float32)
    >>> attn.additive_attention(x, x, x, x, x, np.ones(2, np.float32)).round(3)
    array([[0.364, 0.636],
           [0.636, 0.364]], dtype=float32)
    """
    if "score" in options:
        raise TypeError("additive_attention: score is given; it is additive here")
    _arguments.check("additive_attention", options, _NAMES[1:])
    return attention(query, key, value, score=AdditiveWeights(w_q, w_k, w), **options)


def attention_scores(q: Array, k: Array, score: Any = None, scale: float | None = None, **unknown: NoReturn) -> Array:
    """The scores alone, before softcap, bias, mask and softmax: [.., Tq, Tk];
    `attention` computes the same numbers.

    q [.., Hq, Tq, D], k [.., Hk, Tk, D], rank 2 to 4; score and scale as in `attention`. There are no gradients.
    Raises ValueError for shapes and values, TypeError for types and dtypes.

    >>> import numpy as np, attn
    >>> x = np.eye(2, dtype=np.float32)
    >>> attn.attention_scores(x, x, score="dot")
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    _arguments.check("attention_scores", unknown, ("q", "k", "score", "scale"))
    return _core.attention_scores(q, k, score, scale)


def attention_cached(q: Any, cache: _core.KvCache, sequences: Any, **options: Any) -> Any:
    """`attention` over the keys of a cache: q [B, Hq, Tq, D] -> [B, Hq, Tq, Dv]. Batch item b reads sequences[b]; each
    sequence may have a length of its own.

    The rows are at the end of their sequence unless query_start says otherwise: append the new keys first, then
    attend with mask="causal". `options` are those of `attention`, except key_lengths and key_start, which the cache
    sets. There are no gradients: a tensor that wants one is refused.

    Bits     those of `attention` on the same keys without a cache.

    >>> import numpy as np, attn
    >>> cache = attn.KvCache(key_heads=1, head_dim=4, pages=8)
    >>> sequence = cache.create()
    >>> x = np.ones((1, 3, 4), np.float32)
    >>> cache.append(sequence, x, x)
    >>> attn.attention_cached(x[None], cache, [sequence], mask="causal").shape
    (1, 1, 3, 4)
    """
    if not isinstance(cache, _core.KvCache):
        raise TypeError(f"attention_cached: cache is a {type(cache).__name__}; an attn.KvCache is needed")
    given = of_constants("attention_cached", {"q": q}, in_order("attention_cached", options, _NAMES))
    return _chosen(_core.attention_cached(q, cache, sequences, given), options.get("return_plan", False))
