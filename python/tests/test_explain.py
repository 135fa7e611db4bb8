# python/tests/test_explain.py: attn.explain and its drawings.
import json
import pickle

import numpy as np
import pytest

import attn


def test_steps_are_the_librarys_numbers():
    explanation = attn.explain("Life is short, eat dessert first", mask="causal")
    weights = explanation["weights"]
    assert (weights.kind == "weights"
            and weights.rows == weights.columns == [["Life", "is", "short", "eat", "dessert", "first"]])
    q, k, v, context = (explanation[name].values for name in ("q", "k", "v", "context"))
    output, expected = attn.attention(q, k, v, mask="causal", weights="full")
    assert np.array_equal(weights.values, expected) and np.array_equal(context, output)
    assert weights.hidden[1] == "causal" and weights.hidden[0] == "visible"


def test_a_step_is_an_array_with_a_name():
    explanation = attn.explain("Life is short", mask="causal")
    step = explanation["weights"]
    assert repr(step) == "<attn.ExplainStep 'weights' [3, 3]: softmax(masked)>"
    assert repr(explanation["tokens"]).startswith("<attn.ExplainStep 'tokens' of words")
    assert np.array_equal(np.asarray(step), step.values) and np.asarray(step, dtype=np.float64).dtype == np.float64
    with pytest.raises(TypeError, match="tokens has words, no numbers"):
        np.asarray(explanation["tokens"])
    assert "weights" in explanation and "weight" not in explanation and 3 not in explanation


def test_a_step_that_is_not_there():
    explanation = attn.explain(["a b", "c"], heads=2)
    text = '^Explanation: there is no step "weigths"; did you mean weights[?] there are tokens, ids, x, '
    for error in (KeyError, ValueError):  # a mapping's error, and that of every other wrong value
        with pytest.raises(error, match=text):
            explanation["weigths"]
    with pytest.raises(KeyError, match='no step "xyz"; there are tokens'):
        explanation["xyz"]
    with pytest.raises(IndexError):
        explanation[99]
    for wrong, most in (("batch", 1), ("head", 1)):
        for index in (2, -1, 0.5):
            with pytest.raises(ValueError, match=f"Explanation.plot: {wrong} is {index}; it must be from 0 to {most}"):
                explanation.plot(**{wrong: index})


def test_the_way_back():
    explanation = attn.explain("Life is short, eat dessert first", mask="causal", gradients=True)
    weights, v, context = (explanation[name].values.astype(np.float64) for name in ("weights", "v", "context"))
    assert np.array_equal(explanation["d_context"].values, explanation["context"].values)
    eps = np.finfo(np.float32).eps
    # six products of weights up to 1
    assert np.allclose(explanation["d_v"].values, weights.T @ context, rtol=0, atol=6 * eps * np.abs(context).max())
    slopes = weights * (context @ v.T - np.sum(weights * (context @ v.T), -1, keepdims=True))
    # four products, six, two more
    assert np.allclose(explanation["d_scores"].values, slopes, rtol=0, atol=16 * eps * np.abs(context @ v.T).max())
    assert explanation["d_scores"].hidden[1] == "causal"


