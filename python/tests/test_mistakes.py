# python/tests/test_mistakes.py: wrong calls: always TypeError or ValueError with a text, never a crash.
import faulthandler

import numpy as np
import pytest

import attn

faulthandler.enable()


class Broken:
    """An object that answers everything wrongly."""

    __dlpack__ = 3
    shape = ndim = dtype = "no"

    def __index__(self):
        raise RuntimeError("no index")

    def __float__(self):
        raise RuntimeError("no float")


class Liar:
    __array_interface__ = {"shape": (2**40,), "typestr": "<f4", "data": (8, False), "version": 3}

    def __dlpack__(self, **options):
        return "not a capsule"

    def __dlpack_device__(self):
        return (1, 0)


def strange(random):
    """Anything but what is needed; now and then something good."""
    shape = tuple(int(n) for n in random.integers(0, 5, size=int(random.integers(0, 6))))
    return [
        None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 0.0, 0.5, -1e300, float("nan"), float("inf"), "", "causal",
        "full", "top_left", "x" * 1000, "causal & (", "window(2, 0)", b"bytes", [], [1, 2], (), (None,), {}, set(),
        object(), int, len, lambda s, b, h, i, j: s * 2, lambda: 1, Ellipsis, slice(3), range(4), Broken(), Liar(),
        np.float32(3), np.int64(3), np.bool_(True), np.datetime64("2020"), memoryview(b"abcd"),
        np.zeros(shape, np.float32), np.ones(shape, np.float64), np.zeros(shape, bool), np.ones(shape, np.int64),
        np.zeros(shape, np.int32), np.zeros(shape, np.uint8), np.zeros(shape, ">f4"), np.zeros(shape, object),
        np.zeros(shape, complex), np.zeros(shape, "S3"), np.full(shape, np.nan, np.float32),
        np.zeros((1,) * 12, np.float32), np.broadcast_to(np.float32(1), (2, 3, 4, 8)),
        np.zeros((2, 3, 4, 8), np.float32), np.zeros((2, 3, 4, 8), np.float32)[:, :, ::-1],
        np.zeros((0, 3, 4, 8), np.float32), np.array([0, 2, 4]), np.array([4, 2, 0]), np.array([-1, 2**62]),
        np.rec.array([(1.0, 2)]), np.ma.masked_array(np.zeros(3), mask=True), attn.Mask.causal(),
        attn.Mask.attend(np.zeros((7, 7), bool)), attn.Bias.alibi(3), attn.Bias(), attn.Score.dot(),
        attn.Weights.top_k(2), attn.Weights.rows(np.array([0, 9])), attn.Mask.__new__(attn.Mask),
        attn.Score.general(np.zeros((8, 8), np.float32)), attn.ScoreExpression("s * 2"),
        attn.ScoreTable(np.zeros(3, np.float32)), attn.KvCache(1, 4, 2), attn.KvCache(1, 4, 2).create(), attn.Mask,
        attn,
    ]  # fmt: skip


