# python/tests/test_torch_general.py: attn.attention with all of its options under torch.compile,
# torch.func and fake tensors.
import enum
import gc
import re
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch
from random_tensors import draw

B, H, T, S, D = 2, 3, 5, 6, 4
MASK = attn.Mask.causal("bottom_right") & attn.Mask.window(3, 0, "bottom_right")
SEEN = attn.Mask.attend(torch.ones(T, S).tril(2).bool())
SLOPES = torch.linspace(0.1, 0.5, H, dtype=torch.float64)
ALIBI = attn.Bias.alibi(SLOPES, "bottom_right")
TABLE = attn.ScoreExpression(lambda s, b, h, i, j: s - SLOPES[h] * abs(i - j)).aligned("bottom_right")
ROWS = attn.Weights.rows(torch.tensor([4, 0]))
LENGTHS = torch.tensor([4, 6])
CU = torch.tensor([0, 2, T])


def make(*sizes):
    return draw(*sizes, dtype=torch.float64).requires_grad_()


Q, K, V, BIAS, SINKS = make(B, H, T, D), make(B, H, S, D), make(B, H, S, D + 1), make(H, T, S), make(H)
W_Q, W_K, W = make(7, D), make(7, D), make(7)
PACKED = make(1, H, T, D)


def long(s, b, h, i, j):
    """Of more than 10,000 characters."""
    for _ in range(12):
        s = s * 0.5 + s * s * 1e-9
    return s


def deep(s, b, h, i, j):
    for _ in range(250):
        s = abs(s)
    return s


# name: (function, its inputs, all of which can have gradients)
CALLS = {
    "plain": (lambda q, k, v: attn.attention(q, k, v), (Q, K, V)),
    "a mask in words, softcap, temperature": (
        lambda q, k, v: attn.attention(q, k, v, mask="causal(bottom_right)", softcap=3, temperature=0.7), (Q, K, V)),
    "a mask from outside": (lambda q, k, v: attn.attention(q, k, v, mask=MASK, scale=0.3), (Q, K, V)),
    "a mask with an array": (lambda q, k, v: attn.attention(q, k, v, mask=SEEN), (Q, K, V)),
    "a bias with a gradient, sinks": (lambda q, k, v, b, s: attn.attention(q, k, v, bias=b, sinks=s),
                                      (Q, K, V, BIAS, SINKS)),
    "ALiBi from outside": (lambda q, k, v: attn.attention(q, k, v, bias=ALIBI), (Q, K, V)),
    "dot": (lambda q, k, v: attn.attention(q, k, v, score="dot"), (Q, K, V)),
    "additive": (lambda *x: attn.additive_attention(*x, mask="window(2, 2, top_left)"), (Q, K, V, W_Q, W_K, W)),
    "an expression from outside": (lambda q, k, v: attn.attention(q, k, v, score_mod=TABLE), (Q, K, V)),
    "a function": (lambda q, k, v: attn.attention(q, k, v, score=lambda s, b, h, i, j: attn.tanh(s) - 0.1 * j),
                   (Q, K, V)),
    "a long function": (lambda q, k, v: attn.attention(q, k, v, score_mod=long), (Q, K, V)),
    "a deep function": (lambda q, k, v: attn.attention(q, k, v, score_mod=deep), (Q, K, V)),
    "a function with nan": (lambda q, k, v: attn.attention(q, k, v,
                                                           score_mod=lambda s, b, h, i, j: attn.where(
                                                               s < -1e9, float("nan"), s)), (Q, K, V)),
    "an expression in words": (lambda q, k, v: attn.attention(q, k, v, score_mod="s * 2 - j"), (Q, K, V)),
    "lengths": (lambda q, k, v: attn.attention(q, k, v, key_lengths=LENGTHS), (Q, K, V)),
    "packed": (lambda q: attn.attention(q, q, q, cu_seqlens_q=CU, cu_seqlens_k=CU, mask="causal"), (PACKED,)),
    "one tensor for all": (lambda q: attn.attention(q, q, q, bias=q[0, :, :, :1]), (Q,)),
    "dropout": (lambda q, k, v: attn.attention(q, k, v, dropout_p=0.4, dropout_seed=7), (Q, K, V)),
    "rank 3": (lambda q, k, v: attn.attention(q[0], k[0], v[0]), (Q, K, V)),
    "weights": (lambda q, k, v: attn.attention(q, k, v, weights="full", return_logsumexp=True), (Q, K, V)),
    "an average": (lambda q, k, v: attn.attention(q, k, v, weights="head_average"), (Q, K, V)),
    "sums of columns": (lambda q, k, v: attn.attention(q, k, v, weights="column_sums"), (Q, K, V)),
    "rows": (lambda q, k, v: attn.attention(q, k, v, weights=ROWS, return_logsumexp=True), (Q, K, V)),
    "rank 3, an average": (lambda q, k, v: attn.attention(q[0], k[0], v[0], weights="head_average"), (Q, K, V)),
}


