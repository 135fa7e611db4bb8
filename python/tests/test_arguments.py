# python/tests/test_arguments.py: what Python's users write: lists of numbers, texts of options, names of other
# libraries, and the one line for the rest.
import copy
import pickle
import sys

import numpy as np
import pytest

import attn

X = np.random.default_rng(0).standard_normal((2, 2, 6, 8)).astype(np.float32)
FORMS = [list, tuple, np.array,
         *(lambda x, t=t: np.array(x, t)
           for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.uint64, ">i8", ">i2"))]
FORMS += [lambda x: [np.int16(n) for n in x],
          lambda x: range(x[0], x[-1] + np.sign(x[-1] - x[0]), (x[-1] - x[0]) // (len(x) - 1))]


def same(a, b):
    return np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1]) if isinstance(a, tuple) else np.array_equal(a, b)


@pytest.mark.parametrize("form", FORMS, ids=range(len(FORMS)))
def test_whole_numbers_come_in_any_form(form):
    of = lambda *numbers: np.array(numbers, np.int64)  # noqa: E731
    for name in ("key_lengths", "query_lengths", "key_start", "query_start"):
        assert same(attn.attention(X, X, X, **{name: form([6, 3])}), attn.attention(X, X, X, **{name: of(6, 3)})), name
    packed = X[0].transpose(1, 0, 2)
    assert same(attn.attention(packed, packed, packed, cu_seqlens_q=form([0, 3, 6])),
                attn.attention(packed, packed, packed, cu_seqlens_q=of(0, 3, 6)))
    assert same(attn.attention(X, X, X, weights=attn.Weights.rows(form([0, 3]))),
                attn.attention(X, X, X, weights=attn.Weights.rows(of(0, 3))))
    for mask, expected in ((attn.Mask.prefix(form([4, 2])), attn.Mask.prefix(of(4, 2))),
                           (attn.Mask.documents(form([0, 1, 2, 3, 4, 5])), attn.Mask.documents(of(*range(6))))):
        assert same(mask.dense(2, 1, 6, 6), expected.dense(2, 1, 6, 6))
    assert same(attn.Mask.causal().dense(2, 1, 6, 6, key_lengths=form([6, 3])),
                attn.Mask.causal().dense(2, 1, 6, 6, key_lengths=of(6, 3)))
    cache = attn.KvCache(2, 8, 8)
    sequences = [cache.create(), cache.create()]
    cache.append(sequences, X, X)
    assert same(attn.attention_cached(X, cache, sequences, mask="causal", query_start=form([0, 1])),
                attn.attention_cached(X, cache, sequences, mask="causal", query_start=of(0, 1)))


def test_documents_of_a_batch_are_lists_of_lists():
    ids = [[0, 0, 1], [0, 1, 1]]
    assert same(attn.Mask.documents(ids, ids).dense(2, 1, 3, 3), attn.Mask.documents(np.array(ids)).dense(2, 1, 3, 3))


def test_rows_are_counted_from_the_end_too():
    full = attn.attention(X, X, X, weights="full")[1]
    for rows in ([-1], [0, -1], (-6, 5), range(-1, -7, -1)):
        assert same(attn.attention(X, X, X, weights=attn.Weights.rows(rows))[1], full[:, :, list(rows)])
    with pytest.raises(ValueError,
                       match="row 1 of weights is -7; it must be below the number of rows, 6, and at least -6"):
        attn.attention(X, X, X, weights=attn.Weights.rows([0, -7]))
    assert np.array_equal(attn.explain("a b c", weights="rows(-1)")["rows"].values,
                          attn.explain("a b c", weights="rows(2)")["rows"].values)


