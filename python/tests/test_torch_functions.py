# python/tests/test_torch_functions.py: functions as score_mod in graphs and transforms:
# what they close over is seen there, with its gradients.
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch
from error_rule import assert_as_close_as
from random_tensors import draw

B, H, T, D = 2, 3, 6, 4


class Layer(torch.nn.Module):
    """Attention whose function of the score reaches learned numbers in a way of its own."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.slope, self.table, self.gain = (torch.nn.Parameter(draw(*sizes, dtype=dtype) * 0.5)
                                             for sizes in ((H,), (H, 2 * T), ()))
        self.made = attn.ScoreTable(self.slope)
        self.number = 0.25
        self.register_buffer("places", torch.arange(2 * T) // 2)
        self.numpy = np.linspace(0.1, 0.7, H, dtype=np.float32)

    def forward(self, x, by=attn):
        return composed(x, self.function(by)) if by is torch else attn.attention(x, x, x, score_mod=self.function(by))


class Local(Layer):
    def function(self, by):
        slope = self.slope
        return lambda s, b, h, i, j: s - slope[h] * (i - j)


class Pairs(Layer):
    def function(self, by):
        table, size = self.table, self.table.shape[1] // 2
        return lambda s, b, h, i, j: s + table[h, i - j + size] / size


class Table(Layer):
    def function(self, by):
        make = attn.ScoreTable if by is attn else lambda x: x
        return lambda s, b, h, i, j: s * make(self.slope)[h] - make(self.table)[h, j] * self.number


class MadeBefore(Layer):
    def function(self, by):
        table = self.made if by is attn else self.slope
        return lambda s, b, h, i, j: s * table[h]


class AttributeOfATable(Layer):
    def function(self, by):
        return (lambda s, b, h, i, j: s * self.made[h]) if by is attn else (lambda s, b, h, i, j: s * self.slope[h])


class Number(Layer):
    def function(self, by):
        gain = self.gain
        return lambda s, b, h, i, j: gain * s + self.gain - s / 3


class Everything(Layer):
    def function(self, by):
        gain, slope = self.gain, self.slope
        return lambda s, b, h, i, j: by.where(
            (i >= j) & (i - j < 3) | (j % 2 == 0), by.tanh(s * by.exp(-slope[h])) - by.maximum(-s, gain),
            by.minimum(s, gain)
        )


class Method(Layer):
    def modified(self, s, b, h, i, j):
        return s * self.gain - 0.1 * j

    def function(self, by):
        return self.modified


class Default(Layer):
    def function(self, by):
        return lambda s, b, h, i, j, slope=self.slope, *, gain=self.gain: s * slope[h] - gain * s


class Chosen(Layer):
    def function(self, by):
        places, slope = self.places, self.slope
        return lambda s, b, h, i, j: by.where(places[i] >= places[j], s - slope[places[i] % H], s * 0.5)


class Mixed(Layer):
    def function(self, by):
        numbers, slope = self.numpy if by is attn else torch.from_numpy(self.numpy), self.slope
        return lambda s, b, h, i, j: s - slope[h] * numbers[h] * abs(i - j)


class Wrapped(Layer):
    def function(self, by):
        slope = attn.ScoreTable(self.slope) if by is attn else self.slope
        inner = lambda s, h: s * slope[h]

        def outer(s, b, h, i, j):
            for n in range(2):
                s = inner(s, h) + n
            return s

        return outer


class Squares(Layer):
    """Tensors computed inside of the graph."""

    def function(self, by):
        slope = torch.nn.functional.softplus(self.slope) * self.gain
        return lambda s, b, h, i, j: s - slope[h] * (i - j) * (i - j) * 0.1


class Opposite(Layer):
    """`~`, of which torch's compiler has no rule for objects."""

    def function(self, by):
        slope, size = self.slope, self.table.shape[1]
        return lambda s, b, h, i, j: by.where(~(i < j) & ~~(j < size), s * slope[h], s + ~size * 0.05)


class Constants(Layer):
    def function(self, by):
        gain, exp = self.gain, attn.exp if by is attn else lambda x: torch.exp(torch.tensor(x))
        return lambda s, b, h, i, j: s * gain - exp(-0.5) * (i - j)


LAYERS = (Local, Pairs, Table, MadeBefore, AttributeOfATable, Number, Everything, Method, Default, Chosen, Mixed,
          Wrapped, Squares, Opposite, Constants)
each_layer = pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)


def composed(x, function):
    """The same in torch's operations, with the whole matrix."""
    b, h, i, j = (torch.arange(n).view([-1 if d == at else 1 for d in range(4)])
                  for at, n in enumerate((*x.shape[:2], x.shape[2], x.shape[2])))
    scores = function(x @ x.transpose(-1, -2) * x.shape[-1] ** -0.5, b, h, i, j)
    return scores.to(x.dtype).softmax(-1) @ x


