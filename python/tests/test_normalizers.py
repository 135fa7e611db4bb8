# python/tests/test_normalizers.py: normalizers other than softmax and functions of the weight: against plain forms in
# NumPy and torch, and against the package entmax.
import attn
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from literature_normalizers import plain_entmax15, plain_sparsemax  # noqa: E402

from error_rule import assert_as_close_as  # noqa: E402

NAMES = ("softmax", "softmax1", "sigmoid", "sigmoid(-1.5)", "sparsemax", "entmax15", "relu_squared",
         "relu_squared(0.3)")


def _drawn(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _plain_weights(name, s, seen):
    s = s.masked_fill(~seen, -1e4)
    n = s.shape[-1]
    match name:
        case "softmax": w = s.softmax(-1)
        case "softmax1": w = torch.cat((s, torch.zeros_like(s[..., :1])), -1).softmax(-1)[..., :-1]
        case "sigmoid": w = torch.sigmoid(s - np.log(n))
        case "sigmoid(-1.5)": w = torch.sigmoid(s - 1.5)
        case "sparsemax": w = plain_sparsemax(s)
        case "entmax15": w = plain_entmax15(s)
        case "relu_squared": w = torch.relu(s).square() / n
        case _: w = torch.relu(s).square() * 0.3
    return w * seen


def _plain(name, q, k, v, factor=None):
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    w = _plain_weights(name, q @ k.mT / q.shape[-1] ** 0.5, seen)
    return (w if factor is None else w * (1 + factor[:, None] * w)) @ v


def _ours(name, q, k, v, factor=None):
    mod = None if factor is None else lambda w, b, h, i, j: w * (1.0 + factor[h, j] * w)
    return attn.attention(q, k, v, mask="causal(bottom_right)", normalizer=name, weight_mod=mod)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("modified", [False, True])
def test_values_and_gradients_keep_the_error_rule(name, modified):
    shapes = [(2, 3, 40, 16), (2, 3, 70, 16), (2, 3, 70, 16)] + [(3, 70)] * modified
    drawn = [_drawn(*shape, seed=n) for n, shape in enumerate(shapes)]

    def results(function, dtype):
        inputs = [x.to(dtype).requires_grad_() for x in drawn]
        y = function(name, *inputs)
        return [y, *torch.autograd.grad(y, inputs, _drawn(*y.shape, seed=9).to(dtype))]

    for ours, plain, truth in zip(results(_ours, torch.float32), results(_plain, torch.float32),
                                  results(_plain, torch.float64)):
        assert_as_close_as(ours, plain, truth, name)


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
def test_weights_and_gradients_are_those_of_the_package_entmax(name):
    entmax = pytest.importorskip("entmax")
    scores = _drawn(1, 2, 30, 50).mul(2).requires_grad_()
    theirs = getattr(entmax, name)(scores, dim=-1)
    direction = _drawn(*scores.shape, seed=3)
    (expected,) = torch.autograd.grad(theirs, scores, direction)
    # scores as they are: q the rows of the scores, k the unit vectors
    q = scores.detach().clone().requires_grad_()
    units = torch.eye(50, dtype=torch.float64).expand(1, 2, 50, 50).contiguous()
    ours = attn.attention(q, units, units, scale=1.0, normalizer=name)
    assert torch.equal(ours == 0, theirs == 0)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(ours, q, direction)[0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck_and_its_gradients(name):
    q, k, v, factor = (_drawn(*shape, seed=n).requires_grad_()
                       for n, shape in enumerate([(1, 2, 4, 3), (1, 2, 5, 3), (1, 2, 5, 2), (2, 5)]))
    assert torch.autograd.gradcheck(lambda *x: _ours(name, *x), (q, k, v, factor))
    assert torch.autograd.gradgradcheck(lambda *x: _ours(name, *x), (q, k, v, factor))


@pytest.mark.parametrize("name", [*NAMES, "relative product"])
@pytest.mark.parametrize("modified", [False, True])
def test_second_derivatives_under_torch_func(name, modified):
    q, k, v, factor, r = (_drawn(*shape, seed=n) for n, shape in enumerate([(1, 2, 3, 3), (1, 2, 4, 3), (1, 2, 4, 2),
                                                                           (2, 4), (5, 3)]))

    def loss(q):
        if name != "relative product":
            return _ours(name, q, k, v, factor if modified else None).square().sum()
        bias = attn.Bias.relative_product(r, attn.RelativeIndex.distance(2, 2), align="bottom_right")
        return attn.attention(q, k, v, bias=bias).square().sum()

    found = torch.func.jacrev(torch.func.grad(loss))(q)
    torch.testing.assert_close(found, torch.autograd.functional.hessian(loss, q), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numpy_arrays(name, dtype):
    q, k, v = (_drawn(1, 2, rows, 8, seed=rows).numpy().astype(dtype) for rows in (9, 12, 13))
    v = v[:, :, :12]
    output, weights = attn.attention(q, k, v, mask="causal(bottom_right)", normalizer=name, weights="full")
    truth = _plain(name, *(torch.from_numpy(x.astype(np.float64)) for x in (q, k, v)))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(output.astype(np.float64), truth.numpy(), rtol=0,
                               atol=64 * eps * float(truth.abs().max()))
    np.testing.assert_allclose(weights.astype(np.float64) @ v.astype(np.float64), output.astype(np.float64), rtol=0,
                               atol=16 * eps * max(1.0, float(truth.abs().max())))


def test_mistakes_are_one_line():
    x = np.ones((1, 1, 2, 2), np.float32)
    with pytest.raises(ValueError, match=r'^attention: Normalizer::parse: "soft"; it must be softmax, softmax1'):
        attn.attention(x, x, x, normalizer="soft")
    with pytest.raises(TypeError, match=r"^attention: normalizer is a float; a text is needed"):
        attn.attention(x, x, x, normalizer=1.5)
    with pytest.raises(ValueError, match=r"^attention: sinks are given with the normalizer entmax15"):
        attn.attention(x, x, x, normalizer="entmax15", sinks=np.zeros(1, np.float32))
    with pytest.raises(ValueError, match=r'^attention: weight_mod "s > 0" is a condition'):
        attn.attention(x, x, x, weight_mod=lambda w, b, h, i, j: w > 0)


def test_a_softmax_without_a_function_has_the_bits_of_the_usual_call():
    x = _drawn(1, 2, 30, 8).float()
    assert torch.equal(attn.attention(x, x, x, normalizer="softmax"), attn.attention(x, x, x))
    with pytest.raises(ValueError, match="return_logsumexp is given; weights of the normalizer sparsemax have no"):
        attn.attention(x, x, x, normalizer="sparsemax", return_logsumexp=True)
