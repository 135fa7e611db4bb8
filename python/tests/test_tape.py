# python/tests/test_tape.py: recorded calls: gradients and gradients of gradients against
# central differences in float64.
import numpy as np
import pytest

import attn

OPTIONS = attn._core.attention_options


def options(**given):
    return tuple(given.pop(name, None) for name in OPTIONS)


def difference(f, x, step=1e-6):
    """The gradient of a number by central differences, element by element."""
    result = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        before = x[place]
        x[place] = before + step
        up = f()
        x[place] = before - step
        down = f()
        x[place] = before
        result[place] = (up - down) / (2 * step)
    return result


def calls(random):
    """Options and the arrays, beside q, k, v, that have gradients."""
    slope, table, dense = random.random(2), random.standard_normal((8, 2)), random.standard_normal((1, 2, 3, 5))
    sinks, w, gain = random.standard_normal(2), random.standard_normal((4, 4)), random.random(2)
    yield {}, []
    yield {"mask": attn.Mask.causal("bottom_right"), "softcap": 2.0, "sinks": sinks, "temperature": 1.5}, [sinks]
    bias = (attn.Bias.alibi(slope, "bottom_right") + attn.Bias.dense(dense)
            + attn.Bias.relative(table, max_distance=16, align="bottom_right"))
    yield {"bias": bias}, [slope, dense, table]
    yield {"score": attn.Score.general(w)}, [w]
    expression = attn.ScoreExpression(lambda s, b, h, i, j: attn.tanh(s) * gain[h] + (i - j)
                                      * 0.1).aligned("bottom_right")
    yield {"score_mod": expression}, [gain]


@pytest.mark.parametrize("number", range(5))
def test_gradients(random, number):
    given, more = list(calls(random))[number]
    q, k, v = (random.standard_normal((1, 2, 3, 4)), random.standard_normal((1, 2, 5, 4)),
               random.standard_normal((1, 2, 5, 4)))
    weight, weight_lse = random.standard_normal((1, 2, 3, 4)), random.standard_normal((1, 2, 3))
    inputs = [q, k, v, *more]

    def loss():
        output, logsumexp = attn.attention(q, k, v, return_logsumexp=True, **given)
        return (output * weight).sum() + (logsumexp * weight_lse).sum()

    arguments = (q, k, v, options(return_logsumexp=True, **given))
    assert all(a is b for a, b in zip(attn._core.attention_inputs(*arguments), inputs, strict=True))
    _, tape = attn._core.attention_recorded(*arguments)
    gradients = tape.backward([weight, None, weight_lse])
    assert len(gradients) == len(inputs)
    for x, gradient in zip(inputs, gradients, strict=True):
        assert gradient.shape == x.shape
        assert np.abs(gradient - difference(loss, x)).max() < 1e-7
    only = attn._core.attention_recorded(*arguments,
                                         [n == 1 for n in range(len(inputs))])[1].backward([weight, None, weight_lse])
    assert len(only) == 1 and np.array_equal(only[0], gradients[1])


def test_gradients_of_gradients(random):
    q, k, v, weight = (random.standard_normal((1, 1, 3, 4)) for _ in range(4))
    more = [random.standard_normal((1, 1, 3, 4)) for _ in range(3)]

    def first():
        return attn._core.attention_recorded(q, k, v, options(mask=attn.Mask.causal()))[1]

    def loss():
        return sum((g * m).sum() for g, m in zip(first().backward([weight, None, None]), more, strict=True))

    gradients, tape = first().backward([weight, None, None], True)
    assert len(gradients) == 3
    for x, gradient in zip([q, k, v, weight], tape.backward(more), strict=True):
        assert np.abs(gradient - difference(loss, x)).max() < 1e-6


def test_a_wrong_number_of_gradients_is_refused(random):
    q = random.standard_normal((1, 1, 3, 4))
    _, tape = attn._core.attention_recorded(q, q, q, options())
    with pytest.raises(ValueError, match="3 outputs"):
        tape.backward([q])
    with pytest.raises(ValueError, match="3 inputs"):
        attn._core.attention_recorded(q, q, q, options(), [True])
