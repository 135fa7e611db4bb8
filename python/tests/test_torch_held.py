# python/tests/test_torch_held.py: a Bias, a Score or an expression that holds what is learned, in graphs and
# transforms: its gradients are eager's.
import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch
from error_rule import assert_as_close_as, assert_rule_holds
from random_tensors import draw

B, H, T, D = 2, 3, 6, 4


class Layer(torch.nn.Module):
    """What is learned, and the options that hold it, made once."""

    def __init__(self, make, dtype=torch.float32):
        super().__init__()
        sizes = {"slope": (H,), "table": (H, T), "pairs": (H, T, T), "w": (D, D), "w_q": (5, D), "w_k": (5, D),
                 "line": (5,)}
        for name, size in sizes.items():
            setattr(self, name, torch.nn.Parameter(draw(*size, dtype=dtype) * 0.5))
        self.options = make(self)

    def forward(self, x):
        return attn.attention(x, x, x, mask="causal", **self.options)


def looked_up(layer):
    slope, table = layer.slope, layer.table
    return attn.ScoreExpression(lambda s, b, h, i, j: s * slope[h] - table[h, j] * slope[h])


HOLDS = {
    "Bias.alibi": lambda layer: {"bias": attn.Bias.alibi(layer.slope)},
    "Bias.dense": lambda layer: {"bias": attn.Bias.dense(layer.pairs)},
    "Bias.relative": lambda layer: {"bias": attn.Bias.relative(layer.pairs[0, :, :H].contiguous(), max_distance=16)},
    "a sum beside numbers and NumPy": lambda layer: {"bias": attn.Bias.alibi(H) + attn.Bias.dense(layer.pairs)
                                                     + attn.Bias.dense(draw(T, T).numpy())
                                                     + attn.Bias.alibi(layer.slope)},
    "Score.general": lambda layer: {"score": attn.Score.general(layer.w)},
    "Score.additive": lambda layer: {"score": attn.Score.additive(layer.w_q, layer.w_k, layer.line)},
    "an expression": lambda layer: {"score_mod": looked_up(layer)},
    "all of them": lambda layer: {"bias": attn.Bias.alibi(layer.slope), "score": attn.Score.general(layer.w),
                                  "score_mod": looked_up(layer)},
}
each = pytest.mark.parametrize("name", HOLDS)


def results(module, layer, x):
    """The output, and the gradients of x and of what is learned."""
    leaf = x.detach().requires_grad_()
    y = module(leaf)
    return y, *(g
                for g in torch.autograd.grad(y.square().sum(), (leaf, *layer.parameters()), allow_unused=True,
                                             retain_graph=True) if g is not None)


@pytest.mark.parametrize("fullgraph", [True, False])
@each
def test_a_graph_has_the_bits_of_eager(name, fullgraph):
    torch._dynamo.reset()
    layer, x = Layer(HOLDS[name]), draw(B, H, T, D)
    compiled = torch.compile(layer, fullgraph=fullgraph, backend="aot_eager")
    for change in (1.0, 1.5):
        with torch.no_grad():
            for p in layer.parameters():
                p.mul_(change)
        ours, expected = results(compiled, layer, x), results(layer, layer, x)
        assert len(ours) > 2 and all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    with torch.no_grad():
        assert torch.equal(compiled(x), layer(x))


@each
def test_checkpoints_in_a_graph(name):
    torch._dynamo.reset()
    layer, x = Layer(HOLDS[name]), draw(B, H, T, D)
    compiled = torch.compile(lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False), fullgraph=True,
                             backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(results(compiled, layer, x), results(layer, layer, x), strict=True))


@each
def test_transforms(name):
    layer, x = Layer(HOLDS[name]), draw(B, H, T, D)
    y, of_x, *learned = results(layer, layer, x)
    assert torch.equal(torch.func.grad(lambda x: layer(x).square().sum())(x), of_x)
    mapped = torch.func.vmap(layer)(torch.stack((x, x * 2)))
    assert torch.equal(mapped[0], y)
    found = [g for g in torch.autograd.grad(mapped[0].square().sum(), layer.parameters(), allow_unused=True)
             if g is not None]
    assert all(torch.equal(a, b) for a, b in zip(found, learned, strict=True))


