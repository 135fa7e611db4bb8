# python/attn/integrations/_packed.py: attention of packed sequences, as transformers' continuous batching calls it.
import torch

import attn

# Options that a paged cache passes for FlashAttention's own block tables, or that continuous batching never passes.
_REFUSED = ("block_table", "position_bias", "indices", "block_indices", "sinks")


def is_packed(attention_mask, options):
    """Returns whether a call is one of sequences one after another. With a mask it is not: the mask then says which
    tokens belong together, as in training with DataCollatorWithFlattening."""
    return attention_mask is None and options.get("cu_seq_lens_q") is not None


def _mask(causal, window):
    """Returns the mask as text: the last row of each sequence is at its last key, as in FlashAttention."""
    parts = ["causal(bottom_right)"] if causal else []
    if window is not None:
        parts.append(f"window({window - 1}, {0 if causal else window - 1}, bottom_right)")
    return " & ".join(parts) or None


def packed_attention(query, key, value, causal, window, given, **options):
    """query [1, Hq, total, D], key [1, Hk, total_k, D], value [1, Hk, total_k, Dv] -> [1, total, Hq, Dv].

    `given`: what transformers passes: cu_seq_lens_q and cu_seq_lens_k [N + 1], and what is refused. Rows after the last
    sequence, which a padded batch has, are 0. `options` are those of attn.attention.
    """
    for name in _REFUSED:
        if given.get(name) is not None:
            raise ValueError(f"attention: {name} is given with cu_seq_lens_q; packed sequences do not take it")
    ends = [given["cu_seq_lens_q"], given.get("cu_seq_lens_k")]
    ends[1] = ends[0] if ends[1] is None else ends[1]
    for name, x in zip(("cu_seq_lens_q", "cu_seq_lens_k"), ends):
        if not isinstance(x, torch.Tensor) or x.dim() != 1 or x.dtype not in (torch.int32, torch.int64) or not len(x):
            shown = f"{x.dtype} of shape {list(x.shape)}" if isinstance(x, torch.Tensor) else f"a {type(x).__name__}"
            raise ValueError(f"attention: {name} is {shown}; it must be int32 or int64 [N + 1]")
    rows, keys = (int(x[-1]) for x in ends)
    output = attn.attention(
        query[:, :, :rows], key[:, :, :keys], value[:, :, :keys], mask=_mask(causal, window), cu_seqlens_q=ends[0],
        cu_seqlens_k=ends[1], **options,
    ).transpose(1, 2)  # fmt: skip
    return torch.nn.functional.pad(output, (0, 0, 0, 0, 0, query.shape[2] - rows)).contiguous()
