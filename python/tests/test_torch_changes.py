# python/tests/test_torch_changes.py: what is changed between the passes: an error, or the gradients of what the call
# read; never those of something else.
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch

F = torch.nn.functional
X = np.random.default_rng(0).standard_normal((2, 2, 5, 4)).astype(np.float32)
OTHERS = X[:, :, ::-1].copy()
NOTICED = "was changed in place after the call|modified by an inplace operation"


class Foreign:
    """An array of some other library."""

    def __init__(self, x):
        self.memory = x

    def __dlpack__(self, **_):
        return self.memory.__dlpack__()

    def __dlpack_device__(self):
        return self.memory.__dlpack_device__()

    dtype = property(lambda self: self.memory.dtype)
    shape = property(lambda self: self.memory.shape)
    ndim = property(lambda self: self.memory.ndim)


class Source:
    """Where arrays of a call come from, and how they are changed afterwards."""

    def __init__(self, name):
        self.name, self.made = name, []

    def __call__(self, x):
        x = np.array(x)
        if self.name in ("NumPy", "DLPack"):
            self.made.append(x)
            return x if self.name == "NumPy" else Foreign(x)
        with torch.inference_mode(self.name == "inference"):
            x = torch.from_numpy(x).clone()
        self.made.append(x)
        return x

    def change(self):
        with torch.inference_mode(self.name == "inference"):
            for x in self.made:
                kind = np.asarray(x).dtype.kind
                x[...] = ((~x if isinstance(x, torch.Tensor) else np.logical_not(x)) if kind == "b"
                          else x * 0 + 1 if kind == "i" else x * 3)


def gain(array):
    return lambda s, b, h, i, j: s * array[h, j]


# name: the keywords of attn.attention, of arrays by `made`
OPTIONS = {
    "bias": lambda made: {"bias": made(X[0, :, :, :1] * OTHERS[0, :, :, 1:2].swapaxes(1, 2))},
    "a broadcast bias": lambda made: {"bias": made(X[0, :1, :1, :1])},
    "Bias.dense": lambda made: {"bias": attn.Bias.dense(made(X[0, 0, :, :1].repeat(5, 1)))},
    "Bias.alibi": lambda made: {"bias": attn.Bias.alibi(made(X[0, 0, 0, :2]))},
    "Bias.relative": lambda made: {
        "bias": attn.Bias.relative(made(X[0, :, :4, :1].repeat(2, 1).reshape(8, 2)), max_distance=16)},
    "sinks": lambda made: {"sinks": made(X[0, 0, 0, :2])},
    "Mask.attend": lambda made: {"mask": attn.Mask.attend(made(np.tri(5, dtype=bool)))},
    "Mask.documents": lambda made: {
        "mask": attn.Mask.documents(made(np.array([0, 0, 2, 2, 2])), made(np.array([0, 0, 2, 2, 2])))},
    "key_lengths": lambda made: {"key_lengths": made(np.array([3, 4]))},
    "query_lengths": lambda made: {"query_lengths": made(np.array([3, 4]))},
    "key_start": lambda made: {"key_start": made(np.array([2, 0]))},
    "query_start": lambda made: {"query_start": made(np.array([0, 3])), "mask": "causal"},
    "Score.general": lambda made: {"score": attn.Score.general(made(X[0, 0, :4]))},
    "Score.additive": lambda made: {"score": attn.Score.additive(made(X[0, 0]), made(X[0, 1]), made(X[0, 0, :, 0]))},
    "a function": lambda made: {"score_mod": gain(made(X[0, :, :, 0]))},
    "a table": lambda made: {"score_mod": gain(attn.ScoreTable(made(X[0, :, :, 0])))},
    "an expression": lambda made: {"score_mod": attn.ScoreExpression(gain(made(X[0, :, :, 0])))},
    "Weights.rows": lambda made: {"weights": attn.Weights.rows(made(np.array([0, 3])))},
}
SOURCES = ("torch", "inference", "NumPy", "DLPack")


def total(results):
    results = results if isinstance(results, tuple) else (results,)
    return sum((y * torch.linspace(0.5, 1.5, y.numel()).view(y.shape)).sum() for y in results if y.is_floating_point())