def results(module, x, **keywords):
    """The output, and the gradients of x and of what is learned."""
    leaf = x.detach().requires_grad_()
    y = module(leaf, **keywords)
    inputs = (leaf, *module.parameters())
    return y, *(g for g in torch.autograd.grad(y.square().sum(), inputs, allow_unused=True) if g is not None)


@pytest.mark.parametrize("fullgraph", [True, False])
@each_layer
def test_a_graph_has_the_bits_of_eager(kind, fullgraph):
    torch._dynamo.reset()
    x, layer = draw(B, H, T, D), kind()
    ours = results(torch.compile(layer, fullgraph=fullgraph, backend="aot_eager"), x)
    expected = results(layer, x)
    assert len(ours) > 2 and all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))


@each_layer
def test_a_graph_beside_torchs_operations(kind):
    torch._dynamo.reset()
    x = draw(B, H, T, D)
    ours = results(torch.compile(kind(), fullgraph=True, backend="aot_eager"), x)
    theirs, truth = results(kind(), x, by=torch), results(kind(torch.float64), x.double(), by=torch)
    for n, found in enumerate(zip(ours, theirs, truth, strict=True)):
        assert_as_close_as(*found, f"{kind.__name__}, result {n}")


@each_layer
def test_transforms(kind):
    x, layer = draw(2, B, H, T, D), kind()
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    expected = [results(layer, item) for item in x]
    # their tables hold the module's own parameters, whatever a call puts in their place
    if kind not in (MadeBefore, AttributeOfATable):
        used = lambda found: [g for g in found.values() if g.any()]
        assert all(torch.equal(a, b)
                   for a, b in zip(used(torch.func.grad(loss)(parameters, x[0])), expected[0][2:], strict=True))
        many = used(torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x))
        for n in range(2):
            assert all(torch.equal(a[n], b) for a, b in zip(many, expected[n][2:], strict=True))
        per_item = torch.func.vmap(loss,
                                   ({name: 0 for name in parameters},
                                    None))({name: torch.stack((p, 2 * p)) for name, p in parameters.items()}, x[0])
        assert torch.equal(per_item[0], loss(parameters, x[0])) and not torch.equal(*per_item)
    mapped = torch.func.vmap(layer)(x)
    assert all(torch.equal(a, b[0]) for a, b in zip(mapped, expected, strict=True))


@pytest.mark.parametrize("kind", [Local, Everything, Number], ids=lambda kind: kind.__name__)
def test_transforms_inside_of_a_graph(kind):
    torch._dynamo.reset()
    x, layer = draw(B, H, T, D), kind()
    gradient = lambda x: torch.func.grad(lambda x: layer(x).square().sum())(x)
    assert torch.equal(torch.compile(gradient, fullgraph=True, backend="aot_eager")(x), gradient(x))
    many = lambda x: torch.func.vmap(layer)(x)
    xs = torch.stack((x, 2 * x))
    assert torch.equal(torch.compile(many, fullgraph=True, backend="aot_eager")(xs), many(xs))


@pytest.mark.parametrize("dynamic", [True, None, False])
def test_numbers_and_sizes_that_change(dynamic):
    call = lambda x, number: attn.attention(x, x, x,
                                            score_mod=lambda s, b, h, i, j: s * number + x.shape[2] - j / x.shape[-2])
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for number, length in ((0.5, 6), (0.7, 6), (0.7, 9), (3.0, 4), (2, 4), (0.5, 6), (-0.0, 5)):
        x = draw(B, H, length, D).requires_grad_()
        runs = [f(x, number) for f in (compiled, call)]
        assert torch.equal(*runs)
        assert torch.equal(*(torch.autograd.grad(y.sum(), x)[0] for y in runs))


def test_a_captured_tensor_that_changes_its_length():
    call = lambda x, table: attn.attention(x, x, x, score_mod=lambda s, b, h, i, j: s + table[h, j])
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for length in (5, 6, 9):
        inputs = draw(B, H, length, D).requires_grad_(), draw(H, length).requires_grad_()
        runs = [f(*inputs) for f in (compiled, call)]
        assert torch.equal(*runs)
        assert all(torch.equal(a, b) for a, b in zip(*(torch.autograd.grad(y.square().sum(), inputs) for y in runs)))