def test_weights_of_lists_are_copied_and_pickled():
    for weights in (attn.Weights.rows([0, -1]), attn.Weights.rows(range(2))):
        for other in (copy.deepcopy(weights), pickle.loads(pickle.dumps(weights))):
            assert same(attn.attention(X, X, X, weights=other), attn.attention(X, X, X, weights=weights))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([6.0, 3.0], "a number of key_lengths is a float; a whole number is needed"),
        ([True, False], "a number of key_lengths is a bool"),
        ([[6], [3, 2]], "key_lengths has lists of 1 and of 2 numbers"),
        ([[6], 3], "key_lengths has lists beside numbers"),
        ([[[6]]], "key_lengths has lists in lists of lists"),
        ([2**70, 1], "a number of key_lengths does not fit into 64 bits"),
        (np.array([2**63, 1], np.uint64), "key_lengths does not fit into 64 bits"),
        (range(2**70), "key_lengths has more than 16777216 numbers"),
        (range(2**30), "key_lengths has more than 16777216 numbers"),
        (6, "key_lengths is a int; whole numbers are needed: a list, a NumPy array or a torch tensor"),
        ({6, 3}, "key_lengths is a set"),
        ([6, 3, 1], r"key_lengths has shape \[3\]; it must be \[2\]"),
        (["6", "3"], "a number of key_lengths is a str"),
        ([], r"key_lengths has shape \[0\]"),
    ],
    ids=lambda x: str(x)[:30],
)
def test_what_is_no_list_of_whole_numbers(given, text):
    with pytest.raises((TypeError, ValueError), match=f"^attention: {text}") as error:
        attn.attention(X, X, X, key_lengths=given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "weights"),
    [("top_k(2)", attn.Weights.top_k(2)), ("rows(0, -1)", attn.Weights.rows([0, -1])),
     ("rows( 3 )", attn.Weights.rows([3])), ("rows()", attn.Weights.rows([])), ("full", "full")],
)
def test_weights_in_the_commands_notation(text, weights):
    assert same(attn.attention(X, X, X, weights=text)[1], attn.attention(X, X, X, weights=weights)[1])
    assert text == "rows()" or attn.explain("a b c d", weights=text)


@pytest.mark.parametrize("text",
                         ["top_k", "top_k()", "top_k(1, 2)", "top_k(x)", "rows(1", "rows(1,,2)", "rows(0x1)",
                          "rows(99999999999999999999)", "top_k(2) ", "topk(2)"])
def test_weights_that_are_not_understood(text):
    with pytest.raises(ValueError, match=r"^attention: weights is .*rows\(0, 5\).*top_k\(3\)"):
        attn.attention(X, X, X, weights=text)


# --- masks of whole numbers -------------------------------------------------------------------------------------------


def test_an_attention_mask_is_no_padding():
    """transformers' attention_mask has 1 for a token: given to key_padding it would hide every one of them."""
    m = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    with pytest.raises(TypeError, match=r"attn.Mask.attend\(m\[:, None, None, :\]\), or key_lengths=m.sum\(1\)"):
        attn.Mask.key_padding(m)
    with pytest.raises(TypeError, match=r"Mask.block: blocked is int64.*attn.Mask.attend\(m\)"):
        attn.Mask.block(m[:, None, None, :])
    for narrow in (np.uint8, np.int8, np.int16):
        with pytest.raises(TypeError, match=rf"padding is {np.dtype(narrow)}; .*attn.Mask.attend\(m"):
            attn.Mask.key_padding(m.astype(narrow))
    for mask, lengths in ((attn.Mask.attend(m[:, None, None, :]), None), (None, m.sum(1))):
        assert same(attn.attention(X, X, X, mask=mask, key_lengths=lengths),
                    attn.attention(X, X, X, mask=attn.Mask.key_padding(m == 0)))


