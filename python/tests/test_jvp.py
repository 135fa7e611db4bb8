# python/tests/test_jvp.py: forward mode: attn.attention_jvp, torch.func.jvp, dual tensors and products with second
# derivatives, against differences and the definition in torch operations.
import numpy as np
import pytest

import attn

torch = pytest.importorskip("torch")

import attn.torch
from attn.torch import _general_op, _unfused
from torch.autograd import forward_ad, gradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vmap

TIGHT = dict(rtol=1e-10, atol=1e-12)
ROWS = 5


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def by_definition(q, k, v):
    hides = torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool()
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(hides, -torch.inf).softmax(-1) @ v


OURS = {
    "sdpa": lambda q, k, v: attn.torch.scaled_dot_product_attention(q, k, v, is_causal=True),
    "attention": lambda q, k, v: attn.attention(q, k, v, mask="causal"),
}
SHAPE = (2, 2, ROWS, 4)
q, k, v, dq, dk, dv = (torch.randn(SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
                       for n in range(6))


def cubes(f, *rest):
    return lambda x: f(x, *rest).pow(3).sum()


USES = {
    "jvp": lambda f: jvp(f, (q, k, v), (dq, dk, dv)),
    "of one operand": lambda f: jvp(lambda q: f(q, k, v), (q,), (dq,)),
    "of one tensor": lambda f: jvp(lambda q: f(q, q, q), (q,), (dq,)),
    "jacfwd": lambda f: jacfwd(f, argnums=(0, 1, 2))(q, k, v),
    "hessian times a vector": lambda f: jvp(grad(cubes(f, k, v)), (q,), (dq,)),
    "of all operands": lambda f: jvp(lambda *x: grad(lambda *x: f(*x).pow(3).sum(), (0, 1, 2))(*x), (q, k, v),
                                     (dq, dk, dv)),
    "of mixed derivatives": lambda f: jvp(lambda k: grad(cubes(f, k, v))(q), (k,), (dk,)),
    "hessian": lambda f: hessian(cubes(f, k[:1, :1], v[:1, :1]))(q[:1, :1]),
    "gradient of a tangent": lambda f: grad(lambda *x: jvp(f, x, (dq, dk, dv))[1].pow(2).sum(), (0, 1, 2))(q, k, v),
    "gradient by a direction": lambda f: grad(lambda t: jvp(lambda q: f(q, k, v), (q,), (t,))[1].pow(2).sum())(dq),
    "batch of directions": lambda f: vmap(lambda x, t: jvp(lambda q: f(q, k, v), (x,), (t,))[1])(
        torch.stack([q, k]), torch.stack([dq, dk])),
}


def equal(ours, theirs):
    torch.testing.assert_close(ours, theirs, **TIGHT)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", OURS)
def test_transforms(name, use):
    equal(USES[use](OURS[name]), USES[use](by_definition))


@pytest.mark.parametrize("name", OURS)
def test_dual_tensors(name):
    f = OURS[name]
    expected = jvp(lambda q, k: by_definition(q, k, v), (q, k), (dq, dk))
    of_gradient = jvp(grad(cubes(by_definition, k, v)), (q,), (dq,))
    with forward_ad.dual_level():
        equal(tuple(forward_ad.unpack_dual(f(forward_ad.make_dual(q, dq), forward_ad.make_dual(k, dk), v))), expected)
        x = q.clone().requires_grad_()
        (g,) = torch.autograd.grad(cubes(f, k, v)(forward_ad.make_dual(x, dq)), x)
        equal(tuple(forward_ad.unpack_dual(g)), of_gradient)
        y = forward_ad.unpack_dual(f(forward_ad.make_dual(x, dq), k, v)).tangent
    equal(torch.autograd.grad(y.pow(2).sum(), x)[0],
          grad(lambda q: jvp(lambda q: by_definition(q, k, v), (q,), (dq,))[1].pow(2).sum())(q))
    assert gradcheck(f, [x[:1].clone().requires_grad_() for x in (q, k, v)], check_forward_ad=True)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_linearize():
    equal(linearize(OURS["attention"], q, k, v)[1](dq, dk, dv), jvp(by_definition, (q, k, v), (dq, dk, dv))[1])


@pytest.mark.parametrize("name", OURS)
def test_against_double_backward(name):
    f = OURS[name]
    x = q.clone().requires_grad_()
    (first,) = torch.autograd.grad(cubes(f, k, v)(x), x, create_graph=True)
    (expected,) = torch.autograd.grad(first, x, dq)
    equal(jvp(grad(cubes(f, k, v)), (q,), (dq,))[1], expected)


def test_multihead_attention():
    module = attn.torch.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    x, t = draw(2, ROWS, 8), draw(2, ROWS, 8)
    for needed in (False, True):
        run = lambda x: module(x, x, x, need_weights=needed)  # noqa: B023
        _, moved = jvp(lambda x: run(x)[0], (x,), (t,))
        near = (run(x + 1e-6 * t)[0] - run(x - 1e-6 * t)[0]) / 2e-6
        torch.testing.assert_close(moved, near, rtol=1e-6, atol=1e-8)
    equal(jacfwd(lambda x: module(x, x, x, need_weights=False)[0])(x[:1]),
          jacrev(lambda x: module(x, x, x, need_weights=False)[0])(x[:1]))


OPTIONS = {
    "softcap": dict(softcap=2.0),
    "window": dict(mask="window(2, 1)"),
    "dropout": dict(dropout_p=0.4, dropout_seed=7),
    "score_mod": dict(score_mod=lambda s, b, h, i, j: attn.tanh(s) * 2 - 0.3 * (i - j)),
    "temperature": dict(temperature=0.7),
    "lengths": dict(key_lengths=[3, 5], query_lengths=[5, 2]),
}


def near(f, x, t, h=1e-6):
    return (f(*(a + h * b for a, b in zip(x, t))) - f(*(a - h * b for a, b in zip(x, t)))) / (2 * h)


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    run = lambda *x: attn.attention(*x, **OPTIONS[name])
    output, moved = jvp(run, (q, k, v), (dq, dk, dv))
    expected = near(run, (q, k, v), (dq, dk, dv))
    assert torch.equal(output, run(q, k, v))
    torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-8)
    ours = attn.attention_jvp(*(x.numpy() for x in (q, k, v, dq, dk, dv)), **OPTIONS[name])
    assert np.array_equal(ours[0], output.numpy()) and np.array_equal(ours[1], moved.numpy())