def test_training_in_a_graph():
    """Five steps give the parameters of eager's five."""
    def trained(compiled):
        torch._dynamo.reset()
        layer, x = Layer(HOLDS["all of them"]), draw(B, H, T, D)
        run = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            (run(x) - x.flip(2)).square().sum().backward()
            optimizer.step()
        return [p.detach() for p in layer.parameters()]

    start, ours, expected = ([p.detach() for p in Layer(HOLDS["all of them"]).parameters()], trained(True),
                             trained(False))
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    assert not torch.equal(ours[0], start[0])


def test_changes_between_the_passes_are_noticed():
    torch._dynamo.reset()
    layer = Layer(HOLDS["Bias.alibi"])
    y = torch.compile(layer, backend="aot_eager")(draw(B, H, T, D))
    with torch.no_grad():
        layer.slope.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_graph_has_its_parameters(strict):
    layer, x = Layer(HOLDS["all of them"]), draw(B, H, T, D)
    program = torch.export.export(layer, (x,), strict=strict)
    assert torch.equal(program.module()(x), layer(x))
    assert {"slope", "w", "table"} <= set(program.state_dict)


def test_an_expression_whose_text_does_not_read_back_is_an_error_of_one_line():
    one, other = attn.ScoreTable(torch.nn.Parameter(draw(H)), "a"), attn.ScoreTable(draw(H), "a")
    mod = attn.ScoreExpression(lambda s, b, h, i, j: s * one[h] + other[h])
    call = lambda x: attn.attention(x, x, x, score_mod=mod)
    text = (r"an expression holds a tensor that wants a gradient or has a tangent, and its text does not read back, "
            r".*attn.ScoreTable\(x, name\)")
    x = draw(B, H, T, D)
    assert torch.isfinite(call(x)).all()
    for run in (torch.compile(call, backend="aot_eager"), torch.compile(call, backend="aot_eager", fullgraph=True),
                lambda x: torch.func.vmap(call)(x[None])):
        torch._dynamo.reset()
        with pytest.raises(TypeError, match=text):
            run(x)


MIXED = {
    "a tensor": lambda x, p: attn.attention(x, x, x, bias=p),
    "a function": lambda x, p: attn.attention(x, x, x, score_mod=lambda s, b, h, i, j: s + p[h, i, j]),
    "a Bias": lambda x, p: attn.attention(x, x, x, bias=BIAS[p]),
    "torch's function": lambda x, p: attn.torch.scaled_dot_product_attention(x, x, x, p),
}
BIAS = {}


@pytest.mark.parametrize("name", MIXED)
def test_autograd_around_a_transform_reaches_what_the_transform_did_not_ask_of(name):
    """The gradient of torch.func.grad's by x, by something else."""
    def found(dtype, outside, again, call=MIXED[name]):
        x = draw(B, H, T, D, dtype=dtype, again=again)
        p = torch.nn.Parameter(draw(H, T, T, dtype=dtype, again=again))
        BIAS[p] = attn.Bias.dense(p)
        loss = lambda x: call(x, p).square().sum()
        if outside:
            slope = torch.func.grad(loss)(x)
        else:
            leaf = x.requires_grad_()
            (slope,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), p)[0]

    def plain(x, p):
        return torch.softmax(x @ x.transpose(-1, -2) * D**-0.5 + p, -1) @ x

    def compared(again):
        theirs, truth = (found(dtype, False, again, plain) for dtype in (torch.float32, torch.float64))
        return {"gradient of p": (found(torch.float32, True, again), theirs, truth)}

    assert_rule_holds(compared, name)


def test_each_thread_gets_the_key_of_its_own_object(monkeypatch):
    """Another thread may put its object into the table between two steps of this one."""
    encoded = attn.torch._encoded

    class Shared(list):
        def append(self, entry):
            super().append(entry)
            super().append(encoded._hold(attn.Mask.attend(torch.ones(T, T).bool()), "mask"))

    monkeypatch.setattr(encoded, "_for_ever", Shared())
    for mask in (attn.Mask.attend(torch.tril(torch.ones(T, T)).bool()), attn.Mask.documents(torch.arange(T))):
        for _ in range(2):
            assert encoded._at(encoded._text_for_ever(mask, "mask")[1:]) is mask
