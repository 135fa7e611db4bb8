# python/attn/_recurrent.py: defines linear attention with a state and the short causal convolution.
"""Each function calls the extension; torch tensors go through attn.torch, which records gradients."""

from typing import Any

from attn import _core


def _by_torch(x: Any) -> Any:
    """Returns attn.torch._recurrent for a torch tensor, else None."""
    if not hasattr(x, "__torch_function__"):
        return None
    from attn.torch import _recurrent

    return _recurrent


def linear_attention(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    beta: Any = None,
    *,
    initial_state: Any = None,
    lengths: Any = None,
    cu_seqlens: Any = None,
    scale: float | None = None,
    l2norm: bool = False,
) -> tuple[Any, Any]:
    """Linear attention as a recurrence over a state S [Dk, Dv] of each sequence and head; returns (output, state).

        S = exp(g_t) S                                  no decay without g
        u = beta_t (v_t - S^T k_t), without beta v_t    the (gated) delta rule, or plain linear attention
        S = S + k_t u^T
        o_t = S^T (scale q_t)

    q, k [B, Hk, T, Dk], v [B, Hv, T, Dv] -> output [B, Hv, T, Dv], state [N, Hv, Dk, Dv] in float32 (float64 for
    float64). Head h of v has head h // (Hv / Hk) of q and k. N is B, or the number of packed sequences.

    g              the log of the decay: [B, Hv, T], [B, Hv, T, Dk] (one for each key channel), or [Hv]
    beta           [B, Hv, T]
    initial_state  the state of an earlier call: its rows and these give the bits of one call
    lengths        whole numbers [B]: rows after them give 0 and change no state
    cu_seqlens     whole numbers [N + 1]: N sequences one after another in the T rows of B = 1
    scale          of q; default 1 / sqrt(Dk)
    l2norm         divide each row of q and k by sqrt(sum of its squares + 1e-6) first

    Dtypes   float32, float64, bfloat16, float16, the same for q, k and v; g, beta and initial_state any of these.
    Gradient all six tensors; the backward pass keeps one state every 64 rows and has no gradient itself.
    Raises   ValueError for shapes and values, TypeError for dtypes, each with one line that says what is needed.
    Source   Katharopoulos 2020 (2006.16236); RetNet (2307.08621); GLA (2312.06635); Gated DeltaNet (2412.06464).

    >>> import numpy as np, attn
    >>> x = np.eye(2, dtype=np.float32)[None, None]
    >>> output, state = attn.linear_attention(x, x, x, g=np.log(np.full(1, 0.5, np.float32)), scale=1)
    >>> output[0, 0], state[0, 0].round(4)
    (array([[1., 0.],
           [0., 1.]], dtype=float32), array([[0.5, 0. ],
           [0. , 1. ]], dtype=float32))
    """
    operands = (q, k, v, g, beta, initial_state, lengths, cu_seqlens)
    if by_torch := _by_torch(q):
        return by_torch.linear_attention(operands, scale, l2norm)
    output, state, _ = _core.linear_attention(operands, scale, l2norm, False)
    return output, state


def gated_delta_rule(q: Any, k: Any, v: Any, g: Any, beta: Any, **options: Any) -> tuple[Any, Any]:
    """The gated delta rule of Gated DeltaNet, Qwen3-Next and Qwen3.5: linear_attention with this g and beta."""
    return linear_attention(q, k, v, g, beta, **options)


def causal_conv1d(
    x: Any, weight: Any, bias: Any = None, *, initial_state: Any = None, silu: bool = False
) -> tuple[Any, Any]:
    """The short causal depthwise convolution: each channel over its last K inputs; returns (output, state).

        y[b,c,t] = silu(bias[c] + sum_j weight[c,j] x[b,c,t-K+1+j])

    x [B, C, T], weight [C, K], bias [C] -> output [B, C, T], state [B, C, K - 1]: the last inputs. As `initial_state`
    of the next call they give the bits of one call; without one the inputs before the first are 0. Either of channels
    and rows may be adjacent in memory. Without `silu` the sums themselves. Gradients of all four tensors.

    >>> import numpy as np, attn
    >>> x, w = np.arange(4, dtype=np.float32)[None, None], np.array([[1, 10]], np.float32)
    >>> attn.causal_conv1d(x, w)
    (array([[[ 0., 10., 21., 32.]]], dtype=float32), array([[[3.]]], dtype=float32))
    """
    if by_torch := _by_torch(x):
        return by_torch.causal_conv1d(x, weight, bias, initial_state, silu)
    return _core.causal_conv1d(x, weight, bias, initial_state, silu)