def test_bias_sinks_and_logsumexp():
    bias, sinks, dbias, dsinks = draw(2, ROWS, ROWS), draw(2), draw(2, ROWS, ROWS), draw(2)
    run = lambda q, bias, sinks: attn.attention(q, k, v, bias=bias, sinks=sinks, return_logsumexp=True)
    (output, lse), (moved, of_lse) = jvp(run, (q, bias, sinks), (dq, dbias, dsinks))
    for ours, n in ((moved, 0), (of_lse, 1)):
        expected = near(lambda *x: run(*x)[n], (q, bias, sinks), (dq, dbias, dsinks))  # noqa: B023
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-8)
    found = attn.attention_jvp(q, k, v, dq, bias=bias, sinks=sinks, bias_tangent=dbias, sinks_tangent=dsinks,
                               return_logsumexp=True)
    for ours, theirs in zip(found, (output, moved, lse, of_lse)):
        assert torch.equal(ours, theirs)


def test_second_derivatives_take_the_fused_passes(monkeypatch):
    def refuse(*_):
        raise AssertionError("the definition with whole matrices")

    f = OURS["sdpa"]
    with monkeypatch.context() as patch:
        patch.setattr(_unfused, "gradients", refuse)
        expected = jvp(grad(cubes(by_definition, k, v)), (q,), (dq,))[1]
        equal(jvp(grad(cubes(f, k, v)), (q,), (dq,))[1], expected)
        x = q.clone().requires_grad_()
        (first,) = torch.autograd.grad(cubes(f, k, v)(x), x, create_graph=True)
        equal(torch.autograd.grad(first, x, dq)[0], expected)
    found, fused = [], _general_op._by_tangents
    monkeypatch.setattr(_general_op, "_by_tangents", lambda *x: found.append(fused(*x)) or found[-1])
    for options, there in ((dict(mask="causal", softcap=2.0), True), (OPTIONS["score_mod"], False)):
        run = lambda q: attn.attention(q, k, v, **options).pow(3).sum()  # noqa: B023
        moved = jvp(grad(run), (q,), (dq,))[1]
        torch.testing.assert_close(moved, near(grad(run), (q,), (dq,)), rtol=1e-6, atol=1e-7)
        assert (found[-1] is not None) is there