def test_what_stands_around_the_softmax():
    options = dict(softcap=5.0, temperature=2.0, score_mod=lambda s, b, h, i, j: s - 0.5 * abs(i - j), dropout_p=0.25)
    explanation = attn.explain("Life is short, eat dessert first", sink=1.0, weights=attn.Weights.top_k(2), seed=7,
                               **options)
    q, k, v, context = (explanation[name].values for name in ("q", "k", "v", "context"))
    expected = attn.attention(q, k, v, sinks=np.float32([1.0]), dropout_seed=7, **options)
    assert np.array_equal(context, expected)
    assert ([step.name for step in explanation.steps][-10:]
            == ["scores", "scaled", "capped", "modified", "tempered", "weights", "sink", "dropped", "top_k", "context"])
    assert explanation["top_k"].hidden.count("not_returned") == 6 * 6 - 2 * 6
    batch = attn.explain(["Life is short", "eat dessert"], bias="alibi", packed=True, cache="int8")
    assert {"bias", "biased", "packed", "context_int8"} <= {step.name for step in batch.steps}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bias": "alibis"}, 'bias is "alibis"; it must be one of "none", "alibi", "relative", "alibi_symmetric"'),
        ({"cache": "int4"}, 'cache is "int4"; it must be one of "same", "int8"'),
        ({"weights": "all"}, 'weights is "all"'),
        ({"score_mod": 3}, "a function of"),
        ({"sink": "x"}, "sink is a str; a number is needed"),
        ({"mask": "\udc80"}, "mask holds half of a surrogate pair"),
    ],
)
def test_options_that_are_wrong(options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        attn.explain("Life is short", **options)


def test_a_batch_and_cross_attention():
    batch = attn.explain(["Life is short", "eat dessert"], heads=2)
    assert batch["weights"].values.shape == (2, 2, 3, 3) and batch.texts == ["Life is short", "eat dessert"]
    cross = attn.explain("Life is short", to="eat dessert")
    assert cross.to == "eat dessert" and cross["weights"].values.shape == (3, 2)


def test_own_matrices_and_words(random):
    w_query, w_key, w_value = (random.random((3, n), dtype=np.float32) for n in (2, 2, 4))
    explanation = attn.explain("a-b-c", w_query=w_query, w_key=w_key, w_value=w_value,
                               cut_words=lambda text: text.split("-"), tokens="words")
    assert explanation["tokens"].rows == [["a", "b", "c"]]
    assert np.array_equal({step.name: step.values for step in explanation.parameters}["w_query"], w_query)


def test_the_output_projection_and_a_learned_query(random):
    told = attn.explain("Life is short, eat dessert first", heads=2, output_projection=True)
    w_output = told.parameters[-1]
    assert w_output.name == "w_output" and w_output.values.shape == (8, 3)
    largest = np.abs(told["joined"].values).max() * 8
    assert np.allclose(told["output"].values, told["joined"].values @ w_output.values, rtol=0,
                       atol=8 * np.finfo(np.float32).eps * largest)
    own = random.random((4, 5), dtype=np.float32)
    assert attn.explain("a b", w_output=own)["output"].values.shape == (2, 5)
    pooled = attn.explain(["Life is short", "eat"], query_vector=np.float32([1, 2, 3]))
    assert np.array_equal(pooled["learned_query"].values, np.float32([[[1, 2, 3]]] * 2))
    assert pooled["weights"].values.shape == (2, 1, 3) and pooled["context"].values.shape == (2, 1, 4)
    scores = random.random((2, 2), dtype=np.float32)
    general = attn.explain("a b", score="general", score_w=scores, learned_query=True, vocabulary=2)
    assert np.array_equal(general.parameters[-1].values, scores)
    assert general["x"].source == "Embedding(2, 3), seed 123"


def test_only_some_steps_are_drawn():
    told = attn.explain("Life is short", only="weights, context")
    assert told.text().startswith(" 9  weights") and "scores\n" not in told.text()
    assert [step["name"] for step in json.loads(told.json())["steps"]] == ["weights", "context"]
    assert told["scores"].values.shape == (3, 3) and told.options["only"] == ["weights", "context"]
    assert pickle.loads(pickle.dumps(told)).text() == told.text()
    assert attn.explain("Life is short", **told.options).json() == told.json()
    with pytest.raises(ValueError, match='explain: there is no step "weigths"; there are tokens, ids, x, q, k, v'):
        attn.explain("Life is short", only=["weigths"])
    with pytest.raises(TypeError, match="explain: only is a int; a list of names is needed"):
        attn.explain("Life is short", only=3)


def test_options_make_the_same_run_again():
    given = {"to": "eat dessert", "score": "additive", "mask": "causal(top_left)", "heads": 2, "seed": 2**63 + 1,
             "softcap": 1.5, "sink": 0.25, "weights": "top_k(2)", "query": -1}
    explanation = attn.explain("Life is short", **given)
    assert explanation.options["heads"] == 2 and explanation.options["query"] == 2
    assert explanation.options["seed"] == 2**63 + 1
    assert attn.explain("Life is short", **explanation.options).json() == explanation.json()
    assert json.loads(explanation.json())["options"] == explanation.options
    assert pickle.loads(pickle.dumps(explanation)).json() == explanation.json()


def test_a_step_says_what_its_numbers_are_made_of():
    explanation = attn.explain("Life is short", heads=2)
    scaled = explanation["scaled"]
    assert (scaled.operation, scaled.inputs, scaled.operand) == ("divide", ["scores"], 2**0.5)
    scores = explanation["scores"].values.astype(np.float64)
    assert np.abs(scaled.values - scores / scaled.operand).max() <= 16 * 2**-24 * np.abs(scores).max()
    assert explanation["weights"].operand is None
    assert explanation["tokens"].places == [[[0, 4], [5, 7], [8, 13]]]


def test_forms():
    explanation = attn.explain("Life is short")
    assert str(explanation) == explanation.text() and "weights" in str(explanation)
    assert explanation._repr_html_() == explanation.svg() and explanation.svg().startswith("<svg")
    assert json.loads(explanation.json())["attn_explain"] == 1
    assert (len(explanation) == len(list(explanation)) == len(explanation.steps)
            and explanation[0].name == explanation.steps[0].name)
    assert "weights" in repr(explanation) and "\n" not in repr(explanation)
    assert max(map(len, explanation.text(width=40).splitlines())) <= 40


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("",), "token"),
        ((3,), "text is a int"),
        (([],), ""),
        (([1],), "a text"),
        (("a", {"score": "cosine"}), '"scaled_dot"'),
        (("a", {"query": 7}), "query"),
        (("a", {"heads": "two"}), "heads"),
        (("a", {"w_query": np.zeros((3, 2), np.float32)}), "w_"),
        (("a", dict.fromkeys(("w_query", "w_key", "w_value"), np.zeros((4, 16), np.float32)) | {"dim": 16}),
         "w_query has shape [4, 16], but dim is 16; the three look transposed"),
        (("a", {"cut_words": 3}), "cut_words"),
        (("a", {"language": "fr"}), '"en", "zh"'),
    ],
)
def test_mistakes(arguments, text):
    options = arguments[1] if len(arguments) > 1 else {}
    with pytest.raises((TypeError, ValueError)) as error:
        attn.explain(arguments[0], **options)
    assert text in str(error.value)