def noticed_or_right(call, change, order=1):
    """The gradients of call(q), whose other arguments are changed before the last pass:
    those without the change, or an error."""
    runs = []
    for changes in (False, True):
        q = torch.from_numpy(X).requires_grad_()
        found = total(call(q, changes))
        for n in range(order):
            if changes and n == order - 1:
                change()
            try:
                (found,) = torch.autograd.grad(found if n == 0 else found.square().sum(), q, create_graph=n < order - 1)
            except RuntimeError as error:
                assert changes, error
                assert any(text in str(error) for text in NOTICED.split("|")), error
                return "noticed"
        runs.append(found)
    assert torch.equal(*runs)
    return "right"


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_attention(name, source, order):
    made = Source(source)
    options = OPTIONS[name](made)
    clean = OPTIONS[name](Source(source))
    noticed_or_right(lambda q, changes: attn.attention(q, q.detach() * 2, q, **(options if changes else clean)),
                     made.change, order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("source", SOURCES[:2])
@pytest.mark.parametrize("way",
                         ["attention", "with options", "scaled_dot_product_attention", "with a mask",
                          "with a float mask", "additive", "the module"])
def test_tensors(way, source, order):
    made = Source(source)
    tensors = [made(X), made(OTHERS), made(np.tri(5, dtype=bool)), made(X[0, :, :, :1]), made(X[0, 0]), made(X[0, 1]),
               made(X[0, 0, :, 0])]
    module = attn.torch.MultiheadAttention(4, 2, batch_first=True)
    calls = {
        "attention": lambda q, k, v, *_: attn.attention(q, k, v),
        "with options": lambda q, k, v, mask, bias, *_: attn.attention(
            q, k, v, bias=bias, softcap=2.0, weights="full", return_logsumexp=True),
        "scaled_dot_product_attention": lambda q, k, v, *_: attn.torch.scaled_dot_product_attention(q, k, v),
        "with a mask": lambda q, k, v, mask, *_: attn.torch.scaled_dot_product_attention(q, k, v, mask),
        "with a float mask": lambda q, k, v, mask, bias, *_: attn.torch.scaled_dot_product_attention(q, k, v, bias),
        "additive": lambda q, k, v, mask, bias, w_q, w_k, w: attn.additive_attention(q, k, v, w_q, w_k, w),
        "the module": lambda q, k, v, mask, *_: module(q[0], k[0], v[0], attn_mask=mask),
    }
    clean = [x.clone() for x in tensors]
    noticed_or_right(lambda q, changes: calls[way](q, *(tensors if changes else clean)), made.change, order)


@pytest.mark.parametrize("source", SOURCES[:2])
@pytest.mark.parametrize("learns", ["input", "weight", "bias"])
def test_linear(source, learns):
    """Of the two factors each is kept for the other's gradient."""
    made = Source(source)
    given = {"input": made(X[0, 0]), "weight": made(X[0, 1]), "bias": made(X[0, 0, :, 0])}
    expected = {name: x.clone() for name, x in given.items()}
    for arguments in (given, expected):
        arguments[learns] = arguments[learns].clone().requires_grad_()
    runs = [attn.torch.linear(**arguments).square().sum() for arguments in (expected, given)]
    made.change()
    first = torch.autograd.grad(runs[0], expected[learns])[0]
    try:
        assert torch.equal(torch.autograd.grad(runs[1], given[learns])[0], first)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)


def test_what_torch_takes_of_inference_mode():
    """A mask of bool and what no gradient needs, as in torch; q, k and v too, where torch asks for a clone."""
    with torch.inference_mode():
        x, w, mask = torch.from_numpy(X).clone(), torch.from_numpy(X[0, 0]).clone(), torch.ones(5, 5).tril().bool()
    q, learned = torch.from_numpy(X).requires_grad_(), torch.from_numpy(X[0, 1].copy()).requires_grad_()
    for function in (F.scaled_dot_product_attention, attn.torch.scaled_dot_product_attention):
        function(q, q, q, mask).sum().backward()
    found = [torch.autograd.grad(attn.torch.scaled_dot_product_attention(q, k, k).sum(), q)[0] for k in (x, x.clone())]
    assert torch.equal(*found)
    found = [torch.autograd.grad(attn.torch.linear(x, learned).sum(), learned)[0] for x in (x, x.clone())]
    assert torch.equal(*found)
    bias = torch.zeros(5, requires_grad=True)
    for function in (F.linear, attn.torch.linear):
        function(x, w, bias).sum().backward()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["Mask.attend", "Bias.dense", "Bias.alibi", "an expression", "Weights.rows"])
