# python/tests/test_torch_transforms.py: torch.func over linear, derivatives carried forward, batches of gradients.
import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

F = torch.nn.functional
TIGHT = dict(rtol=1e-10, atol=1e-12)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def by_definition(q, k, v, mask=None, causal=False):
    return torch._scaled_dot_product_attention_math(q, k, v, mask, 0.0, causal)[0]


X, W, B = (3, 7, 4), (5, 4), (5,)
LINEAR = {
    "grad": lambda f, x, w, b: grad(lambda w: f(x, w, b).square().sum())(w),
    "per-sample gradients": lambda f, x, w, b: vmap(grad(lambda w, x: f(x, w, b).square().sum()), (None, 0))(w, x),
    "a gradient of a vmap": lambda f, x, w, b: grad(lambda w: vmap(lambda x: f(x, w, b))(x).square().sum())(w),
    "vmap, rows": lambda f, x, w, b: vmap(lambda x: f(x, w, b))(x[0]),
    "vmap, another dim": lambda f, x, w, b: vmap(lambda x: f(x, w, None), in_dims=1, out_dims=1)(x),
    "vmap of none": lambda f, x, w, b: vmap(lambda x: f(x, w, b))(x[:0]),
    "an ensemble": lambda f, x, w, b: vmap(f, (None, 0, 0))(x, torch.stack([w, 2 * w]), torch.stack([b, -b])),
    "jvp": lambda f, x, w, b: jvp(f, (x, w, b), (x.sin(), w.cos(), b))[1],
    "hessian": lambda f, x, w, b: hessian(lambda w: f(x, w, b).pow(3).sum())(w),
    "jacrev of jacrev": lambda f, x, w, b: jacrev(jacrev(lambda w: f(x, w, b).pow(3).sum()))(w),
}


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", LINEAR)
def test_linear(name):
    x, w, b = draw(*X), draw(*W), draw(*B)
    torch.testing.assert_close(LINEAR[name](attn.torch.linear, x, w, b), LINEAR[name](F.linear, x, w, b), **TIGHT)


def test_forward_derivatives_of_attention():
    q, k, v, dq, dk, dv = (draw(2, 3, 6, 4) for _ in range(6))
    mask = torch.rand(6, 6) > 0.3
    added = torch.zeros(6, 6, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    ours = lambda q, k, v: attn.torch.scaled_dot_product_attention(q, k, v, mask)
    theirs = lambda q, k, v: by_definition(q, k, v, added)
    expected = jvp(theirs, (q, k, v), (dq, dk, dv))
    for a, b in zip(jvp(ours, (q, k, v), (dq, dk, dv)), expected):
        torch.testing.assert_close(a, b, **TIGHT)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, dx) for x, dx in zip((q, k, v), (dq, dk, dv))]
        torch.testing.assert_close(forward_ad.unpack_dual(ours(*duals)).tangent, expected[1], **TIGHT)
        with attn.torch.patch(linear=True):
            torch.testing.assert_close(forward_ad.unpack_dual(F.scaled_dot_product_attention(*duals, mask)).tangent,
                                       expected[1], **TIGHT)
            layer = torch.nn.Linear(4, 2, dtype=torch.float64)
            torch.testing.assert_close(forward_ad.unpack_dual(layer(duals[0])).tangent, dq @ layer.weight.T, **TIGHT)
    one = lambda f: lambda q: f(q, k[:1, :1], v[:1, :1]).square().sum()
    causal = lambda *x: attn.torch.scaled_dot_product_attention(*x, is_causal=True)
    torch.testing.assert_close(hessian(one(causal))(q[:1, :1]),
                               hessian(one(lambda *x: by_definition(*x, causal=True)))(q[:1, :1]), **TIGHT)


def test_forward_derivatives_of_the_module():
    module = attn.torch.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    x = draw(2, 5, 8)
    for n in range(2):
        call = lambda x: module(x, x, x)[n]
        torch.testing.assert_close(jacfwd(call)(x), jacrev(call)(x), **TIGHT)


