# python/tests/test_masks.py: masks, biases and score functions: values, texts, mistakes.
import copy
import math
import pickle
import sys

import numpy as np
import pytest
from conftest import plain_attention

import attn

Mask, Bias = attn.Mask, attn.Bias


def random_mask(random, depth):
    """A mask of the notation and its rule over (i, j)."""
    if depth == 0 or random.random() < 0.3:
        left, right, n = (int(x) for x in random.integers(0, 4, size=3))
        return [
            (Mask.causal(), lambda i, j: j <= i),
            (Mask.causal("top_left"), lambda i, j: j <= i),
            (Mask.window(left, right, "bottom_right"), lambda i, j: (j >= i - left) & (j <= i + right)),
            (Mask.window(-1, right), lambda i, j: j <= i + right),
            (Mask.prefix(n), lambda i, j: (j < n) & (i >= 0)),
            (Mask.all(), lambda i, j: (i >= 0) & (j >= 0)),
            (Mask.none(), lambda i, j: (i < 0) & (j >= 0)),
        ][int(random.integers(0, 7))]
    (a, rule_a), (b, rule_b) = random_mask(random, depth - 1), random_mask(random, depth - 1)
    return [
        (a & b, lambda i, j: rule_a(i, j) & rule_b(i, j)),
        (a | b, lambda i, j: rule_a(i, j) | rule_b(i, j)),
        (~a, lambda i, j: ~rule_a(i, j)),
    ][int(random.integers(0, 3))]


def test_random_masks_and_their_texts(random):
    i, j = np.ogrid[:7, :7]
    for _ in range(300):
        mask, rule = random_mask(random, 4)
        expected = np.broadcast_to(rule(i, j), (7, 7))
        assert np.array_equal(mask.dense(1, 1, 7, 7)[0, 0], expected), mask
        again = eval(repr(mask), {"attn": attn})
        assert str(again) == str(mask) and np.array_equal(again.dense(1, 1, 7, 7)[0, 0], expected)
        assert str(pickle.loads(pickle.dumps(mask))) == str(copy.deepcopy(mask)) == str(mask)


def test_masks_are_neither_true_nor_false():
    for wrong in (lambda: Mask.causal() and Mask.prefix(2), lambda: not Mask.causal(), lambda: Mask() or Mask.causal()):
        with pytest.raises(TypeError, match="neither true nor false; join masks with &, | and ~"):
            wrong()


def test_masks_of_arrays(random):
    allowed = random.random((2, 1, 5, 5)) < 0.5
    assert np.array_equal(Mask.attend(allowed).dense(2, 3, 5, 5), np.broadcast_to(allowed, (2, 3, 5, 5)))
    assert np.array_equal(Mask.block(allowed).dense(2, 3, 5, 5), np.broadcast_to(~allowed, (2, 3, 5, 5)))
    ids = np.array([[0, 0, 1, 1, 2], [3, 4, 4, 4, 4]])
    assert np.array_equal(Mask.documents(ids).dense(2, 1, 5, 5)[:, 0], ids[:, :, None] == ids[:, None, :])
    padding = np.array([[False, False, True], [False, True, True]])
    assert np.array_equal(Mask.key_padding(padding).dense(2, 1, 1, 3)[:, 0, 0], ~padding)
    assert np.array_equal(Mask.prefix(np.array([1, 2])).dense(2, 1, 1, 3)[:, 0, 0],
                          [[True, False, False], [True, True, False]])
    assert repr(Mask.attend(allowed)) == 'attn.Mask("attend(bool [2, 1, 5, 5])")'
    assert Mask.key_padding(np.ones((1, 3), bool)).check(1, 1, 2, 3)


def test_a_mask_of_several_lines_shows_both_pictures():
    x, y = np.zeros((1, 1, 2, 4), np.float32), np.zeros((1, 1, 3, 4), np.float32)
    with pytest.raises(ValueError, match="top_left(.|\n)*bottom_right"):
        attn.attention(x, y, y, mask="causal")