# --- names that are none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("is_causal", 'mask="causal"'),
        ("causal", 'mask="causal"'),
        ("attn_mask", "mask=attn.Mask.attend(x) where True takes part, attn.Mask.block(x) where True is masked"),
        ("attention_mask", "attn.Mask.attend(x)"),
        ("key_padding_mask", "attn.Mask.key_padding(x) where True is padding"),
        ("window", 'mask="window(left, right)"'),
        ("window_size", 'mask="window(left, right)"'),
        ("dropout", "dropout_p"),
        ("need_weights", 'weights="full"'),
        ("softmax_scale", "scale"),
        ("enable_gqa", "k and v may have fewer heads"),
        ("masks", "mask"),
        ("key_lenghts", "key_lengths"),
    ],
)
def test_names_of_other_libraries(name, meant):
    cache = attn.KvCache(2, 8, 8)
    calls = {"attention": (attn.attention, (X, X, X)),
             "additive_attention": (attn.additive_attention, (X, X, X, X, X, X)),
             "attention_cached": (attn.attention_cached, (X, cache, []))}
    for function, (call, arguments) in calls.items():
        with pytest.raises(TypeError) as error:
            call(*arguments, **{name: True})
        assert (str(error.value).startswith(f"{function}: there is no option {name}; write ")
                and meant in str(error.value) and "\n" not in str(error.value))


@pytest.mark.parametrize(("name", "meant"), [
    ("causl", 'mask="causal"'), ("casual", 'mask="causal"'), ("is_casual", 'mask="causal"'), ("sofcap", "softcap"),
    ("atn_mask", "mask=attn.Mask.attend(x)"), ("need_weight", 'weights="full"'), ("temprature", "temperature"),
    ("scael", "scale")])
def test_misspelt_names_of_other_libraries(name, meant):
    with pytest.raises(TypeError) as error:
        attn.attention(X, X, X, **{name: True})
    assert str(error.value).startswith(f"attention: there is no option {name}; write {meant}")


@pytest.mark.parametrize(("call", "text"), [
    (lambda: attn.scaled_dot_product_attention(np.zeros((1, 4, 3, 2)), *2 * [np.zeros((1, 2, 3, 2))]),
     "need enable_gqa=True"),
    (lambda: attn.Mask.key_padding(np.zeros((1, 3))),
     "Mask.key_padding: the tensor is f64; it must be bool (a float mask is added: Bias.dense)"),
    (lambda: attn.Mask.window(-2, 0), "Mask.window: left is -2"),
    (lambda: attn.Mask.parse("Mask::window = true"), 'Mask.parse: "Mask::window = true": '),
    (lambda: attn.Bias.dense(np.zeros((3, 3), bool)), "Bias.dense: values are bool"),
    (lambda: attn.Tokenizer.train(""), "Tokenizer.train: the text is empty"),
    (lambda: attn.Tokenizer.load("/none/Mask::x"), "Tokenizer.load: /none/Mask::x: ")])