def several(results):
    return results if isinstance(results, tuple) else (results,)


def gradients(call, inputs, **how):
    """Of a number that all results are in."""
    results = several(call(*inputs))
    total = sum((x * torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).view(x.shape)).sum() for x in results)
    return torch.autograd.grad(total, inputs, **how)


@pytest.mark.parametrize("name", CALLS)
def test_one_graph_with_the_bits_of_eager(name):
    call, inputs = CALLS[name]
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for ours, expected in zip(several(compiled(*inputs)), several(call(*inputs)), strict=True):
        assert torch.equal(ours, expected)
    for ours, expected in zip(gradients(compiled, inputs), gradients(call, inputs), strict=True):
        assert torch.equal(ours, expected)
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(several(compiled(*inputs)), several(call(*inputs)), strict=True))


@pytest.mark.parametrize("name", CALLS)
def test_gradients_under_torch_func(name):
    call, inputs = CALLS[name]
    plain = tuple(x.detach() for x in inputs)
    total = lambda *x: sum((y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view(y.shape)).sum()
                           for y in several(call(*x)))
    for ours, expected in zip(torch.func.grad(total, argnums=tuple(range(len(plain))))(*plain), gradients(call, inputs),
                              strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("name",
                         ["plain", "a bias with a gradient, sinks", "additive", "an expression from outside",
                          "weights"])
def test_second_gradients_under_torch_func(name):
    """The gradient of a gradient's size, against autograd's own."""
    call, inputs = CALLS[name]
    plain = tuple(x.detach() for x in inputs)
    everything = tuple(range(len(plain)))
    total = lambda *x: sum(y.square().sum() for y in several(call(*x)))
    size = lambda *x: sum(y.square().sum() for y in torch.func.grad(total, argnums=everything)(*x))
    found = torch.func.grad(size, argnums=everything)(*plain)
    first = torch.autograd.grad(sum(y.square().sum() for y in several(call(*inputs))), inputs, create_graph=True)
    for ours, expected in zip(found, torch.autograd.grad(sum(x.square().sum() for x in first), inputs), strict=True):
        assert (ours - expected).abs().max() <= 1e-12 * expected.abs().max().clamp(min=1)


@pytest.mark.parametrize("name", ["a mask from outside", "ALiBi from outside", "weights", "rows", "additive"])
def test_vmap(name):
    call, inputs = CALLS[name]
    many = torch.stack([inputs[0].detach() * n for n in (1, 2, 3)])
    rest = [x.detach() for x in inputs[1:]]
    mapped = several(torch.func.vmap(call, in_dims=(0, *(None for _ in rest)))(many, *rest))
    for n, x in enumerate(many):
        for ours, expected in zip(mapped, several(call(x, *rest)), strict=True):
            assert torch.equal(ours[n], expected)
    loss = lambda *x: sum(y.square().sum() for y in several(call(*x)))
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(0, *(None for _ in rest)))(many, *rest)
    for n, x in enumerate(many):
        assert torch.equal(each[n], torch.func.grad(loss)(x, *rest))


def test_a_batch_of_none():
    none = torch.empty(0, B, H, T, D)
    for call in (attn.attention, attn.torch.scaled_dot_product_attention):
        assert torch.func.vmap(lambda q: call(q, q, q))(none).shape == none.shape
        assert torch.func.vmap(torch.func.grad(lambda q: call(q, q, q).sum()))(none).shape == none.shape


def test_what_a_transformed_call_names_goes_with_it():
    call = lambda q: attn.attention(q, q, q, mask=attn.Mask.causal(), bias=attn.Bias.alibi(H))
    names = attn.torch._encoded._table
    before = len(names)
    output, back = torch.func.vjp(call, Q.detach())
    assert len(names) == before + 2
    gc.collect()
    x = Q.detach().requires_grad_()
    expected = call(x)
    assert torch.equal(output, expected)
    assert torch.equal(back(torch.ones_like(output))[0], torch.autograd.grad(expected.sum(), x)[0])
    del output, back
    gc.collect()
    assert len(names) == before