def test_bias_reads_back():
    for bias in (Bias.alibi(2, "top_left", True), Bias.alibi([0.5], symmetric=True), Bias.alibi(8),
                 Bias.alibi([0.1, 0.2], "bottom_right"), Bias.alibi((1,)) + Bias.alibi([0.5])):
        assert repr(eval(repr(bias), {"attn": attn})) == repr(bias)
    assert repr(Bias()) == "attn.Bias()" and not Bias() and Bias.alibi(1)
    table = np.zeros((8, 2), np.float32)
    assert (repr(Bias.relative(table, max_distance=16))
            == "attn.Bias.relative(float32 [8, 2], bidirectional=True, max_distance=16)")
    both = Bias.relative(table) + Bias.alibi([1.0, 2.0])
    assert both.arrays[0] is table and both.arrays[1] is None
    assert both.with_arrays([table + 1, None]).arrays[0] is not table
    assert repr(Bias.alibi([0.5], symmetric=True)) == "attn.Bias.alibi([0.5], symmetric=True)"
    assert np.array_equal(Bias.alibi_slopes(4), np.float32([2**-2, 2**-4, 2**-6, 2**-8]))
    # as the paper's code and BLOOM have them
    assert np.array_equal(Bias.alibi_slopes(3), np.float32([0.0625, 0.00390625, 0.25]))


def test_score_functions_against_numpy(random):
    q = random.standard_normal((2, 2, 6, 4))
    slope, table, which = np.array([0.5, 0.25]), random.standard_normal((2, 11)), np.array([1, 0])
    gain = np.array(1.5)
    functions = [
        lambda s, b, h, i, j: s - slope[h] * (i - j),
        lambda s, b, h, i, j: s * gain + table[h, i - j + 5],
        lambda s, b, h, i, j: attn.where((i - j < 3) & (j % 2 == 0) | (i == j), s, -np.inf),
        lambda s, b, h, i, j: attn.tanh(s / 2) * 2 - abs(s) / 4 + attn.exp(-abs(i - j) * 0.5),
        lambda s, b, h, i, j: attn.minimum(s, 1) + attn.maximum(-0.5, s) + table[which[b], (i + j) // 2],
        lambda s, b, h, i, j: 1 - s + np.float64(0.25) * s + 2 / (1 + i) - (3 - i) % 4,
        lambda s, b, h, i, j: s + h * b,
    ]
    numpy = {"where": np.where, "tanh": np.tanh, "exp": np.exp, "minimum": np.minimum, "maximum": np.maximum}
    for function in functions:
        result = attn.attention(q, q, q, score=function)
        code = type("attn", (), {name: staticmethod(f) for name, f in numpy.items()})
        plain = type(function)(function.__code__, {"attn": code, "np": np, "abs": abs}, closure=function.__closure__)
        truth, _ = plain_attention(q, q, q, mod=plain)
        assert np.abs(result - truth).max() <= 64 * 2.0**-52 * np.abs(truth).max(), attn.ScoreExpression(function)
        assert np.array_equal(result, attn.attention(q, q, q, score_mod=attn.ScoreExpression(function)))


def test_score_expressions_read_back(random):
    text = "where(i - j < 3, s * 2.5 - t[h] / 2, -inf)"
    expression = attn.ScoreExpression(text, {"t": np.ones(2, np.float32)})
    assert str(expression) == text
    simple = attn.ScoreExpression(lambda s, b, h, i, j: attn.exp(-abs(i - j) * 0.5) * s)
    assert str(eval(repr(simple), {"attn": attn})) == str(simple)


class Holder:
    slope = np.ones(2, np.float32)

    def held(self, s, b, h, i, j):
        return s * self.slope[h]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda s, b, h, i, j: s if i > j else 0, "use attn.where"),
        (lambda s, b, h, i, j: (i > j) and s, "use attn.where"),
        (lambda s, b, h, i, j: s + "x", "unsupported operand"),
        (lambda s, b, h, i, j: None, "an expression or a number is needed"),
        (lambda s, b, h, i, j: s // 2, "//"),
        (lambda s, b, h, i, j: i > j, ""),
        (lambda s: s, "positional argument"),
        (Holder().held, "attn.ScoreTable"),
        (3, "a function of (s, b, h, i, j)"),
        ("s +", "ScoreExpression.parse"),
    ],
    ids=str,
)
def test_score_functions_that_do_not_work(function, text):
    x = np.zeros((1, 2, 3, 4), np.float32)
    with pytest.raises((TypeError, ValueError)) as error:
        attn.attention(x, x, x, score_mod=function)
    assert text in str(error.value)


