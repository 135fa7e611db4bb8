# python/attn/_functions.py: the functions of the library, with their documentation.
"""Each calls the extension; torch tensors go by attn.torch, which knows about gradients."""

from attn import _core
from attn._tracing import trace

_by_torch = None


def _torch():
    """attn.torch.functional, imported with the first tensor."""
    global _by_torch
    if _by_torch is None:
        from attn.torch import functional

        _by_torch = functional
    return _by_torch


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention, argument by argument."""
    if hasattr(query, "__torch_function__"):
        return _torch().scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return _core.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def attention(
    q,
    k,
    v,
    *,
    score=None,
    scale=None,
    mask=None,
    bias=None,
    score_mod=None,
    softcap=0.0,
    temperature=1.0,
    sinks=None,
    query_lengths=None,
    key_lengths=None,
    key_start=None,
    query_start=None,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    dropout_p=0.0,
    dropout_seed=None,
    weights=None,
    return_logsumexp=False,
    return_plan=False,
    out=None,
):
    """Attention: softmax over the keys of a score, then the weighted mean of the values."""
    if callable(score):
        if score_mod is not None:
            raise ValueError("attention: score is a function and score_mod is given; one of them is needed")
        score, score_mod = None, score
    if score_mod is not None:
        score_mod = trace(score_mod)
    options = (
        score,
        scale,
        mask,
        bias,
        score_mod,
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
        output, weight, logsumexp, plan, _ = _torch().attention(q, k, v, options)
    else:
        output, weight, logsumexp, plan, _ = _core.attention(q, k, v, options)
    if weight is None and logsumexp is None and not return_plan:
        return output
    results = [output]
    if weight is not None:
        results.append(weight)
    if logsumexp is not None:
        results.append(logsumexp)
    if return_plan:
        results.append(plan)
    return tuple(results)


def additive_attention(query, key, value, w_q, w_k, w, **options):
    """Additive attention: w . tanh(W_q q + W_k k) as the score; the other options are those of `attention`."""
    if "score" in options:
        raise TypeError("additive_attention: score is given; it is additive here")
    return attention(query, key, value, score=_core.Score.additive(w_q, w_k, w), **options)


def attention_scores(q, k, score=None, scale=None):
    """The scores alone, before softcap, bias, mask and softmax: [.., Tq, Tk]."""
    return _core.attention_scores(q, k, score, scale)