def test_options_are_read_as_outside_of_transforms():
    inside = lambda **options: torch.func.vmap(lambda q: attn.attention(q, q, q, **options))(Q.detach())
    with pytest.raises(TypeError, match="dropout_seed is a float; a whole number is needed"):
        inside(dropout_p=0.5, dropout_seed=1.5)
    with pytest.raises(TypeError, match="weights is a int"):
        inside(weights=3)
    with pytest.raises(ValueError, match="score is"):
        inside(score="dot\x1fdot")
    two = enum.IntEnum("Numbers", {"TWO": 2}).TWO
    for number in (two, np.float64(2)):
        assert torch.equal(inside(temperature=number), inside(temperature=2))
    for yes in (True, 1, np.True_):
        assert inside(return_logsumexp=yes)[1].shape == Q.shape[:-1]
    assert inside(return_logsumexp=np.False_).shape == Q.shape


def test_top_k_gives_its_keys():
    call = lambda q, k, v: attn.attention(q, k, v, weights=TOP)
    output, (weights, keys) = torch.compile(call, fullgraph=True, backend="aot_eager")(Q, K, V)
    expected, (expected_weights, expected_keys) = call(Q, K, V)
    assert torch.equal(output, expected) and torch.equal(weights, expected_weights) and torch.equal(keys, expected_keys)


TOP = attn.Weights.top_k(2)


def test_by_inductor_and_with_other_sizes():
    torch._dynamo.reset()
    layer = lambda q, k, v, sinks: attn.attention(q.sin(), k, v, mask="causal(bottom_right)", sinks=sinks,
                                                  softcap=5.0).cos()
    compiled = torch.compile(layer, fullgraph=True)
    for rows in (5, 4, 7):
        q = make(B, H, rows, D)
        ours, expected = compiled(q, K, V, SINKS), layer(q, K, V, SINKS)
        assert (ours - expected).abs().max() <= 1e-14
        for a, b in zip(torch.autograd.grad(ours.sum(), (q, K, V, SINKS)),
                        torch.autograd.grad(expected.sum(), (q, K, V, SINKS))):
            assert (a - b).abs().max() <= 1e-14


def test_dropout_is_drawn_in_every_run():
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: attn.attention(q, q, q, dropout_p=0.5), fullgraph=True, backend="aot_eager")
    torch.manual_seed(3)
    first = compiled(Q)
    assert not torch.equal(compiled(Q), first)
    torch.manual_seed(3)
    assert torch.equal(compiled(Q), first)


def test_a_module_with_masks_of_its_own():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = attn.Mask.causal() & attn.Mask.window(2, 0)
            self.sinks = torch.nn.Parameter(torch.zeros(H, dtype=torch.float64))

        def forward(self, x):
            return attn.attention(x, x, x, mask=self.mask, sinks=self.sinks)

    torch._dynamo.reset()
    layer, x = Layer(), Q.detach()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), layer(x))
    layer.mask = attn.Mask.causal()  # another mask is another graph
    assert torch.equal(compiled(x), layer(x))
    compiled(x).sum().backward()
    assert layer.sinks.grad.abs().max() > 0


def test_a_gradient_that_cannot_flow_is_an_error():
    with pytest.raises(ValueError, match="out is given under torch.compile"):
        torch.func.grad(lambda q: attn.attention(q, K, V, out=torch.empty(B, H, T, D + 1)).sum())(Q.detach())
    with pytest.raises(ValueError, match="return_plan"):
        torch.func.grad(lambda q: attn.attention(q, K, V, return_plan=True)[0].sum())(Q.detach())


DYNAMIC = {
    "defaults and constants": lambda x: attn.attention(x, x, x, mask="causal & window(3, 0)", softcap=4.0),
    "a number of the shape": lambda x: attn.attention(x, x, x, scale=x.shape[-2] ** -0.5, temperature=x.shape[-2]),
}