def test_what_a_graph_holds(name, source):
    made = Source(source)
    options = OPTIONS[name](made)
    clean = OPTIONS[name](Source(source))
    torch._dynamo.reset()
    call = lambda q, changes: torch.compile(
        lambda q: attn.attention(q, q.detach() * 2, q, **(options if changes else clean)), backend="aot_eager")(q)
    assert noticed_or_right(call, made.change) == "noticed"


IN_PLACE = {
    "y += x": lambda y: y.add_(1.5),
    "y *= 2": lambda y: y.mul_(2),
    "relu": lambda y: y.relu_(),
    "an element": lambda y: y.__setitem__((0, 1), 0.5),
    "a view": lambda y: y.view(-1).sub_(1),
    "without history": lambda y: y.detach().add_(1.5),
    "out=": lambda y: torch.mul(y.detach(), 2, out=y.detach()),
}
ATTENDS = {
    "attention": lambda q, k, v: attn.attention(q, k, v),
    "with options": lambda q, k, v: attn.attention(q, k, v, softcap=3.0, bias=attn.Bias.alibi(2), weights="full")[0],
    "additive": lambda q, k, v: attn.additive_attention(q, k, v, torch.eye(4), torch.eye(4), torch.ones(4)),
    "scaled_dot_product_attention": lambda q, k, v: attn.torch.scaled_dot_product_attention(q, k, v, is_causal=True),
    "the module": lambda q, k, v: MODULE(q[0], k[0], v[0])[0],
    "linear": lambda q, k, v: attn.torch.linear(q, k[0, 0], v[0, 0, :, 0]),
    "a graph": lambda q, k, v: torch.compile(lambda q, k, v: attn.attention(q, k, v, softcap=3.0),
                                             backend="aot_eager")(q, k, v),
    "vmap": lambda q, k, v: torch.func.vmap(
        lambda q, k, v: attn.attention(q, k, v, softcap=3.0))(q[None], k[None], v[None])[0],
}
MODULE = attn.torch.MultiheadAttention(4, 2, batch_first=True)


def after_a_change(attend, change):
    """The gradients of an output that is changed in place; None where torch says that it was."""
    leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in (X, OTHERS, X * 0.5)]
    y = attend(*leaves)
    change(y)
    try:
        return torch.autograd.grad(total(y), leaves)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
        return None


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("way", ATTENDS)
def test_the_output_is_changed_in_place(way, name):
    """The gradients of the change on a copy, or torch's error of version counters,
    which its own fused function raises of its output too."""
    attend, change = ATTENDS[way], IN_PLACE[name]
    leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in (X, OTHERS, X * 0.5)]
    y = attend(*leaves)
    copy = y.clone()
    change(copy)
    expected = torch.autograd.grad(total(copy), leaves)
    found = after_a_change(attend, change)
    if found is not None:
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    if way in ("attention", "with options", "additive", "scaled_dot_product_attention"):
        fused = torch.nn.attention.SDPBackend.FLASH_ATTENTION
        with torch.nn.attention.sdpa_kernel(fused):
            assert (found is None) == (after_a_change(F.scaled_dot_product_attention, change) is None)


def test_the_output_is_watched_for_gradients_of_gradients():
    q = torch.from_numpy(X).requires_grad_()
    y = attn.attention(q, q, q)
    (first,) = torch.autograd.grad(y.sum(), q, create_graph=True)
    y.detach().mul_(3)
    with pytest.raises(RuntimeError, match="the output .* was changed in place"):
        first.square().sum().backward()


def test_the_example_of_a_frozen_key():
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    with torch.inference_mode():
        k = torch.randn(1, 2, 3, 4)
    v = torch.randn(1, 2, 3, 4)
    expected = torch.autograd.grad(attn.attention(q, k.clone(), v).sum(), q)[0]
    y = attn.attention(q, k, v)
    with torch.inference_mode():
        k.mul_(3)
    assert torch.equal(torch.autograd.grad(y.sum(), q)[0], expected)
