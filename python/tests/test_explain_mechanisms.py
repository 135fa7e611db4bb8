# python/tests/test_explain_mechanisms.py: attn.explain of relative products, normalizers and functions of the weight,
# and of linear attention, latent attention and forward mode: the numbers of the package's own calls.
import numpy as np
import pytest

import attn

TEXT = "Life is short eat dessert first"


def same(a, b):
    return np.array_equal(np.asarray(a), np.asarray(b))


def operands(explanation):
    return [explanation[name].values for name in ("q", "k", "v")]


def test_relative_products():
    told = attn.explain(TEXT, relative="distance(2, 2) + log_buckets(4, 8) of_keys scale=0.5", heads=2, mask="causal")
    tables = {step.name: step.values for step in told.parameters}
    bias = (attn.Bias.relative_product(tables["relative_table"], attn.RelativeIndex.distance(2, 2))
            + attn.Bias.relative_product(tables["relative_table_2"], attn.RelativeIndex.log_buckets(4, 8), of_keys=True,
                                         scale=0.5))
    q, k, v = (x[None] for x in operands(told))
    assert same(told["context"].values[None], attn.attention(q, k, v, bias=bias, mask="causal"))
    assert told["relative_rows"].values.dtype == np.int64
    assert told["relative_2"].operation == "read_table_of_keys" and told["relative_2"].operand == 0.5


@pytest.mark.parametrize("normalizer", ["softmax1", "sigmoid", "sparsemax", "entmax15", "relu_squared"])
def test_normalizers_and_functions_of_the_weight(normalizer):
    def local(w, b, h, i, j):
        return w * attn.exp(-0.5 * (i - j) * (i - j))

    told = attn.explain(TEXT, normalizer=normalizer, weight_mod=local, temperature=0.1)
    result = attn.attention(*operands(told), normalizer=normalizer, weight_mod=local, temperature=0.1)
    assert same(told["context"].values, result)
    assert "weights_modified" in told and told.options == {}
    several = attn.explain([TEXT, "a b"], normalizer=normalizer)
    assert several["alone"].values.tolist() == [1, 1]
    assert several.svg().startswith("<svg")


def test_linear_latent_and_tangent():
    for rule in ("plain", "decay", "delta", "gated_delta"):
        told = attn.explain(TEXT, linear=rule, query=2)
        assert same(told["read"].values[0], told["context"].values[2])
    told = attn.explain(TEXT, latent=4, heads=2)
    assert told["latent"].values.shape == (6, 4) and "expanded" in told
    told = attn.explain(TEXT, tangent=True)
    along = [told[f"{name}_tangent"].values for name in "qkv"]
    assert same(told["context_tangent"].values, attn.attention_jvp(*operands(told), *along)[1])


def test_mistakes_are_one_line():
    for options, said in [
        (dict(relative="distance(2)"), r'explain: relative: "distance\(2\)": column 11, at "\)": two numbers were exp'),
        (dict(relative=3), "explain: relative is an? int"),
        (dict(normalizer="sparsmax"), 'explain: Normalizer::parse: "sparsmax"'),
        (dict(normalizer=3), "explain: normalizer is a int; a text is needed"),
        (dict(linear="gated"), 'explain: linear '),
        (dict(linear="delta", latent=4), "explain: linear and latent do not go together"),
        (dict(tangent=True, normalizer="sparsemax"),
         "explain: tangent and relative, normalizer or weight_mod do not go"),
        (dict(weight_mod="s * 2", gradients=True), "explain: a function of the weight has no option gradients"),
        (dict(latent=4, softcap=2.0), "explain: latent attention has no option softcap; leave it out"),
    ]:
        with pytest.raises((ValueError, TypeError), match=said) as caught:
            attn.explain(TEXT, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="explain: tangent takes one text, and no list"):
        attn.explain([TEXT, "a"], tangent=True)
    with pytest.raises(ValueError, match="Explanation.html: the page shows softmax attention"):
        attn.explain(TEXT, linear="plain").html()