@pytest.mark.parametrize("dynamic", [True, None], ids=["dynamic", "by itself"])
@pytest.mark.parametrize("name", DYNAMIC)
def test_lengths_that_change(name, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(DYNAMIC[name], fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for length in (5, 7, 12, 1):
        x = make(B, H, length, D)
        assert torch.equal(compiled(x), DYNAMIC[name](x))
        assert torch.equal(torch.autograd.grad(compiled(x).sum(), x)[0],
                           torch.autograd.grad(DYNAMIC[name](x).sum(), x)[0])


@pytest.mark.parametrize("strict", [True, False])
def test_a_number_of_the_shape_is_not_kept_silently(strict):
    class Call(torch.nn.Module):
        def forward(self, x):
            return attn.attention(x, x, x, scale=x.shape[-2] ** -0.5)

    with pytest.raises(Exception, match=r"(?i)constraint"):
        torch.export.export(Call(), (Q.detach(),), dynamic_shapes=({2: torch.export.Dim("rows", min=2, max=64)},),
                            strict=strict)


def test_compilers_are_not_imported_for_a_call():
    call = ("import sys, torch, attn; x = torch.ones(1, 1, 2, 4, requires_grad=True); "
            "attn.attention(x, x, x, softcap=2.0).sum().backward()")
    result = subprocess.run([sys.executable, "-c",
                             f"{call}; print(*({{'sympy', 'torch._dynamo'}} & set(sys.modules)))"], capture_output=True,
                            text=True)
    assert result.returncode == 0 and result.stdout == "\n", result.stdout + result.stderr


def exported(name, tmp_path):
    """A saved graph of CALLS[name], and what it says in another process, whose table has other objects."""

    class Call(torch.nn.Module):
        def forward(self, *inputs):
            return CALLS[name][0](*inputs)

    inputs = tuple(x.detach() for x in CALLS[name][1])
    torch.export.save(torch.export.export(Call(), inputs), tmp_path / "call.pt2")
    torch.save((inputs, CALLS[name][0](*inputs)), tmp_path / "call.pt")
    program = """
import sys, torch, attn.torch
inputs, expected = torch.load(sys.argv[2])
x = torch.zeros(1, 1, 2, 2)
mask = attn.Mask.attend(torch.zeros(2, 2, dtype=torch.bool))
torch.compile(lambda x: attn.attention(x, x, x, mask=mask), backend="aot_eager")(x)
print(torch.equal(torch.export.load(sys.argv[1]).module()(*inputs), expected))
"""
    return subprocess.run([sys.executable, "-W", "ignore", "-c", program, tmp_path / "call.pt2", tmp_path / "call.pt"],
                          capture_output=True, text=True)


@pytest.mark.parametrize("name",
                         ["a mask in words, softcap, temperature", "a mask from outside", "a function",
                          "an expression in words"])
def test_a_saved_graph_is_read_elsewhere(name, tmp_path):
    result = exported(name, tmp_path)
    assert result.stdout == "True\n", result.stderr


def test_a_saved_graph_with_arrays_of_its_process_says_so(tmp_path):
    result = exported("ALiBi from outside", tmp_path)
    assert ("ValueError: attention: a saved graph names a Mask, Bias, Score, "
            "Weights or function of the process that made it, with arrays"
            in result.stderr)


def test_shapes_without_values():
    meta = [x.detach().to("meta") for x in (Q, K, V)]
    for name in ("plain", "weights", "sums of columns", "rows"):
        for ours, expected in zip(several(CALLS[name][0](*meta)), several(CALLS[name][0](Q, K, V)), strict=True):
            assert ours.is_meta and ours.shape == expected.shape and ours.dtype == expected.dtype
    half = Q.detach().bfloat16()
    with torch._subclasses.FakeTensorMode():
        fake = torch.empty(B, H, T, D, dtype=torch.bfloat16)
        results = attn.attention(fake, fake, fake, weights="full", return_logsumexp=True)
    for ours, expected in zip(results, attn.attention(half, half, half, weights="full", return_logsumexp=True),
                              strict=True):
        assert ours.shape == expected.shape and ours.dtype == expected.dtype


def test_the_operators_pass_torchs_own_checks():
    texts = ["-"] * len(attn._core.attention_options)
    texts[attn._core.attention_options.index("softcap")] = "f2.5"
    texts[attn._core.attention_options.index("weights")] = "sfull"
    texts = "\x1f".join(texts)
    torch.library.opcheck(torch.ops.attn.general.default, ([Q, K, V], texts))
    grad = torch.ones(B, H, T, D + 1, dtype=torch.float64)
    backward = ([grad], [0], [Q, K, V], texts, [0, 2], torch.empty(0, dtype=torch.int64))
    torch.library.opcheck(torch.ops.attn.general_backward.default, backward,
                          test_utils=("test_schema", "test_faketensor"))
    assert all(torch.isfinite(x).all() for x in torch.ops.attn.general_backward(*backward))


def test_fake_tensors_outside_their_mode():
    """As torch's function: what comes out has shapes alone; where values are read it says so."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(1, 2, 3, 4)
    y, lse = attn.attention(q.requires_grad_(), q, q, mask="causal", return_logsumexp=True)
    assert type(y) is type(lse) is type(q) and y.shape == q.shape and lse.shape == (1, 2, 3)
    assert torch.autograd.grad(y.sum(), q)[0].shape == q.shape
    with pytest.raises(TypeError,
                       match="attention_scores: q is a .*FakeTensor without values; a tensor in memory is needed"):
        attn.attention_scores(q, q)
    # what the results' shapes are made of is told as where there are values
    for weights in ("sum", 3, True, np.zeros(3), torch.zeros(2)):
        with pytest.raises((TypeError, ValueError)) as told:
            attn.attention(Q, K, V, weights=weights)
        for x in (q, Q.detach().to("meta")):
            with pytest.raises(told.type, match=f"^{re.escape(str(told.value))}$"):
                attn.attention(x, x, x, weights=weights)