def test_third_derivatives():
    q, k, v = (torch.randn(1, 2, ROWS, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
               for n in range(3))
    third = lambda f: grad(lambda q, t: jvp(grad(cubes(f, k, v)), (q,), (t,))[1].pow(2).sum(), (0, 1))(q, dq[:1])
    equal(third(OURS["sdpa"]), third(by_definition))
    x = q.clone().requires_grad_()

    def by_autograd(f):
        g = cubes(f, k, v)(x)
        for _ in range(2):
            (g,) = torch.autograd.grad(g, x, create_graph=True)
            g = g.pow(2).sum()
        return torch.autograd.grad(g, x)[0]

    equal(by_autograd(OURS["sdpa"]), by_autograd(by_definition))


def test_second_derivatives_of_half_are_those_of_float32_rounded():
    for dtype in (torch.bfloat16, torch.float16):
        half = [x.to(dtype) for x in (q, k, v, dq, dk, dv)]
        wide = [x.float() for x in half]
        over = lambda x: jvp(lambda *y: grad(lambda *z: OURS["sdpa"](*z).float().sum(), (0, 1, 2))(*y), tuple(x[:3]),
                             tuple(x[3:]))[1]
        for ours, theirs in zip(over(half), over(wide)):
            assert ours.dtype is dtype and torch.equal(ours, theirs.to(dtype))


def test_half():
    for dtype in (torch.bfloat16, torch.float16):
        half = [x.to(dtype) for x in (q, k, v, dq, dk, dv)]
        truth = jvp(by_definition, tuple(x.double() for x in half[:3]), tuple(x.double() for x in half[3:]))[1]
        for f in OURS.values():
            y, moved = jvp(f, tuple(half[:3]), tuple(half[3:]))
            assert moved.dtype is dtype and torch.equal(y, f(*half[:3]))
            # rounded once: half a unit in the last place, and the error of float32
            eps = torch.finfo(dtype).eps
            assert ((moved.double() - truth).abs() <= eps / 2 * truth.abs() + 64 * 2**-23 * truth.abs().max()).all()


def test_what_is_refused():
    with pytest.raises(NotImplementedError, match="jvp of jvp"):
        jvp(lambda x: jvp(lambda x: attn.attention(x, k, v), (x,), (dq,))[1], (q,), (dq,))
    with pytest.raises(ValueError, match="weights are requested"):
        jvp(lambda x: attn.attention(x, k, v, weights="full"), (q,), (dq,))
    table = torch.ones(2, dtype=torch.float64)
    with pytest.raises(ValueError, match="an array of score_mod has a tangent"):
        with forward_ad.dual_level():
            dual = attn.ScoreTable(forward_ad.make_dual(table, table))
            attn.attention(q, k, v, score_mod=lambda s, b, h, i, j: s * dual[h])
    for wrong, text in ((dict(q_tangent=dq[:1]), r"attention_jvp: the tangent of q has shape \[1, 2, 5, 4\]; it must"),
                        (dict(v_tangent=dv.float()), "attention_jvp: the tangent of v is"),
                        (dict(bias_tangent=dq), "attention_jvp: 1 bias tangents are given; the bias has 0 terms"),
                        (dict(sinks_tangent=dq), "attention_jvp: the tangent of sinks is given and there are none"),
                        (dict(weights="full"), "attention_jvp: weights is given"),
                        (dict(return_plan=True), "attention_jvp: return_plan is given, which attn.attention returns"),
                        (dict(is_causal=True), 'attention_jvp: .*mask="causal"')):
        with pytest.raises((TypeError, ValueError), match=text):
            attn.attention_jvp(q, k, v, **wrong)


def test_every_input_of_attention_jvp_that_wants_a_gradient_is_refused():
    learn = lambda x: x.clone().requires_grad_()
    table = attn.ScoreTable(learn(slopes))
    for options in (dict(q_tangent=learn(dq)), dict(sinks=learn(slopes)), dict(bias=learn(bias)),
                    dict(bias=attn.Bias.dense(learn(bias))), dict(bias=bias, bias_tangent=[learn(dbias)]),
                    dict(bias=bias, bias_tangent=learn(dbias)), dict(sinks=slopes, sinks_tangent=learn(dslopes)),
                    dict(score_mod=lambda s, b, h, i, j: s * table[h])):
        with pytest.raises(TypeError, match="^attention_jvp: a gradient, a transform or a graph would be lost; use"):
            attn.attention_jvp(q, k, v, **{"q_tangent": dq, **options})
        with torch.no_grad():
            attn.attention_jvp(q, k, v, **{"q_tangent": dq, **options})
    with pytest.raises(TypeError, match="torch.func.jvp"):
        attn.attention_jvp(learn(q), k, v, dq)


bias, dbias = (torch.randn(2, ROWS, ROWS, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
               for n in (6, 7))
slopes, dslopes = bias[0, 0, :2].abs(), dbias[0, 0, :2]
OF_A_BIAS = {
    "dense": (lambda x: attn.Bias.dense(x), bias, dbias),
    "alibi": (lambda x: attn.Bias.alibi(x), slopes, dslopes),
    "relative": (lambda x: attn.Bias.relative(x, max_distance=8), draw(8, 2), draw(8, 2)),
    "sum": (lambda x: attn.Bias.dense(bias) + attn.Bias.alibi(x), slopes, dslopes),
}


@pytest.mark.parametrize("name", OF_A_BIAS)
@pytest.mark.parametrize("moves_q", [False, True])
def test_tensors_inside_a_bias(name, moves_q):
    make, x, t = OF_A_BIAS[name]
    along = dq if moves_q else torch.zeros_like(q)
    expected = near(lambda q, x: attn.attention(q, k, v, bias=make(x)), (q, x), (along, t))
    with forward_ad.dual_level():
        dual = make(forward_ad.make_dual(x, t))
        query = forward_ad.make_dual(q, dq) if moves_q else q
        output, moved = forward_ad.unpack_dual(attn.attention(query, k, v, bias=dual))
        learned = forward_ad.make_dual(x.clone().requires_grad_(), t)
        other = forward_ad.unpack_dual(attn.attention(query, k, v, bias=make(learned))).tangent
    assert torch.equal(output, attn.attention(q, k, v, bias=make(x))) and torch.equal(moved, other)
    torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-8)


def test_tangents_inside_a_score_are_refused():
    w = draw(4, 4)
    with forward_ad.dual_level():
        x = forward_ad.make_dual(w, w)
        for score in (attn.Score.general(x), attn.Score.additive(x, w, w[0]), attn.Score.additive(w, w, x[0])):
            with pytest.raises(ValueError, match="the score is general or additive; it must be"):
                attn.attention(q, k, v, score=score)
        with pytest.raises(ValueError, match="the score is general or additive; it must be"):
            attn.additive_attention(q, k, v, w, x, w[0])
        table = attn.ScoreTable(x[0, :2])
        for mod in (lambda s, b, h, i, j: s * table[h], attn.ScoreExpression("s * t[h]", {"t": x[0, :2]})):
            with pytest.raises(ValueError, match="an array of score_mod has a tangent"):
                attn.attention(q, k, v, score_mod=mod)


def test_tangents_inside_functions_of_flex_attention():
    call = attn.torch.flex_attention
    uses = {
        "dense": (lambda x: lambda s, b, h, i, j: s + x[h, i, j], bias, dbias),
        "parts": (lambda x: lambda s, b, h, i, j: s * x[h][i] + x[1, i], bias[:, 0], dbias[:, 0]),
        "number": (lambda x: lambda s, b, h, i, j: torch.tanh(s) * x, bias[0, 0, 0], dbias[0, 0, 0]),
    }
    for make, x, t in uses.values():
        expected = near(lambda q, x: call(q, k, v, make(x)), (q, x), (dq, t))  # noqa: B023
        with forward_ad.dual_level(), pytest.warns(UserWarning, match="a tensor that has a tangent"):
            found = call(forward_ad.make_dual(q, dq), k, v, make(forward_ad.make_dual(x, t)))
            moved = forward_ad.unpack_dual(found).tangent
        torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-8)
