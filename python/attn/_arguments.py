# python/attn/_arguments.py: reports a call with wrong arguments in one line that says which arguments
# are meant.
"""A table maps option names of other libraries to attn's; a misspelt name is compared with the known names."""

import difflib
import re
from collections.abc import Iterable
from typing import Any

_MASK = ('mask=attn.Mask.attend(x) where True takes part, attn.Mask.block(x) where True is masked, '
         'or bias=x for numbers that are added')
_CAUSAL = 'mask="causal"'
_WINDOW = 'mask="window(left, right)", as "causal & window(511, 0)" for the last 512 keys'
_WEIGHTS = 'weights="full" or "head_average", which adds the weights to the result'
_HEADS = "nothing: heads are a dim of q [B, Hq, T, D], k and v"
_PACKED = "cu_seqlens_q, and cu_seqlens_k where the keys are others"
_NOTHING = "nothing: it is not needed here"

# Maps names that torch, FlashAttention, xformers, transformers, Keras and MLX use for options that attn.attention calls
# otherwise.
_ATTENTION = {
    **dict.fromkeys(("is_causal", "causal", "use_causal_mask"), _CAUSAL),
    **dict.fromkeys(("attn_mask", "attention_mask", "allowed"), _MASK),
    **dict.fromkeys(("key_padding_mask", "padding_mask", "padding", "key_padding"),
                    "mask=attn.Mask.key_padding(x) where True is padding, or key_lengths"),
    **dict.fromkeys(("window", "window_size", "sliding_window", "local_window"), _WINDOW),
    **dict.fromkeys(("dropout", "dropout_rate", "attn_dropout", "attention_dropout", "drop", "p"), "dropout_p"),
    **dict.fromkeys(("seed", "rng", "generator"), "dropout_seed, or attn.manual_seed"),
    **dict.fromkeys(("need_weights", "return_weights", "output_attentions", "return_attention_scores",
                     "return_attn_probs", "average_attn_weights"), _WEIGHTS),
    **dict.fromkeys(("softmax_scale", "scaling", "sm_scale", "scale_factor"), "scale"),
    **dict.fromkeys(("logits_soft_cap", "soft_cap", "logit_cap", "attn_logit_softcapping", "logits_softcap"),
                    "softcap"),
    **dict.fromkeys(("enable_gqa", "gqa"), "nothing: k and v may have fewer heads"),
    **dict.fromkeys(("alibi", "alibi_slopes", "slopes"), "bias=attn.Bias.alibi(slopes)"),
    **dict.fromkeys(("attn_bias", "position_bias", "relative_position_bias"), "bias"),
    **dict.fromkeys(("block_mask", "mask_mod"), "mask=attn.Mask(...), or score_mod=lambda s, b, h, i, j: "
                                                "attn.where(condition, s, -math.inf)"),
    **dict.fromkeys(("num_heads", "n_heads", "heads", "nhead", "num_attention_heads", "num_kv_heads",
                     "num_key_value_groups"), _HEADS),
    **dict.fromkeys(("cu_seqlens", "cu_seqlens_kv", "cu_seq_q", "cu_seq_k"), _PACKED),
    **dict.fromkeys(("max_seqlen_q", "max_seqlen_k", "max_seqlen", "training", "deterministic", "backend",
                     "implementation"), _NOTHING),
    **dict.fromkeys(("lengths", "seq_lens", "seqlens_k", "cache_seqlens", "valid_lens", "valid_len", "k_lengths"),
                    "key_lengths"),
    **dict.fromkeys(("q_lengths", "seqlens_q"), "query_lengths"),
    **dict.fromkeys(("position", "offset", "q_offset", "cache_position", "positions"), "query_start"),
    **dict.fromkeys(("sink", "s_aux", "attention_sinks"), "sinks"),
    **dict.fromkeys(("return_lse", "return_softmax_lse", "lse"), "return_logsumexp"),
    **dict.fromkeys(("query", "key", "value", "queries", "keys", "values"), "q, k, v"),
}
_SDPA = {
    **dict.fromkeys(("mask", "attention_mask"), "attn_mask: bool where True takes part, or numbers that are added; "
                                                "attn.attention takes attn.Mask"),
    **dict.fromkeys(("key_padding_mask", "padding_mask"),
                    "attn_mask=~x[:, None, None, :] of x that is True at padding"),
    **dict.fromkeys(("causal", "use_causal_mask"), "is_causal=True"),
    **dict.fromkeys(("dropout", "dropout_rate", "p"), "dropout_p"),
    **dict.fromkeys(("softmax_scale", "scaling", "sm_scale"), "scale"),
    **dict.fromkeys(("need_weights", "window", "window_size", "softcap", "weights", "bias"),
                    "attn.attention, which has it"),
    **dict.fromkeys(("q", "k", "v"), "query, key, value"),
}
_EXPLAIN = {
    **dict.fromkeys(("lang", "locale"), "language"),
    **dict.fromkeys(("causal", "is_causal"), _CAUSAL),
    **dict.fromkeys(("n_heads", "num_heads", "nhead", "head"), "heads"),
    **dict.fromkeys(("d_model", "embed_dim", "embedding_dim", "d"), "dim"),
    **dict.fromkeys(("d_k", "d_q", "dq", "d_out_kq", "head_dim"), "dk"),
    **dict.fromkeys(("d_v", "d_out_v"), "dv"),
    **dict.fromkeys(("w_q", "W_q", "W_query", "wq"), "w_query"),
    **dict.fromkeys(("w_k", "W_k", "W_key", "wk"), "w_key"),
    **dict.fromkeys(("w_v", "W_v", "W_value", "wv"), "w_value"),
    **dict.fromkeys(("tokenizer", "tokenize"), 'cut_words with tokens="words"'),
    **dict.fromkeys(("sinks",), "sink"),
    **dict.fromkeys(("dropout",), "dropout_p"),
}
_GENERATE = {
    **dict.fromkeys(("max_new_tokens", "max_tokens", "max_length", "n_predict", "num_tokens"), "tokens"),
    **dict.fromkeys(("do_sample", "greedy"), "temperature=0 for the most likely token, or above 0"),
    **dict.fromkeys(("num_return_sequences", "n", "num_samples"), "samples"),
    **dict.fromkeys(("stop_strings", "stop_sequences", "stop_words", "stop_text"), "stop"),
    **dict.fromkeys(("eos_token_id", "eos_token", "stop_token_ids"), "end_tokens"),
    **dict.fromkeys(("repeat_penalty", "penalty"), "repetition_penalty"),
    **dict.fromkeys(("logits_processor", "processors"), "on_logits"),
    **dict.fromkeys(("streamer", "callback"), "on_text, or LanguageModel.stream"),
    **dict.fromkeys(("past_key_values", "kv_cache"), "model_cache"),
    **dict.fromkeys(("assistant_model", "draft_model"), "draft"),
    **dict.fromkeys(("prompt_lookup_num_tokens", "ngram"), 'draft="ngram"'),
    **dict.fromkeys(("logprobs", "output_scores"), "log_probabilities"),
    **dict.fromkeys(("storage", "cache_dtype", "cache_implementation"), 'cache="int8"'),
    **dict.fromkeys(("sliding_window", "window_size"), "window"),
    **dict.fromkeys(("generator", "random_state"), "seed"),
}
_CHAT = {
    **_GENERATE,
    **dict.fromkeys(("template", "chat_template", "chat_format"), "format"),
    **dict.fromkeys(("system_prompt", "instructions"), "system"),
}
_LOAD = {
    **dict.fromkeys(("torch_dtype", "precision"), "dtype"),
    **dict.fromkeys(("device", "device_map"), "nothing: attn computes on the CPU"),
}
_EMBED = {
    **dict.fromkeys(("batch_size", "batch"), "batch_tokens"),
    **dict.fromkeys(("sentences", "inputs", "text"), "texts"),
    **dict.fromkeys(("normalize", "normalize_embeddings"), "nothing: the model's files say whether it is done"),
    **dict.fromkeys(("device", "show_progress_bar", "convert_to_numpy"), _NOTHING),
    **dict.fromkeys(("convert_to_tensor",), "torch.from_numpy around the call"),
}
_MEANT = {
    "attention": _ATTENTION,
    "additive_attention": _ATTENTION,
    "mpi.attention": _ATTENTION,
    "attention_cached": _ATTENTION,
    "attention_jvp": _ATTENTION,
    "latent_attention": _ATTENTION,
    "latent_attention_cached": _ATTENTION,
    "attention_scores": {**dict.fromkeys(("softmax_scale", "scaling"), "scale"),
                         **dict.fromkeys(("query", "key"), "q, k")},
    "scaled_dot_product_attention": _SDPA,
    "explain": _EXPLAIN,
    "generate": _GENERATE,
    "stream": {**_GENERATE, "on_text": "nothing: the pieces are what the stream gives"},
    "Chat": _CHAT,
    "LanguageModel": _LOAD,
    "LanguageModel.load": _LOAD,
    "EncoderDecoder.load": _LOAD,
    "EncoderDecoder.generate": {
        **_GENERATE,
        **dict.fromkeys(("num_beams", "beam_size"), "beams"),
        **dict.fromkeys(("num_return_sequences", "n"), "samples"),
        **dict.fromkeys(("max_new_tokens", "max_length"), "tokens"),
        **dict.fromkeys(("min_new_tokens", "min_length"), "min_tokens"),
        **dict.fromkeys(("no_repeat_ngram_size",), "no_repeat_ngram"),
        **dict.fromkeys(("src_lang", "source_language"), "source_lang"),
        **dict.fromkeys(("tgt_lang", "target_language", "forced_bos_token_id"), "target_lang"),
    },
    "TextEncoder.load": _LOAD,
    "TextEncoder.embed": _EMBED,
    "TextEncoder.scores": {**_EMBED, **dict.fromkeys(("sentences", "inputs", "texts"), "pairs")},
    "KvCache": {
        **dict.fromkeys(("num_heads", "heads", "kv_heads", "num_kv_heads"),
                        "key_heads, and value_heads where they are others"),
        **dict.fromkeys(("head_size", "dim"), "head_dim"),
        **dict.fromkeys(("page_size", "block_size"), "page_rows"),
        **dict.fromkeys(("num_pages", "num_blocks", "size", "capacity", "max_len"), "pages, of page_rows keys each"),
    },
}