def test_a_missing_step_lists_those_there_are():
    with pytest.raises(ValueError, match="there are .*weights"):
        attn.explain("a b")["weight"]


def test_heat_maps(tmp_path):
    matplotlib = pytest.importorskip("matplotlib", reason="not installed: matplotlib")
    matplotlib.use("Agg")
    from attn.plot import heat_map

    axes = attn.explain("Life is short", heads=2, mask="causal").plot("weights", batch=np.int64(0), head=np.int64(1))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Life", "is", "short"]
    axes.figure.savefig(tmp_path / "weights.png")
    assert (tmp_path / "weights.png").stat().st_size > 1000
    axes = attn.explain("Life is short", mask="causal").plot("mask")
    shown = axes.images[0].get_array()
    assert shown.mask[0, 1] and not shown.mask[0, 0]
    axes = heat_map([[0.25, 0.75]], rows=["a"], columns=["b", "c"], numbers=True)
    assert [text.get_text() for text in axes.texts] == ["0.25", "0.75"]
    with pytest.raises(ValueError, match="rows"):
        heat_map([[1.0]], rows=["a", "b"])
    with pytest.raises(ValueError, match=r"\[Tq, Tk\]"):
        heat_map(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="one of"):
        attn.explain("a b").plot("q")


def test_a_negative_query_counts_from_the_end():
    text = "Life is short, eat dessert first"
    assert attn.explain(text, query=-1).json() == attn.explain(text, query=5).json()
    assert attn.explain(text, query=-6).json() == attn.explain(text, query=0).json()
    assert (attn.explain(["life", "life is short"], query=-1).json()
            == attn.explain(["life", "life is short"], query=2).json())
    for query in (-7, 6, -(2**63)):
        with pytest.raises(ValueError,
                           match=rf"query {query} is not there; the tokens are 0 to 5, or -6 to -1 from the end"):
            attn.explain(text, query=query)


def test_steps_that_are_not_there():
    explanation = attn.explain("a b")
    for error in (IndexError, ValueError):
        with pytest.raises(error, match=r"^Explanation: there is no step 99; there are \d+, from 0$"):
            explanation[99]
    assert np.zeros((2, 2)) not in explanation and 0 not in explanation and "weights" in explanation
