# python/attn/__init__.py: exports the package attn: attention on a CPU for NumPy arrays and torch tensors.
"""Attention on a CPU: every mechanism, exact and fast, for NumPy arrays and torch tensors.

>>> import numpy as np, attn
>>> q = k = v = np.eye(3, dtype=np.float32)
>>> attn.scaled_dot_product_attention(q, k, v, is_causal=True).round(2)
array([[1.  , 0.  , 0.  ],
       [0.36, 0.64, 0.  ],
       [0.26, 0.26, 0.47]], dtype=float32)
"""

from attn._core import (
    Bias,
    CacheFull,
    EncoderDecoder,
    KvCache,
    KvSequence,
    Mask,
    ModelCache,
    Plan,
    RelativeIndex,
    Score,
    ScoreExpression,
    TextEncoder,
    Tokenizer,
    TranslatedText,
    VerifyReport,
    Weights,
    info,
    keep_freed_memory,
    manual_seed,
    num_threads,
    numerics_version,
    release_free_memory,
    set_num_threads,
    set_trace,
    verify,
)
from attn._core import version as _version
from attn._explain import Explanation, ExplainStep, explain
from attn._functions import (additive_attention, attention, attention_cached, attention_scores,
                             scaled_dot_product_attention)
from attn._jvp import attention_jvp
from attn._language import Chat, GeneratedText, LanguageModel, TextStream
from attn._latent import append_latent, latent_attention, latent_attention_cached
from attn._recurrent import causal_conv1d, gated_delta_rule, linear_attention
from attn._score import ScoreTable, exp, maximum, minimum, tanh, where

__version__ = _version()
__all__ = [
    "Bias",
    "CacheFull",
    "Chat",
    "EncoderDecoder",
    "ExplainStep",
    "Explanation",
    "GeneratedText",
    "KvCache",
    "KvSequence",
    "LanguageModel",
    "Mask",
    "ModelCache",
    "Plan",
    "RelativeIndex",
    "Score",
    "ScoreExpression",
    "ScoreTable",
    "TextEncoder",
    "TextStream",
    "Tokenizer",
    "TranslatedText",
    "VerifyReport",
    "Weights",
    "additive_attention",
    "append_latent",
    "attention",
    "attention_cached",
    "attention_jvp",
    "attention_scores",
    "causal_conv1d",
    "exp",
    "explain",
    "gated_delta_rule",
    "info",
    "keep_freed_memory",
    "latent_attention",
    "latent_attention_cached",
    "linear_attention",
    "manual_seed",
    "maximum",
    "minimum",
    "num_threads",
    "numerics_version",
    "release_free_memory",
    "scaled_dot_product_attention",
    "set_num_threads",
    "set_trace",
    "tanh",
    "verify",
    "where",
]
