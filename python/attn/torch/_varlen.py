# python/attn/torch/_varlen.py: torch.nn.attention.varlen.varlen_attn on the CPU.
"""torch 2.13 has this function for GPUs only. Sequences are packed; each is aligned to its last row and key."""

from typing import Any

from torch import Tensor

from attn.torch import _call

_NAMES = ("cu_seq_q", "cu_seq_k", "max_q", "max_k", "query", "key", "value", "scale")


def _attend(name: str, query: Any, key: Any, value: Any, lengths: tuple, scale: Any, window_size: Any, enable_gqa: Any,
            seqused_k: Any, block_table: Any, num_splits: Any) -> tuple[Tensor, Tensor]:
    # imported here, because attn.integrations imports attn.torch
    from attn.integrations import _flash_call
    from attn.integrations._flash_call import Names
    from attn.integrations._flash_packed import Keys, attend_packed

    call = _flash_call.settings(name, scale, False, window_size, 0.0, None, names=Names(*_NAMES))
    if num_splits is not None:
        _flash_call.whole(name, "num_splits", num_splits)
    grouped = _call.flag(name, "enable_gqa", enable_gqa)
    if block_table is not None and seqused_k is None:
        raise TypeError(f"{name}: block_table is given without seqused_k; it says how many keys the pages hold")
    _flash_call.check_tensors(call, query, 3, "[total_q, heads, head_dim]", key=key, value=value)
    if not grouped and key.dim() > 1 and query.shape[1] != key.shape[-2]:
        raise ValueError(f"{name}: key has shape {list(key.shape)}; it must have the {query.shape[1]} heads of query "
                         f"{list(query.shape)}, or enable_gqa=True is needed")
    output, logsumexp, _ = attend_packed(call, query, key, value, *lengths, Keys(seqused_k, None, block_table))
    return output, logsumexp


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Any:
    """torch.nn.attention.varlen.varlen_attn on the CPU, with gradients.

    Shapes: query [total_q, Hq, D], key [total_k, Hk, D], value [total_k, Hk, Dv] -> [total_q, Hq, Dv]; cu_seq_q and
    cu_seq_k [N + 1] from 0. window_size (left, right): (-1, 0) is causal, aligned to the last row and key of each
    sequence. seqused_k [N]: only the first keys of each sequence are used. block_table [N, pages] (needs seqused_k):
    key and value are pages [pages, page size, Hk, D]. num_splits: any gives the same bits.

    return_aux: torch's AuxRequest; with lse=True the result is (output, logsumexp [Hq, total_q]), which has a gradient
    too. Dtypes: float32, float64, bfloat16, float16. Errors: TypeError, ValueError.
    """
    if return_aux is not None and not hasattr(return_aux, "lse"):
        raise TypeError(f"varlen_attn: return_aux is a {type(return_aux).__name__}; "
                        "torch.nn.attention.varlen.AuxRequest or None is needed")
    output, logsumexp = _attend("varlen_attn", query, key, value, (cu_seq_q, cu_seq_k, max_q, max_k), scale,
                                window_size, enable_gqa, seqused_k, block_table, num_splits)
    return (output, logsumexp) if return_aux is not None and return_aux.lse else output

