# python/attn/_latent.py: defines latent attention (DeepSeek's MLA), alone and over a cache.
"""Each function calls the extension; torch tensors go through attn.torch, which records gradients."""

from typing import Any

from attn import _core
from attn._functions import _NAMES, _chosen
from attn._options import check_constants, in_order, of_constants, prepared

_REFUSED = ("score", "out")


def _given(function: str, options: dict[str, Any]) -> tuple:
    return in_order(function, options, [name for name in _NAMES if name not in _REFUSED], _REFUSED)


def latent_attention(
    q_nope: Any,
    q_rope: Any,
    latent: Any,
    k_rope: Any,
    w_uk: Any,
    w_uv: Any,
    *,
    form: str = "expanded",
    **options: Any,
) -> Any:
    """Multi-head latent attention (DeepSeek-V2): keys and values of all heads come from one latent row a token.

        s[b,h,i,j] = scale (q_nope[b,h,i,:] . W_UK[h] latent[b,j,:]  +  q_rope[b,h,i,:] . k_rope[b,j,:])
        o[b,h,i,:] = sum_j softmax_j(s)[j] W_UV[h] latent[b,j,:]

    q_nope [B, H, Tq, Dn], q_rope [B, H, Tq, Dr], latent [B, Tk, C], k_rope [B, Tk, Dr], w_uk [H, Dn, C],
    w_uv [H, Dv, C] -> output [B, H, Tq, Dv]. The rotary parts are rotated already.

    form      "expanded" makes keys of Dn + Dr and values of Dv elements for each head: for many rows of q;
              "absorbed" moves w_uk to the query and w_uv to the output, and attends over the rows [latent | k_rope]
              themselves: for decode. Same function, other roundings
    options   those of `attention`, except score and out. scale: default 1 / sqrt(Dn + Dr) in both forms

    Returns  as `attention`.
    Gradient all operands and those of `attention`.
    Bits     those of a form do not depend on batch, padding, threads or on how rows are cut into calls.
    Raises   ValueError for shapes and values, TypeError for dtypes, each with one line that says what is needed.
    Source   DeepSeek-V2 (2405.04434).

    >>> import numpy as np, attn
    >>> q, rotary, c = (np.ones((1, 2, 3, 4), np.float32), np.ones((1, 2, 3, 2), np.float32),
    ...                 np.eye(3, 8, dtype=np.float32)[None])
    >>> w = np.ones((2, 4, 8), np.float32)
    >>> attn.latent_attention(q, rotary, c, rotary[:, 0], w, w, mask="causal").shape
    (1, 2, 3, 4)
    """
    given, operands = _given("latent_attention", options), (q_nope, q_rope, latent, k_rope, w_uk, w_uv)
    plan = options.get("return_plan", False)
    if hasattr(q_nope, "__torch_function__"):
        from attn.torch import _latent

        return _chosen(_latent.latent_attention(operands, given, form), plan)
    return _chosen(_core.latent_attention(operands, prepared("latent_attention", given), form), plan)


def append_latent(cache: _core.KvCache, sequences: Any, latent: Any, k_rope: Any) -> None:
    """Appends T tokens to each of B sequences of a cache made with values_in_keys, or to none:
    latent [B, T, C], k_rope [B, T, Dr]. A tensor that wants a gradient is refused: give x.detach()."""
    if not isinstance(cache, _core.KvCache):
        raise TypeError(f"append_latent: cache is a {type(cache).__name__}; an attn.KvCache is needed")
    check_constants("append_latent", {"latent": latent, "k_rope": k_rope})
    _core.append_latent(cache, sequences, latent, k_rope)


def latent_attention_cached(
    q_nope: Any,
    q_rope: Any,
    w_uk: Any,
    w_uv: Any,
    cache: _core.KvCache,
    sequences: Any,
    *,
    form: str = "absorbed",
    **options: Any,
) -> Any:
    """`latent_attention` over the rows of a cache: one row of C + Dr elements a token, whose first C are the values.

    Positions and options are those of `attention_cached`. There are no gradients: a tensor that wants one is refused.

    Bits     those of `latent_attention` in the same form on the same rows.

    >>> import numpy as np, attn
    >>> cache = attn.KvCache(key_heads=1, head_dim=8 + 2, value_dim=8, pages=4, values_in_keys=True)
    >>> sequence, row = cache.create(), np.ones((1, 3, 8), np.float32)
    >>> attn.append_latent(cache, [sequence], row, row[..., :2])
    >>> q, rotary = np.ones((1, 2, 1, 4), np.float32), np.ones((1, 2, 1, 2), np.float32)
    >>> w = np.ones((2, 4, 8), np.float32)
    >>> attn.latent_attention_cached(q, rotary, w, w, cache, [sequence], mask="causal").tolist()
    [[[[8.0, 8.0, 8.0, 8.0]], [[8.0, 8.0, 8.0, 8.0]]]]
    """
    if not isinstance(cache, _core.KvCache):
        raise TypeError(f"latent_attention_cached: cache is a {type(cache).__name__}; an attn.KvCache is needed")
    operands = {"q_nope": q_nope, "q_rope": q_rope, "w_uk": w_uk, "w_uv": w_uv}
    given = of_constants("latent_attention_cached", operands, _given("latent_attention_cached", options))
    results = _core.latent_attention_cached(q_nope, q_rope, w_uk, w_uv, cache, sequences, given, form)
    return _chosen(results, options.get("return_plan", False))
