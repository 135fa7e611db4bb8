# python/tests/test_copies.py: pickles and copies of what calls are made of.
import copy
import io
import pickle
import weakref

import numpy as np
import pytest

import attn

SLOPE = np.array([0.3, 0.2], np.float32)
X = np.random.default_rng(0).standard_normal((1, 2, 6, 8)).astype(np.float32)
GAIN = X[0, 0, 0]
OPTIONS = {
    "no bias": {"bias": attn.Bias()},
    "alibi of heads": {"bias": attn.Bias.alibi(2)},
    "alibi of numbers": {"bias": attn.Bias.alibi([1 / 3, 0.1], "top_left")},
    "alibi both ways": {"bias": attn.Bias.alibi(SLOPE, symmetric=True)},
    "alibi of an array": {"bias": attn.Bias.alibi(SLOPE, "bottom_right")},
    "three terms": {"bias": attn.Bias.dense(X[0, :, :, :6]) + attn.Bias.relative(X[0, 0, :, :2].copy(), False, 20)
                    + attn.Bias.alibi(2)},
    "scaled dot": {"score": attn.Score.scaled_dot()},
    "dot": {"score": attn.Score.dot()},
    "general": {"score": attn.Score.general(X[0, 0, :, :8].T @ X[0, 0])},
    "additive": {"score": attn.Score.additive(X[0, 0], X[0, 1], SLOPE.repeat(3))},
    "an expression": {"score_mod": attn.ScoreExpression("where(i - j < 3, s / 3, -inf)")},
    "an expression with arrays": {
        "score_mod": attn.ScoreExpression(lambda s, b, h, i, j: s * 0.1 - SLOPE[h] * GAIN[j])},
    "one with an alignment": {"score_mod": attn.ScoreExpression("s - i").aligned("bottom_right")},
    "rows": {"weights": attn.Weights.rows(np.array([3, 0]))},
    "top k": {"weights": attn.Weights.top_k(2)},
    "a mask": {"mask": attn.Mask("causal & window(2, 0) | ~prefix(3)")},
    "blocks of keys": {"mask": attn.Mask.causal() & attn.Mask.blocks(np.array([[[[0, 1], [2, -1]]]]), (3, 2))},
    "a mask of arrays": {"mask": attn.Mask.causal() & ~attn.Mask.block(X[0, 0, :, :6] > 0)
                         | attn.Mask.documents(np.arange(6), np.arange(6)) & attn.Mask.prefix(np.array([9]))},
}  # fmt: skip
WAYS = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_again(name, way):
    ((option, given),) = OPTIONS[name].items()
    again = WAYS[way](given)
    assert type(again) is type(given) and repr(again) == repr(given)
    results, expected = (attn.attention(X, X, X, return_logsumexp=True, **{option: x}) for x in (again, given))
    for a, b in zip(results, expected, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b)) if isinstance(a, tuple) else np.array_equal(a, b)


def test_a_table():
    table = pickle.loads(pickle.dumps(attn.ScoreTable(SLOPE, "slope")))
    assert str(table[0]) == "slope[0]" and np.array_equal((table[0] * 1).arrays[0], SLOPE)


def test_a_table_of_a_table_is_it():
    expected = attn.ScoreExpression(lambda s, b, h, i, j: s - SLOPE[h])
    # a captured array is a table already
    wrapped = attn.ScoreExpression(lambda s, b, h, i, j: s - attn.ScoreTable(SLOPE)[h])
    assert str(wrapped) == str(expected) == "s - SLOPE[h]"


def test_a_table_of_a_table_has_the_name_that_is_given():
    b = SLOPE
    named = attn.ScoreExpression(lambda s, _, h, i, j: s - attn.ScoreTable(b, "slope")[h] * b[0])
    assert str(named) == "s - slope[h] * b[0]" and all(array is b for array in named.arrays)
    with pytest.raises(TypeError, match="the name b stands for two things"):
        pickle.dumps(named)
    named = attn.ScoreExpression(lambda s, _, h, i, j: s - attn.ScoreTable(b, "slope")[h]
                                 * attn.ScoreTable(b, "gain")[0])
    again = pickle.loads(pickle.dumps(named))
    assert (str(again) == "s - slope[h] * gain[0]"
            and np.array_equal(attn.attention(X, X, X, score_mod=again), attn.attention(X, X, X, score_mod=named)))
    table = attn.ScoreTable(SLOPE, "slope")
    assert (attn.ScoreTable(table).name == attn.ScoreTable(table, None).name == "slope"
            and attn.ScoreTable(SLOPE).name == "table")
    for values in (SLOPE, table):
        with pytest.raises(TypeError, match="ScoreTable: name is a int; a text is needed"):
            attn.ScoreTable(values, 3)


def test_an_error_cuts_a_notation_between_characters():
    for name in ("猫" * 30, "a" + "猫" * 30, "aa" + "猫" * 30):
        table = attn.ScoreTable(np.zeros(3, np.float32), name)
        with pytest.raises(TypeError, match='^ScoreExpression: "s [+] a{0,2}猫{24,25}..." has a text'):
            pickle.dumps(attn.ScoreExpression(lambda s, b, h, i, j: s + table[j]))
        with pytest.raises(TypeError, match='^ScoreExpression: "a{0,2}猫{26}" is neither true nor false'):
            attn.ScoreExpression(lambda s, b, h, i, j: s if table[j] else -s)