GAIN = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda s, b, h, i, j: math.exp(s), "math.exp(s) takes no symbol; write attn.exp(x)"),
        (lambda s, b, h, i, j: np.tanh(s) * 2, "np.tanh(s) takes no symbol; write attn.tanh(x)"),
        (lambda s, b, h, i, j: np.logical_and(i > j, s > 0),
         "np.logical_and(i > j, s > 0) takes no symbol; write a & b"),
        (lambda s, b, h, i, j: s.clamp(-1, 1), "s.clamp takes no symbol; write attn.minimum(attn.maximum(x, "
                                               "least), most)"),
        (lambda s, b, h, i, j: s * i.float(), "i.float takes no symbol; write the symbol alone: "
                                              "whole numbers become numbers by themselves"),
        (lambda s, b, h, i, j: s**2, "s**2 takes no symbol; write x * x, or attn.exp(x * math.log(a)) for a ** x"),
        (lambda s, b, h, i, j: s * np.exp(GAIN)[h], "np.exp(GAIN) takes no table, which an array is that the function "
                                                    "names; only look it up, table[index], and compute"),
        (lambda s, b, h, i, j: math.floor(s), "math.floor(s): must be real number, not "),
        (lambda s, b: s, "<lambda>() takes 2 positional arguments but 5 were given; "
                         "the function is called once, with symbols"),
    ],
    ids=str,
)
def test_what_takes_no_symbols(function, told):
    """One line: what was written (Python 3.10 does not know), and what to write instead."""
    with pytest.raises(TypeError) as error:
        attn.ScoreExpression(function)
    line = str(error.value)
    assert "\n" not in line and line.startswith("ScoreExpression: ")
    if sys.version_info >= (3, 11):
        assert line.startswith("ScoreExpression: " + told)


def test_torch_functions_take_no_symbols():
    torch = pytest.importorskip("torch")
    for function, told in (
        (lambda s, b, h, i, j: torch.where(i > j, s, 0.0), "write attn.where(condition, a, b)"),
        (lambda s, b, h, i, j: torch.tanh(s), "write attn.tanh(x)"),
        (lambda s, b, h, i, j: torch.sigmoid(s), "write 1 / (1 + attn.exp(-x))"),
    ):
        with pytest.raises(TypeError) as error:
            attn.ScoreExpression(function)
        assert told in str(error.value) and "expected one of" not in str(error.value)
    assert str(attn.ScoreExpression(lambda s, b, h, i, j: s * torch.tensor(0.5) + torch.tensor(2))) == "s * 0.5 + 2"


def test_a_table_is_not_iterated():
    with pytest.raises(TypeError, match="iterable"):
        list(attn.ScoreTable(np.ones(2, np.float32)))


def test_a_trace_changes_nothing_of_the_function(random):
    slope = np.ones(2, np.float32)

    def decay(s, b, h, i, j, by=slope):
        return s - by[h] * (i - j)

    x = random.standard_normal((1, 2, 3, 4), dtype=np.float32)
    attn.attention(x, x, x, score=decay)
    assert decay.__defaults__[0] is slope

# --- blocks of keys ---------------------------------------------------------------------------------------------------