def targets():
    """Functions and methods that take arguments, with the names of their keywords."""
    attention = [name for name in attn._core.attention_options]
    explain = ["to", "score", "mask", "heads", "dim", "dk", "dv", "positions", "tokens", "cut_words", "w_query",
               "w_key", "w_value", "embedding", "softcap", "temperature",
               "bias", "score_mod", "sink", "dropout_p", "weights", "packed", "cache", "query", "gradients",
               "relative", "normalizer", "weight_mod", "linear", "latent", "tangent", "language"]
    lengths = ["query_lengths", "key_lengths", "key_start", "query_start"]
    cache = ["value_heads", "value_dim", "dtype", "storage", "scale_group"]
    return [
        (attn.scaled_dot_product_attention, 3, ["attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"]),
        (attn.attention, 3, attention), (attn.attention, 3, attention), (attn.attention, 3, attention),
        (attn.additive_attention, 6, attention[1:]), (attn.attention_scores, 2, ["score", "scale"]),
        (attn.attention_cached, 3, attention), (attn.explain, 1, explain),
        (attn.Mask, 1, []), (attn.Mask.parse, 1, []), (attn.Mask.causal, 1, []), (attn.Mask.window, 3, []),
        (attn.Mask.prefix, 1, []), (attn.Mask.documents, 2, []), (attn.Mask.attend, 1, []), (attn.Mask.block, 1, []),
        (attn.Mask.key_padding, 1, []), (attn.Mask.causal().dense, 4, lengths), (attn.Mask.causal().print, 2, lengths),
        (attn.Mask.causal().check, 4, lengths), (attn.Bias.dense, 1, []), (attn.Bias.alibi, 2, []),
        (attn.Bias.alibi_slopes, 1, []), (attn.Bias.relative, 4, []), (attn.Bias.alibi(2).with_arrays, 1, []),
        (attn.Score.general, 1, []), (attn.Score.additive, 3, []), (attn.ScoreExpression, 2, []),
        (attn.ScoreTable, 2, []), (attn.ScoreTable(np.zeros(3, np.float32)).__getitem__, 1, []), (attn.where, 3, []),
        (attn.exp, 1, []), (attn.tanh, 1, []), (attn.minimum, 2, []), (attn.maximum, 2, []), (attn.manual_seed, 1, []),
        (attn.set_trace, 1, []), (attn.Weights.rows, 1, []), (attn.Weights.top_k, 1, []), (attn.KvCache, 3, cache),
        (attn.KvCache(1, 4, 2).append, 3, []), (attn.KvCache(1, 4, 2).gather, 2, []),
        (attn.KvCache(1, 4, 2).fork, 1, []), (attn.KvCache(1, 4, 2).truncate, 2, []), (attn._core.attention, 4, []),
        (attn._core.attention_recorded, 5, []), (attn._core.attention_inputs, 4, []),
        (attn._core.attention_forward, 6, []), (attn._core.attention_backward, 5, []), (attn._core.linear_into, 4, []),
        (attn._core.matmul_into, 3, []), (attn._core.attention_recorded(X, X, X, NONE)[1].backward, 2, []),
        (attn.KvCache(1, 4, 2).release, 1, []), (attn.KvCache(1, 4, 2).evict, 2, []),
        (attn.KvCache(1, 4, 2).length, 1, []), (attn.KvCache(1, 4, 2).first, 1, []),
        (attn.KvCache(1, 4, 2).alive, 1, []), (attn.ScoreExpression("s").apply, 1, []),
        (attn.ScoreExpression("s").aligned, 1, []), (lambda x: attn.ScoreExpression("s") + x, 1, []),
        (lambda x: x % attn.ScoreExpression("s"), 1, []), (lambda x: attn.Mask.all() & x, 1, []),
        (lambda x: attn.Bias() + x, 1, []), (attn.Score.dot().with_arrays, 1, []), (attn.explain("a b").text, 2, []),
        (attn.explain("a b").__getitem__, 1, []),
    ]  # fmt: skip


X = np.zeros((1, 2, 8), np.float32)
NONE = (None,) * len(attn._core.attention_options)
CALLS_EACH = 5000


def sized(function, arguments, chosen):
    """With sizes that fit into memory: a right but huge size is no mistake."""
    small = lambda x, most: x if not isinstance(x, int) or abs(x) <= most or abs(x) > 2**62 else 5  # noqa: E731
    if isinstance(getattr(function, "__self__", None), attn.Mask) or function in (attn.Bias.alibi_slopes, attn.KvCache):
        arguments = [small(x, 63) for x in arguments]
    if function in (attn.explain, attn.KvCache):
        chosen = {name: 3 if isinstance(x, int) and abs(x) > 100 else x for name, x in chosen.items()}
    return arguments, chosen


def is_inner(function):
    """What the package calls itself: nanobind's own lines tell what does not fit."""
    owner = getattr(function, "__self__", None)
    return (isinstance(owner, attn._core.Tape) or getattr(function, "__name__", "") == "with_arrays"
            or (owner is None and function not in map(vars(attn).get, attn.__all__)))


def throw(random, function, count, keywords, objects, good):
    """One call: the text it was refused with, or None."""
    pick = lambda: objects[int(random.integers(0, len(objects)))]  # noqa: E731
    arguments = [good if count >= 3 and random.random() < 0.5 else pick() for _ in range(count)]
    arguments, chosen = sized(function, arguments, {name: pick() for name in keywords if random.random() < 0.15})
    try:
        with np.errstate(all="ignore"):
            function(*arguments, **chosen)
    except (TypeError, ValueError, attn.CacheFull,
            IndexError if getattr(function, "__name__", "") == "__getitem__" else TypeError) as error:
        assert str(error) and (is_inner(function)
                               or "argument types are supported:\n" not in str(error)), (
                                   function, arguments, chosen, str(error))
        return str(error)
    except RuntimeError as error:  # what an object of the caller raised when it was asked
        assert "no index" in str(error) or "no float" in str(error), (function, arguments, chosen)
    return None