def shown(x: Any, most: int = 60) -> str:
    """Returns a caller's text for an error message: shortened, without line ends and control characters."""
    text = "".join(c if c.isprintable() else "?" for c in str(x)[: most + 1])
    return text if len(text) <= most else text[: most - 3] + "..."


def unknown(function: str, name: str, names: Iterable[str]) -> TypeError:
    """Returns the error for an unknown option."""
    names, foreign = list(names), _MEANT.get(function, {})
    meant = foreign.get(name)
    if meant is None and (near := difflib.get_close_matches(name[:100], [*names, *foreign], n=1)):
        meant = foreign.get(near[0], near[0])
    if meant is not None:
        return TypeError(f"{function}: there is no option {shown(name)}; write {meant}")
    return TypeError(f"{function}: there is no option {shown(name)}; there are {', '.join(names)}" if names
                     else f"{function}: it takes no {shown(name)}")


def check(function: str, given: dict[str, Any], names: Iterable[str], refused: Iterable[str] = ()) -> None:
    """Raises a TypeError for the first of `given` that is not among the names. `refused`: names that the function
    refuses with a line of its own."""
    names = list(names)
    for name in given:
        if name not in names and name not in refused:
            raise unknown(function, name, names)


def _parameters(signature: str) -> tuple[list[str], int]:
    """Returns the names of the parameters, without self, and how many of them have no default."""
    inside = signature[signature.index("(") + 1 : signature.rindex(")")]
    while (bare := re.sub(r"\[[^\[\]]*\]", "", inside)) != inside:  # removes brackets such as those of Sequence[a, b]
        inside = bare
    parts = [part.strip() for part in inside.split(",") if part.strip() not in ("", "*", "/", "self")]
    return [part.split(":")[0].split("=")[0].strip() for part in parts], sum("=" not in part for part in parts)


def told(function: str, signature: str, given: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """Returns what is wrong with a call that the extension's function `function` rejects."""
    names, needed = _parameters(signature)
    if re.match(r"def \w+\(self\b", signature):
        if not given:
            return f"{function}: it is a method, to be called of an object"
        given = given[1:]
    takes = f"it takes {', '.join(names)}" if names else "it takes no arguments"
    for name in keywords:
        if name not in names:
            return str(unknown(function, name, names))
    if len(given) > len(names):
        return f"{function}: {len(given)} arguments are given; {takes}"
    for name in names[: len(given)]:
        if name in keywords:
            return f"{function}: {name} is given twice"
    for name in names[len(given) : needed]:
        if name not in keywords:
            return f"{function}: {name} is missing; {takes}"
    kinds = ", ".join(type(x).__name__ for x in (*given, *keywords.values()))
    return f"{function}: {shown(kinds) if kinds else 'the object'} does not fit; {takes}"