def test_by_inductor():
    torch._dynamo.reset()
    x, layer = draw(B, H, T, D), Squares()
    ours, expected = results(torch.compile(layer, fullgraph=True), x), results(layer, x)
    theirs, truth = results(layer, x, by=torch), results(Squares(torch.float64), x.double(), by=torch)
    for found in zip(ours, theirs, truth, strict=True):
        assert_as_close_as(*found)
    assert len(ours) == len(expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_training(compiled):
    """Ten steps give the parameters of torch's own operations, by what ten steps in float64 give."""
    def trained(by, dtype):
        torch._dynamo.reset()
        layer = Squares(dtype)
        run = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled and by is attn else layer
        optimizer, x, target = (torch.optim.SGD(layer.parameters(), lr=0.05), draw(B, H, T, D, dtype=dtype),
                                draw(B, H, T, D, dtype=dtype).flip(2))
        for _ in range(10):
            optimizer.zero_grad()
            (run(x, by=by) - target).square().sum().backward()
            optimizer.step()
        return [p.detach() for p in layer.parameters() if p.grad is not None]

    start = [p.detach() for p in Squares().parameters()]
    found, theirs, truth = trained(attn, torch.float32), trained(torch, torch.float32), trained(torch, torch.float64)
    for ours, expected, exact in zip(found, theirs, truth, strict=True):
        assert_as_close_as(ours, expected, exact)
    assert not torch.equal(found[0], start[0])


@pytest.mark.parametrize("compiled", [False, True])
@each_layer
def test_checkpoints(kind, compiled):
    """In the backward pass the call is made again, function and all; in a graph that is whole."""
    torch._dynamo.reset()
    x, layer = draw(B, H, T, D), kind()
    run = lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) * 2
    run = torch.compile(run, fullgraph=True, backend="aot_eager") if compiled else run
    leaf, expected = x.detach().requires_grad_(), results(layer, x)
    for _ in range(2):
        y = run(leaf)
        found = [g for g in torch.autograd.grad((y / 2).square().sum(), (leaf, *layer.parameters()), allow_unused=True)
                 if g is not None]
        assert torch.equal(y / 2, expected[0]) and all(torch.equal(a, b)
                                                       for a, b in zip(found, expected[1:], strict=True))


def test_checkpoints_inside_of_each_other():
    from torch.utils.checkpoint import checkpoint

    torch._dynamo.reset()
    x, first, second = draw(B, H, T, D), Pairs(), Opposite()
    inner = lambda x: checkpoint(first, x, use_reentrant=False).tanh()
    whole = lambda x: second(checkpoint(inner, x, use_reentrant=False))
    whole.parameters = lambda: (*first.parameters(), *second.parameters())
    compiled = torch.compile(whole, fullgraph=True, backend="aot_eager")
    compiled.parameters = whole.parameters
    assert all(torch.equal(a, b) for a, b in zip(results(compiled, x), results(whole, x), strict=True))
    assert torch.overrides._get_current_function_mode_stack() == []


class Inverted:
    """An object of someone else."""

    def __invert__(self):
        return 2.0


def test_the_compiler_learns_of_no_other_object(monkeypatch):
    from torch._dynamo.variables.builtin import BuiltinVariable

    monkeypatch.delattr(BuiltinVariable, "call_invert", raising=False)
    BuiltinVariable.call_function_handler_cache.clear()
    torch._dynamo.reset()
    x, layer, other = draw(B, H, T, D), Opposite(), lambda x: x * ~Inverted()
    refused = lambda: pytest.raises(torch._dynamo.exc.Unsupported, match="invert")
    with refused():
        torch.compile(other, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x))
    with refused():
        torch.compile(other, fullgraph=True, backend="aot_eager")(x)


def test_autocast():
    x, layer = draw(B, H, T, D), Local()
    expected = results(layer, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(torch.equal(a, b) for a, b in zip(results(layer, x), expected, strict=True))


EXPORTED = """
import sys, torch, attn.torch
program, expected = torch.export.load(sys.argv[1]), torch.load(sys.argv[2])
print(torch.equal(program.module()(expected[0]), expected[1]))
"""


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", [Local, Pairs, Number, Everything], ids=lambda kind: kind.__name__)
def test_a_saved_graph_has_its_parameters(kind, strict, tmp_path):
    layer, x = kind(), draw(B, H, T, D)
    torch.export.save(torch.export.export(layer, (x,), strict=strict), tmp_path / "layer.pt2")
    torch.save((x, layer(x).detach()), tmp_path / "layer.pt")
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORTED, tmp_path / "layer.pt2",
                             tmp_path / "layer.pt"], capture_output=True, text=True)
    assert result.stdout == "True\n", result.stderr


WRONG = {
    "a condition in Python": (lambda s, b, h, i, j: s if i > j else -s, "attn.where"),
    "a function of torch": (lambda s, b, h, i, j: torch.exp(s), "takes no symbol"),
    "an array as a number": (lambda s, b, h, i, j: s * SLOPES, "(?i)table"),
    "words that do not read": ("s * (", "ScoreExpression"),
    "a list": ([1.0], "ScoreExpression: a list is given"),
    "a string": (lambda s, b, h, i, j: attn.exp("x"), 'attn.exp."x".'),
}
SLOPES = torch.linspace(0.1, 0.5, H)


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_told_as_outside(name):
    function, told = WRONG[name]
    x = draw(B, H, T, D)
    call = lambda x: attn.attention(x, x, x, score_mod=function)
    for run in (call, lambda x: torch.func.vmap(call)(x[None]), torch.compile(call, backend="aot_eager")):
        torch._dynamo.reset()
        with pytest.raises((TypeError, ValueError), match=told):
            run(x)
    with pytest.raises(Exception, match=f"{told}|neither true nor false|is given|Tensor"):
        torch.compile(call, backend="aot_eager", fullgraph=True)(x)