def test_5000_random_wrong_calls_of_every_function(random):
    good = np.zeros((2, 3, 4, 8), np.float32)
    refused, seen = {}, set()
    for number, (function, count, keywords) in enumerate(targets()):
        texts = [throw(random, function, count, keywords, strange(random), good) for _ in range(CALLS_EACH)]
        refused[number] = sum(text is not None for text in texts)
        seen.update(text.split(":")[0] for text in texts if text)
    attn.set_trace(False)
    print(f"{len(refused)} functions, {sum(refused.values())} refused calls, of each at least {min(refused.values())}")
    assert min(refused.values()) > CALLS_EACH // 10 and len(seen) > 30
    assert not attn.attention(good, good, good).any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mask": np.ones((4, 4), bool)}, "attn.Mask.attend(x) where True takes part, "
                                          "attn.Mask.block(x) where True is masked"),
        ({"mask": "causl"}, "causal, window(left, right), prefix(n), all, none"),
        ({"softcap": "2"}, "attention: softcap is a str; a number is needed"),
        ({"softcap": -1.0}, "softcap is -1"),
        ({"weights": "all"}, 'attention: weights is "all"; '
                             'it must be one of "none", "full", "head_average", "column_sums"'),
        ({"weights": True}, "weights is a bool"),
        ({"weights": "top_k(x)"}, 'weights is "top_k(x)"; rows take their numbers, "rows(0, 5)", '
                                  'top_k how many, "top_k(3)"'),
        ({"bias": "alibi"}, "bias is a str; an attn.Bias is needed, as attn.Bias.alibi(heads)"),
        ({"dropout_p": 1.5}, "dropout_p is 1.5"),
        ({"dropout_seed": -1}, "dropout_seed must be from 0 to 2^64 - 1"),
        ({"score": 3}, "score is a int"),
        ({"score": lambda s, b, h, i, j: s, "score_mod": "s"}, "one of them is needed"),
        ({"sinks": np.zeros(2, np.float32)}, "sinks have shape [2]"),
        ({"key_lengths": 4}, "key_lengths is a int; whole numbers are needed: a list, a NumPy array or a torch tensor"),
        ({"return_logsumexp": "yes"}, "return_logsumexp is a str; True or False is needed"),
        ({"scale": np.zeros(2)}, "scale is a ndarray; a number is needed"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_texts(options, text):
    x = np.zeros((2, 3, 4, 8), np.float32)
    with pytest.raises((TypeError, ValueError)) as error:
        attn.attention(x, x, x, **options)
    assert text in str(error.value) and "invalid" not in str(error.value)


def test_numpys_true_and_false_are_flags():
    x = np.zeros((2, 3, 4, 8), np.float32)
    for yes in (True, np.True_, 1):
        assert len(attn.attention(x, x, x, return_logsumexp=yes)) == 2
    assert attn.attention(x, x, x, return_logsumexp=np.False_).shape == x.shape
    with pytest.raises(TypeError, match="return_logsumexp is a float; True or False is needed"):
        attn.attention(x, x, x, return_logsumexp=1.0)


def test_names_of_options_are_checked():
    x = np.zeros((2, 3, 4, 8), np.float32)
    with pytest.raises(TypeError, match="masks"):
        attn.attention(x, x, x, masks="causal")
    with pytest.raises(TypeError, match="there is no option masks; write mask"):
        attn.attention_cached(x, attn.KvCache(1, 4, 2), [], masks="causal")
    with pytest.raises(TypeError, match="an attn.KvCache is needed"):
        attn.attention_cached(x, None, [])
    with pytest.raises(TypeError, match='KvCache: dtype is a type; its name is needed, as "float32"'):
        attn.KvCache(1, 4, 2, dtype=np.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda s, b, h, i, j: __import__("math").exp(s),
        lambda s, b, h, i, j: np.exp(s),
        lambda s, b, h, i, j: s.exp(),
        lambda s, b, h, i, j: s**2,
        lambda s, b, h, i, j: [np.ones(3)][0][h] * s,
        lambda s, b: s,
    ],
    ids=["a function of numbers", "NumPy's", "a method", "an operator", "an array in a container", "other arguments"],
)
def test_functions_that_want_numbers_are_told_what_they_get(function):
    x = np.zeros((2, 3, 4, 8), np.float32)
    told = ("called once, with symbols, never with numbers: it is made of .* attn.exp, attn.tanh, attn.where|"
            "takes no symbol; write ")
    with pytest.raises(TypeError, match=told):
        attn.attention(x, x, x, score=function)


def test_a_function_that_decides_by_numbers_is_told_of_where():
    x = np.zeros((2, 3, 4, 8), np.float32)
    with pytest.raises(TypeError, match="use attn.where"):
        attn.attention(x, x, x, score=lambda s, b, h, i, j: s if i > j else 0)