def test_blocks_of_keys(random):
    """Lists of any width of integers, the sizes of blocks as one number or two, and their matrix."""
    q, k, v = (random.standard_normal((2, 4, 20, 8), dtype=np.float32) for _ in range(3))
    chosen = random.integers(-1, 5, size=(2, 2, 10, 3))
    allowed = (chosen[..., None] == np.arange(20) // 4).any(-2).repeat(2, 2).repeat(2, 1)
    expected = attn.attention(q, k, v, mask=Mask.attend(allowed))
    for lists in (chosen, chosen.astype(np.int8), chosen.astype(np.int32)):
        mask = Mask.blocks(lists, (2, 4))
        assert str(mask) == "blocks(i64 [2, 2, 10, 3], 2, 4)" and np.array_equal(mask.dense(2, 4, 20, 20), allowed)
        assert np.array_equal(attn.attention(q, k, v, mask=mask), expected)
    assert np.array_equal(Mask.blocks(chosen[:1, :1, :5], 4).dense(1, 1, 20, 20),
                          Mask.blocks(chosen[:1, :1, :5], [4, 4]).dense(1, 1, 20, 20))
    torch = pytest.importorskip("torch")
    given = torch.tensor(chosen, dtype=torch.int32)
    mask = Mask.blocks(given, (2, 4))
    x = torch.tensor(q, requires_grad=True)
    output = attn.attention(x, torch.tensor(k), torch.tensor(v), mask=mask)
    given.zero_()  # the mask has a copy, which the backward pass reads
    output.sum().backward()
    assert np.array_equal(output.detach(), expected) and torch.isfinite(x.grad).all()
    assert np.array_equal(pickle.loads(pickle.dumps(mask)).dense(2, 4, 20, 20), allowed)


@pytest.mark.parametrize(
    ("lists", "block", "text"),
    [
        (np.zeros((1, 1, 5, 1)), 4, "Mask.blocks: the tensor is f64; it must be i64 or i32"),
        (np.zeros((5, 1), np.int64), 4, r"Mask.blocks: indices have shape \[5, 1\]; they must be \[B, H, Tq"),
        ([0, 1], 4, r"Mask.blocks: indices have shape \[2\]; they must be \[B, H, Tq"),
        (3, 4, "Mask.blocks: indices is a int; whole numbers are needed"),
        (None, 4, "Mask.blocks: indices is None; whole numbers are needed"),
        (np.full((1, 1, 5, 1), -2), 4, "Mask.blocks: indices hold -2; each must be at least 0, or -1 for none"),
        (np.zeros((1, 1, 5, 1), np.int64), 0, "Mask.blocks: blocks are of 0 rows and 0 keys; each must be from 1 to"),
        (np.zeros((1, 1, 5, 1), np.int64), 2.5, "Mask.blocks: block is a float"),
        (np.zeros((1, 1, 5, 1), np.int64), (4, 4, 4), r"Mask.blocks: block has 3 numbers; one is needed, or two"),
        (np.zeros((1, 1, 5, 1), np.int64), (4, None), r"Mask.blocks: block\[1\] is None"),
        (np.full((1, 1, 5, 1), 5), 4, "attention: the mask blocks holds the index 5; 20 keys are 5 blocks of 4"),
        (np.zeros((1, 1, 4, 1), np.int64), 4, r"attention: the mask blocks has indices of shape \[1, 1, 4, 1\]"),
        (np.zeros((1, 3, 5, 1), np.int64), 4, "attention: the mask blocks .* where H divides the 4 query heads"),
        (np.zeros((3, 1, 5, 1), np.int64), 4, "attention: the mask blocks .* need .1 or 2, H, 5, n"),
    ],
    ids=str,
)
def test_blocks_that_are_none(lists, block, text):
    x = np.zeros((2, 4, 20, 8), np.float32)
    with pytest.raises((TypeError, ValueError), match=f"^{text}") as error:
        attn.attention(x, x, x, mask=Mask.blocks(lists, block))
    assert "\n" not in str(error.value)