def test_dropout_forward():
    q, k, v, dq = (draw(1, 2, 5, 4) for _ in range(4))

    def run(q):
        torch.manual_seed(3)
        return attn.torch.scaled_dot_product_attention(q, k, v, dropout_p=0.4)

    y, dy = jvp(run, (q,), (dq,))
    torch.testing.assert_close(y, run(q), **TIGHT)
    torch.testing.assert_close(dy, (run(q + 1e-6 * dq) - run(q - 1e-6 * dq)) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.filterwarnings("error::UserWarning")
def test_batches_of_dropout():
    """Each item draws its own; its gradients through the output and the weights are those of what it dropped."""
    module = attn.torch.MultiheadAttention(4, 2, dropout=0.4, batch_first=True, dtype=torch.float64)
    x, w = draw(3, 2, 5, 4), draw(2, 5, 5)

    def value(x):
        y, weights = module(x, x, x)
        return (weights * w).sum() + y.sin().sum(), weights

    grads, weights = vmap(grad(value, has_aux=True), randomness="different")(x)
    assert not torch.equal(weights[0] == 0, weights[1] == 0) and grads.isfinite().all()
    same = vmap(grad(value, has_aux=True), randomness="same")(x[:1].expand(2, -1, -1, -1))[0]
    assert torch.equal(same[0], same[1])


def test_forward_derivatives_of_a_compiled_function():
    x, w, q = draw(3, 4), draw(5, 4), draw(1, 2, 3, 4)
    through = lambda f: torch.compile(lambda x: jvp(f, (x,), (x,))[1], backend="aot_eager")
    torch.testing.assert_close(through(lambda x: attn.torch.linear(x, w))(x), x @ w.T, **TIGHT)
    expected = jvp(lambda q: by_definition(q, q, q), (q,), (q,))[1]
    torch.testing.assert_close(through(lambda q: attn.torch.scaled_dot_product_attention(q, q, q))(q), expected,
                               **TIGHT)


def test_forward_derivatives_of_a_backward_pass():
    q, w = draw(1, 2, 3, 4).requires_grad_(), draw(5, 4)
    flow, tangent = draw(1, 2, 3, 4), draw(1, 2, 3, 4)
    for ours, theirs in (
        (lambda q: attn.torch.linear(q, w) @ w, lambda q: F.linear(q, w) @ w),
        (lambda q: attn.torch.scaled_dot_product_attention(q, q, q), lambda q: by_definition(q, q, q)),
    ):
        results = [f(q) for f in (ours, theirs)]
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(flow, tangent)
            found = [forward_ad.unpack_dual(torch.autograd.grad(y, q, dual)[0]).tangent for y in results]
        torch.testing.assert_close(*found, **TIGHT)


@pytest.mark.parametrize("again", [False, True])
def test_batches_of_gradients(again):
    q, k, v = (draw(1, 2, 6, 4).requires_grad_() for _ in range(3))
    w = draw(5, 4).requires_grad_()
    for ours, theirs, inputs in (
        (attn.torch.scaled_dot_product_attention, by_definition, (q, k, v)),
        (attn.torch.linear, F.linear, (q, w)),
    ):
        results = [f(*inputs) for f in (ours, theirs)]
        grads = draw(3, *results[0].shape)
        found = [torch.autograd.grad(y, inputs, grads, is_grads_batched=True, create_graph=again) for y in results]
        torch.testing.assert_close(*found, **TIGHT)
    with pytest.raises(NotImplementedError, match="batch of gradients"):
        torch.autograd.grad(attn.attention(q, k, v), q, draw(3, *q.shape), is_grads_batched=True)


def test_per_sample_gradients_of_a_patched_module():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    parameters, x = dict(layer.named_parameters()), torch.randn(3, 5, 8)
    target = torch.randn(5, 8)
    loss = lambda p, x: (functional_call(layer, p, (x,)) - target).square().sum()
    expected = vmap(grad(loss), (None, 0))(parameters, x)
    with attn.torch.patch(linear=True):
        torch.testing.assert_close(vmap(grad(loss), (None, 0))(parameters, x), expected, rtol=1e-4, atol=1e-4)


def test_a_mask_that_changes_between_the_passes_is_an_error():
    x, seen = torch.randn(1, 2, 3, 4), torch.ones(3, 3, dtype=torch.bool)
    mask = attn.Mask.attend(seen)
    y, pull = torch.func.vjp(lambda q: attn.attention(q, q, q, mask=mask), x)
    pull(torch.ones_like(y))
    seen[0, 1] = False
    with pytest.raises(RuntimeError, match="attention: the array of mask of shape .* was changed in place"):
        pull(torch.ones_like(y))


COMPILED = {
    "scaled_dot_product_attention": lambda q, k: attn.torch.scaled_dot_product_attention(q, k, k, is_causal=True),
    "attention": lambda q, k: attn.attention(q, k, k, softcap=2.0),
    "linear": lambda q, k: attn.torch.linear(q, k[0, 0]),
}


@pytest.mark.parametrize("name", COMPILED)
def test_transforms_inside_a_compiled_function(name):
    """grad, vmap and both of each other, in one graph."""
    q, k = draw(2, 1, 2, 5, 4), draw(1, 2, 5, 4)
    value = lambda q, k: COMPILED[name](q, k).square().sum()
    for form in (lambda q: grad(value)(q[0], k), lambda q: grad(value, argnums=1)(q[0], k),
                 lambda q: vmap(lambda q: COMPILED[name](q, k))(q),
                 lambda q: vmap(grad(value), in_dims=(0, None))(q, k),
                 lambda q: grad(lambda q: grad(value)(q, k).square().sum())(q[0])):
        torch._dynamo.reset()
        assert torch.allclose(torch.compile(form, fullgraph=True, backend="aot_eager")(q), form(q), rtol=1e-12)