def test_what_cannot_be_copied_says_why():
    b = SLOPE
    with pytest.raises(TypeError,
                       match=r'the name b stands for two things in "s - b\[h\]", so it cannot be pickled; '
                             r'attn.ScoreTable\(array, name\)'):
        pickle.dumps(attn.ScoreExpression(lambda s, _, h, i, j: s - b[h]))
    two = attn.ScoreTable(SLOPE)[0] + attn.ScoreTable(X[0, 0, 0])[1]
    with pytest.raises(TypeError, match="the name table stands for two things"):
        copy.deepcopy(two)
    doubled = attn.ScoreExpression("s")
    for _ in range(14):
        doubled = doubled * doubled
    with pytest.raises(TypeError, match="has a text that does not read back"):
        pickle.dumps(doubled)
    long = attn.Mask.causal()
    for left in range(1100):
        long = long | attn.Mask.window(left, 0)
    assert repr(copy.deepcopy(long)) == repr(long)
    with pytest.raises(TypeError, match="Mask: its text does not read back"):
        pickle.dumps(long)
    for way in WAYS.values():
        with pytest.raises(TypeError, match=r"KvCache: its pages are not copied or pickled; fork\(sequence\)"):
            way(attn.KvCache(1, 4, 2))


@pytest.mark.parametrize("way", WAYS)
def test_results(way):
    plan = attn.attention(X, X, X, return_plan=True)[1]
    again = WAYS[way](plan)
    assert (type(again) is attn.Plan and repr(again) == repr(plan) and again.steps == plan.steps
            and again.kernel == plan.kernel)
    nothing = attn.attention(X[:0], X[:0], X[:0], return_plan=True)[1]
    assert repr(WAYS[way](nothing)) == repr(nothing) and WAYS[way](nothing).kernel == nothing.kernel
    for given, options in (("Life is short", {"mask": "causal", "query": 1}),
                           (["Life is short", "eat"], {"language": "zh", "gradients": True})):
        explanation = attn.explain(given, **options)
        again = WAYS[way](explanation)
        assert (again.json() == explanation.json() and again.svg() == explanation.svg()
                and again.text() == explanation.text())
        for step in explanation.steps + explanation.parameters:
            other = WAYS[way](step)
            assert (repr(other) == repr(step) and other.hidden == step.hidden and other.rows == step.rows
                    and np.array_equal(other.values, step.values))


def test_a_deep_copy_of_a_step_has_its_own_values():
    step = attn.explain("Life is short")["weights"]
    shared, own = copy.copy(step), copy.deepcopy(step)
    step.values[...] = 7
    assert (shared.values == 7).all() and (own.values != 7).all()


def test_results_can_be_watched():
    explanation, plan = attn.explain("Life"), attn.attention(X, X, X, return_plan=True)[1]
    for x in (plan, explanation, explanation[0]):
        assert weakref.ref(x)() is x


def test_a_damaged_pickle_is_an_error():
    for x in (attn.explain("Life")[0], attn.explain("Life")._run, attn.attention(X, X, X, return_plan=True)[1]):
        for state in (None, 3, ("x",), ("x",) * 8, ("x",) * 14, (1,) * 14):
            with pytest.raises(TypeError):
                type(x).__new__(type(x)).__setstate__(state)


def test_what_a_copy_shares():
    seen = np.ones((6, 6), bool)
    mask, rows = attn.Mask.attend(seen) | attn.Mask.none(), attn.Weights.rows(GAIN.argsort())
    assert mask.arrays[0] is seen and copy.copy(mask).arrays[0] is seen and copy.deepcopy(mask).arrays[0] is not seen
    again, seen[:] = copy.deepcopy(mask), False
    assert (again.dense(1, 1, 6, 6).all() and not mask.dense(1, 1, 6, 6).any()
            and rows.arrays[0] is copy.copy(rows).arrays[0])


def test_a_module_that_holds_them():
    """A copied module's bias is over the copied parameter, as nn.TransformerEncoder copies its layers;
    that of a saved one too."""
    torch = pytest.importorskip("torch")

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.w, self.gain = (torch.nn.Parameter(torch.randn(shape))
                                             for shape in ((32, 2), (8, 8), (2,)))
            self.bias, self.score = attn.Bias.relative(self.table) + attn.Bias.alibi(2), attn.Score.general(self.w)
            self.mod = attn.ScoreExpression(lambda s, b, h, i, j: s * attn.ScoreTable(self.gain, "gain")[h])

        def forward(self, x):
            return sum(attn.attention(x, x, x, **option)
                       for option in ({"bias": self.bias}, {"score": self.score}, {"score_mod": self.mod}))

    def saved(layer):
        """By torch.save, without the class, which a function's own cannot be found by."""
        file = io.BytesIO()
        torch.save(layer.__dict__, file)
        file.seek(0)
        again = Layer.__new__(Layer)
        again.__dict__.update(torch.load(file, weights_only=False))
        return again

    layer, x = Layer(), torch.from_numpy(X)
    for other in (copy.deepcopy(layer), saved(layer)):
        assert torch.equal(other(x), layer(x))
        assert (other.bias.arrays[0] is other.table and other.score.arrays[0] is other.w
                and other.mod.arrays[0] is other.gain)
        other(x).sum().backward()
        assert all(p.grad is not None for p in other.parameters()) and all(p.grad is None for p in layer.parameters())