def test_texts_of_the_library_have_the_spelling_of_python(call, text):
    with pytest.raises((TypeError, ValueError, OSError)) as error:
        call()
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: attn.attention(X, X, X, nothing=1), "attention: there is no option nothing; "
                                                     "there are score, scale, mask"),
        (lambda: attn.scaled_dot_product_attention(X, X, X, mask=1),
         "scaled_dot_product_attention: there is no option mask; write attn_mask"),
        (lambda: attn.scaled_dot_product_attention(X, X, X, causal=True),
         "scaled_dot_product_attention: there is no option causal; write is_causal=True"),
        (lambda: attn.attention_scores(X, X, softmax_scale=1),
         "attention_scores: there is no option softmax_scale; write scale"),
        (lambda: attn.explain("a", lang="zh"), "explain: there is no option lang; write language"),
        (lambda: attn.explain("a", d_model=3), "explain: there is no option d_model; write dim"),
        (lambda: attn.explain("a", **{"x\n" * 5000: 3}), "explain: there is no option x?x?"),
        (lambda: attn.Mask.window(1), "Mask.window: right is missing; it takes left, right, align"),
        (lambda: attn.Mask.window(1, 0, None, 3), "Mask.window: 4 arguments are given; it takes left, right, align"),
        (lambda: attn.Mask.window(1, 0, left=3), "Mask.window: left is given twice"),
        (lambda: attn.Mask.causal(alin=None), "Mask.causal: there is no option alin; write align"),
        (lambda: attn.Mask("causal", 3), "Mask: 2 arguments are given; it takes text"),
        (lambda: attn.Mask.causal().print(4), "Mask.print: k_rows is missing; it takes q_rows, k_rows, query_lengths"),
        (lambda: attn.Bias(3), "Bias: 1 arguments are given; it takes no arguments"),
        (lambda: attn.KvCache(1, 2), "KvCache: pages is missing"),
        (lambda: attn.KvCache(num_heads=1, head_dim=2, pages=3),
         "KvCache: there is no option num_heads; write key_heads"),
        (lambda: attn.KvCache(1, 2, 3, 4), "KvCache: "),
        (lambda: attn.KvCache(1, 2, 3).append(1), "KvCache.append: k is missing; it takes sequences, k, v"),
        (lambda: attn.KvCache.append(1, 2, 3, 4), "KvCache.append: "),
        (lambda: attn.exp(), "exp() missing 1 required positional argument: 'x'"),
        (lambda: attn.set_num_threads(n=1), "set_num_threads: there is no option n; there are threads"),
        (lambda: attn.ScoreTable(), "ScoreTable.__new__() missing 1 required positional argument: 'values'"),
        (lambda: attn.Weights.top_k(), "Weights.top_k: n is missing; it takes n"),
        (lambda: attn.Weights(2), "attn._core.Weights: no constructor"),
    ],
    ids=range(24),
)
def test_calls_that_fit_no_signature(call, text):
    with pytest.raises(TypeError) as error:
        call()
    said = str(error.value)
    assert said.startswith(text) and said.isprintable() and len(said) < 500, said


def test_grouped_heads_name_the_flag():
    torch = pytest.importorskip("torch")
    q, k = torch.zeros(1, 8, 4, 16, requires_grad=True), torch.zeros(1, 2, 4, 16)
    with pytest.raises(ValueError, match="give enable_gqa=True where 2 heads of key serve 8 of query"):
        attn.scaled_dot_product_attention(q, k, k)
    with pytest.raises(ValueError, match="leading dims that do not broadcast$"):
        attn.scaled_dot_product_attention(q, k.expand(3, 2, 4, 16)[:, :1].expand(3, 3, 4, 16), k)


# --- explain ----------------------------------------------------------------------------------------------------------


def test_padding_counts_where_there_is_some():
    words = "one two three four five six"
    table = np.random.default_rng(1).standard_normal((6, 16)).astype(np.float32)
    assert attn.explain(words, embedding=table)["x"].values.shape == (6, 16)
    assert attn.explain(["one two", "three four"], embedding=table[:4])["x"].values.shape == (2, 2, 16)
    with pytest.raises(ValueError, match="the text needs 5 ids, one of them for PAD; the embedding has 4 rows"):
        attn.explain(["one two", "three four", "one"], embedding=table[:4])
    with pytest.raises(ValueError, match="the text needs 6 ids; the embedding has 5 rows"):
        attn.explain(words, embedding=table[:5])


def test_transposed_matrices_are_recognised(random):
    of = lambda *sizes: random.random(sizes, dtype=np.float32)  # noqa: E731
    good = dict(w_query=of(3, 2), w_key=of(3, 2), w_value=of(3, 4))
    assert attn.explain("a b", **good)
    with pytest.raises(ValueError, match="the three look transposed"):
        attn.explain("a b", **{name: w.T for name, w in good.items()})
    with pytest.raises(ValueError, match="w_query, w_key and w_value look transposed"):
        attn.explain("a b", embedding=of(9, 3), w_query=of(2, 3), w_key=of(2, 3), w_value=of(2, 2))
    for name in ("w_key", "w_value"):
        with pytest.raises(ValueError, match=f"{name} has shape .* it looks transposed"):
            attn.explain("a b", **{**good, name: good[name].T})
    with pytest.raises(ValueError, match="embedding has shape .* it looks transposed"):
        attn.explain("a b", **good, embedding=of(3, 9))


def test_languages_by_their_other_names():
    for name in ("zh", "cn", "zh-CN", "zh_CN.UTF-8", "ZH", "Chinese", "中文"):
        title = attn.explain("a", language=name)["weights"].title
        assert title == attn.explain("a", language="zh")["weights"].title != "weights"
    for name in ("en", "en_US.UTF-8", "English"):
        assert attn.explain("a", language=name)["weights"].title == "weights"


def test_cut_words_without_words_is_a_mistake():
    for tokens in ({}, {"tokens": "auto"}, {"tokens": "characters"}):
        with pytest.raises(ValueError,
                           match='explain: cut_words is given and tokens is "(auto|characters)"; '
                                 'words are cut by it with tokens="words"'):
            attn.explain("a b", cut_words=str.split, **tokens)


def test_commas_that_vanish_are_told():
    assert attn.explain("Life is short, eat dessert first")["tokens"].source.endswith("commas left out: ,")
    assert attn.explain("我，你、他, 她", language="zh")["tokens"].source.endswith("略去标点：, ， 、")
    assert "left out" not in attn.explain("Life is short.")["tokens"].source
    both = attn.explain("a b", to="c, d")
    assert "left out" not in both["tokens"].source and both["tokens_to"].source == "commas left out: ,"
    kept = attn.explain("a, b", tokens="words", cut_words=lambda text: text.replace(",", " ,").split())
    assert kept["tokens"].rows == [["a", ",", "b"]] and "left out" not in kept["tokens"].source


# --- arrays that are none ---------------------------------------------------------------------------------------------


class Endless:
    calls = 0

    def __init__(self, call):
        self.call = call

    def __dlpack__(self, **options):
        Endless.calls += 1
        return self.call(self if Endless.calls % 2 else Endless(self.call))


@pytest.mark.parametrize(
    "call",
    [lambda x: attn.attention(x, x, x), attn.Mask.attend, attn.Bias.dense, attn.Score.general,
     lambda x: attn.attention(X, X, X, key_lengths=x), attn.ScoreTable, attn.Weights.rows],
    ids=range(7),
)
def test_a_dlpack_that_calls_attn_ends(call):
    Endless.calls = 0
    with pytest.raises((TypeError, ValueError), match="has a __dlpack__ that calls attn again and again"):
        call(Endless(call))
    assert Endless.calls < 100
    assert attn.attention(X, X, X).shape == X.shape


def test_a_dlpack_may_compute_with_attn():
    class Lazy:
        def __dlpack__(self, **options):
            return attn.attention(X, X, X).__dlpack__(**options)

        def __dlpack_device__(self):
            return (1, 0)

    assert same(attn.attention(Lazy(), X, X), attn.attention(attn.attention(X, X, X), X, X))


def test_torch_takes_lists_too():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    lengths = torch.tensor([6, 3])
    expected = attn.attention(x, x, x, key_lengths=lengths)
    for form in ([6, 3], (6, 3), range(6, 2, -3), lengths.to(torch.int8), lengths.to(torch.uint8), lengths.numpy(),
                 [torch.tensor(6), 3]):
        assert torch.equal(attn.attention(x, x, x, key_lengths=form), expected)
        q = x.clone().requires_grad_()
        attn.attention(q, x, x, key_lengths=form, weights="top_k(2)")[0].sum().backward()
        assert q.grad is not None
    with pytest.raises(TypeError, match="a number of key_lengths is a float"):
        attn.attention(x, x, x, key_lengths=[6.0, 3.0])
    compiled = torch.compile(lambda x: attn.attention(x, x, x, key_lengths=[6, 3], weights="top_k(2)"), backend="eager",
                             fullgraph=True)
    output, (largest, keys) = compiled(x)
    assert torch.equal(output, expected) and largest.shape == keys.shape == (2, 2, 6, 2)
    assert torch.equal(torch.func.vmap(lambda q: attn.attention(q, x, x, key_lengths=[6, 3]))(x[None])[0], expected)
    assert "torch" in sys.modules
