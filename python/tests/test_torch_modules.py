# python/tests/test_torch_modules.py: attn.torch.MultiheadAttention, linear and patch against torch's own.
import copy
import io
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")

import attn.torch
from error_rule import assert_as_close_as

F = torch.nn.functional
KINDS = {
    "batch first": dict(batch_first=True),
    "rows first": dict(),
    "other sizes": dict(kdim=6, vdim=10, batch_first=True),
    "one other size": dict(vdim=10),
    "learned and zero keys": dict(add_bias_kv=True, add_zero_attn=True, bias=False),
    "odd heads": dict(num_heads=1, batch_first=True),
}
N, L, S, E, H = 3, 5, 7, 16, 4
PADDING = torch.tensor([[False] * 7, [False] * 5 + [True] * 2, [False] * 3 + [True] * 4])


def masks(heads):
    generator = torch.Generator().manual_seed(3)
    hidden = torch.rand(L, S, generator=generator) > 0.7
    hidden[:, 0] = False
    return {
        "none": {},
        "bool": dict(attn_mask=hidden),
        "float of each head": dict(attn_mask=torch.randn(N * heads, L, S, generator=generator)),
        "padding": dict(key_padding_mask=PADDING),
        "float padding": dict(key_padding_mask=torch.zeros(N, S).masked_fill(PADDING, -torch.inf)),
        "both": dict(attn_mask=hidden, key_padding_mask=PADDING),
    }


def pair(kind, dtype=torch.float32):
    torch.manual_seed(0)
    arguments = {"num_heads": H, **KINDS[kind]}
    theirs, ours = torch.nn.MultiheadAttention(E, **arguments), attn.torch.MultiheadAttention(E, **arguments)
    ours.load_state_dict(theirs.state_dict())
    return theirs.to(dtype), ours.to(dtype)


def inputs(module, self_attention=False, batched=True):
    generator = torch.Generator().manual_seed(1)
    rows = S if self_attention else L
    q = torch.randn(N, rows, E, generator=generator)
    k, v = (q, q) if self_attention else (torch.randn(N, S, module.kdim, generator=generator),
                                          torch.randn(N, S, module.vdim, generator=generator))
    if not batched:
        q, k, v = q[0], k[0], v[0]
    elif not module.batch_first:
        q, k, v = (q.transpose(0, 1),) * 3 if self_attention else (x.transpose(0, 1) for x in (q, k, v))
    return [q, k, v]


def run(module, tensors, dtype, **call):
    call = {name: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for name, x in call.items()}
    leaves = {}
    given = [leaves.setdefault(id(x), x.detach().to(dtype).requires_grad_()) for x in tensors]
    output, weights = module(*given, **call)
    results = [output] if weights is None else [output, weights]
    loss = sum((x.square() if n == 0 else x.sin()).sum() for n, x in enumerate(results))
    module.zero_grad()
    grads = torch.autograd.grad(loss, [*leaves.values(), *module.parameters()])
    return results + list(grads), weights


@pytest.mark.parametrize("kind", KINDS)
def test_as_torch(kind):
    theirs, ours = pair(kind)
    truth = copy.deepcopy(theirs).double()
    for name, given in masks(theirs.num_heads).items():
        for how in (dict(need_weights=False), dict(), dict(average_attn_weights=False)):
            tensors = inputs(theirs)
            (a, aw), (b, bw), (c, _) = (run(ours, tensors, torch.float32, **given, **how),
                                        run(theirs, tensors, torch.float32, **given, **how),
                                        run(truth, tensors, torch.float64, **given, **how))
            assert (aw is None) == (bw is None)
            for n, (x, y, z) in enumerate(zip(a, b, c)):
                close(x, y, z, f"{kind}, {name}, {how}: {n}")


def close(x, y, z, label):
    """The error rule, with the error that rounding x's size of numbers gives at least:
    gradients here are sums of many that cancel."""
    assert x.shape == y.shape
    scale = max(z.abs().max().item(), 1.0)
    error, theirs = ((t.detach().double() - z).abs().max().item() for t in (x, y))
    assert error <= 2 * theirs + 4 * torch.finfo(torch.float32).eps * scale, (label, error, theirs, scale)


@pytest.mark.parametrize("kind", ["batch first", "rows first", "learned and zero keys", "odd heads"])
def test_self_attention_unbatched_and_eval(kind):
    theirs, ours = pair(kind)
    for batched in (True, False):
        for training in (True, False):
            for how in (dict(need_weights=False), dict()):
                x = inputs(theirs, self_attention=True, batched=batched)[0]
                theirs.train(training), ours.train(training)
                with torch.no_grad():
                    (a, aw), (b, bw) = ours(x, x, x, **how), theirs(x, x, x, **how)
                assert a.shape == b.shape and (a - b).abs().max() < 1e-6
                assert (aw is None) == (bw is None) and (aw is None or (aw - bw).abs().max() < 1e-6)


def test_a_causal_hint():
    theirs, ours = pair("batch first")
    x = inputs(theirs, self_attention=True)[0]
    mask = torch.nn.Transformer.generate_square_subsequent_mask(S)
    for how in (dict(need_weights=False), dict()):
        assert ((ours(x, x, x, attn_mask=mask, is_causal=True, **how)[0]
                 - theirs(x, x, x, attn_mask=mask, is_causal=True, **how)[0]).abs().max()
                < 1e-6)
    with pytest.raises(ValueError, match="is_causal is a hint"):
        ours(x, x, x, is_causal=True)


def test_a_fully_masked_sample_gives_the_bias():
    _, ours = pair("batch first")
    with torch.no_grad():
        ours.out_proj.bias.fill_(0.5)
    x = inputs(ours, self_attention=True)[0].requires_grad_()
    padding = torch.zeros(N, S, dtype=torch.bool)
    padding[1] = True
    x.data[0, 0, 0] = 1.0
    output, weights = ours(x, x, x, key_padding_mask=padding)
    assert (torch.equal(output[1], torch.full_like(output[1], 0.5))
            and torch.equal(weights[1], torch.zeros_like(weights[1])))
    output.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_dropout_in_training_only():
    torch.manual_seed(0)
    module = attn.torch.MultiheadAttention(E, H, dropout=0.5, batch_first=True)
    x = torch.randn(N, 40, E)
    torch.manual_seed(1)
    a, weights = module(x, x, x, average_attn_weights=False)
    torch.manual_seed(1)
    assert torch.equal(module(x, x, x, need_weights=False)[0], a)
    assert 0.45 < (weights == 0).float().mean() < 0.55
    module.eval()
    assert torch.equal(module(x, x, x)[0], module(x, x, x)[0])


def test_states_pickles_and_copies():
    theirs, ours = pair("batch first")
    assert isinstance(ours, torch.nn.MultiheadAttention) and list(ours.state_dict()) == list(theirs.state_dict())
    x = inputs(ours, self_attention=True)[0]
    expected = ours(x, x, x)[0]
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), torch.load(file, weights_only=False)):
        assert type(other) is attn.torch.MultiheadAttention and torch.equal(other(x, x, x)[0], expected)
    layer = torch.nn.TransformerEncoderLayer(E, H, batch_first=True, dropout=0.0)
    wanted = layer(x)
    layer.self_attn = pickle.loads(pickle.dumps(ours))
    layer.self_attn.load_state_dict(torch.nn.TransformerEncoderLayer(E, H).self_attn.state_dict())
    assert layer(x).shape == wanted.shape


def test_the_module_compiles_to_one_graph():
    _, ours = pair("batch first")
    x = inputs(ours, self_attention=True)[0]
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    (a, aw), (b, bw) = compiled(x, x, x, key_padding_mask=PADDING), ours(x, x, x, key_padding_mask=PADDING)
    assert (a - b).abs().max() < 1e-6 and (aw - bw).abs().max() < 1e-6
    grads = [torch.autograd.grad(y.sum(), list(ours.parameters())) for y in (a, b)]
    assert all((x - y).abs().max() < 1e-4 for x, y in zip(*grads))


def test_compiled_with_dropout_and_weights():
    """Their gradients go by the definition, which asks the library what dropout kept:
    an operator, since a trace has no memory."""
    torch.manual_seed(0)
    ours = attn.torch.MultiheadAttention(E, H, dropout=0.4, batch_first=True)
    x = torch.randn(N, L, E, requires_grad=True)
    results = []
    for module in (ours, torch.compile(ours, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(1)
        y, weights = module(x, x, x)
        results.append([y, weights, *torch.autograd.grad(y.sin().sum() + weights.cos().sum(), [x, *ours.parameters()])])
    assert all((a - b).abs().max() < 1e-6 for a, b in zip(*results))


def test_wrong_calls_of_the_module():
    _, ours = pair("batch first")
    q, k, v = inputs(ours)
    for error, text, call in (
        (ValueError, "query has shape", lambda: ours(q[..., :3], k, v)),
        (ValueError, "rows must be as many", lambda: ours(q, k, v[:, 1:])),
        (ValueError, "attn_mask has shape", lambda: ours(q, k, v, attn_mask=torch.zeros(S, L))),
        (TypeError, "key_padding_mask is torch.int64",
         lambda: ours(q, k, v, key_padding_mask=torch.zeros(N, S, dtype=torch.int64))),
        (ValueError, "its batch must be", lambda: ours(q, k[1:], v[1:])),
    ):
        with pytest.raises(error, match=text):
            call()


# --- linear -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(40,), (9, 40), (3, 5, 40), (0, 40)])
def test_linear(dtype, shape):
    torch.manual_seed(0)
    x, w, b = (torch.randn(*s, dtype=dtype, requires_grad=True) for s in (shape, (30, 40), (30,)))
    grad = torch.randn(*shape[:-1], 30, dtype=dtype)
    truth = [t.detach().double().requires_grad_() for t in (x, w, b)]
    for bias in (True, False):
        a, c, z = (f(t[0], t[1], t[2] if bias else None)
                   for f, t in ((attn.torch.linear, (x, w, b)), (F.linear, (x, w, b)), (F.linear, truth)))
        wanted = [[x, w, b], [x, w, b], truth]
        results = [[y, *torch.autograd.grad(y, t[: 3 if bias else 2], grad.to(y.dtype))]
                   for y, t in zip((a, c, z), wanted)]
        for ours, theirs, exact in zip(*results):
            if dtype is torch.float64:
                assert ((ours - theirs).abs().max() <= 64 * torch.finfo(dtype).eps * exact.abs().max() if exact.numel()
                        else True)
            else:
                assert_as_close_as(ours, theirs, exact, f"linear {dtype} {shape}")


def test_gradients_of_linear():
    x, w, b = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((2, 3, 4), (5, 4), (5,)))
    assert (torch.autograd.gradcheck(attn.torch.linear, (x, w, b))
            and torch.autograd.gradgradcheck(attn.torch.linear, (x, w, b)))


def test_a_row_has_the_same_bits_in_any_batch():
    x, w, b = torch.randn(64, 96), torch.randn(80, 96), torch.randn(80)
    whole = attn.torch.linear(x, w, b)
    assert all(torch.equal(attn.torch.linear(x[n : n + 1], w, b)[0], whole[n]) for n in range(64))


# --- patch ------------------------------------------------------------------------------------------------------------


def test_patch_and_undo():
    sdpa, linear = F.scaled_dot_product_attention, F.linear
    x = torch.randn(2, 3, 5, 8)
    with attn.torch.patch(linear=True) as outer:
        assert F.scaled_dot_product_attention is not sdpa and F.linear is not linear
        assert torch.equal(F.scaled_dot_product_attention(x, x, x, scale=0.5),
                           attn.torch.scaled_dot_product_attention(x, x, x, scale=0.5))
        layer = torch.nn.Linear(8, 4)
        assert torch.equal(layer(x), attn.torch.linear(x, layer.weight, layer.bias))
        with attn.torch.patch():
            pass
        assert F.scaled_dot_product_attention is not sdpa, "the outer one still holds"
        outer.undo()
        assert F.scaled_dot_product_attention is sdpa and F.linear is linear
    assert F.scaled_dot_product_attention is sdpa and F.linear is linear, "twice is once"
    first, second = attn.torch.patch(), attn.torch.patch()
    first.undo()
    assert F.scaled_dot_product_attention is not sdpa
    second.undo()
    assert F.scaled_dot_product_attention is sdpa


def test_what_attn_does_not_take_goes_to_torch():
    class Own(torch.Tensor):
        pass

    with attn.torch.patch(linear=True):
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(2, 4))
        assert type(F.linear(torch.zeros(2, 3).as_subclass(Own), torch.zeros(4, 3))) is Own
        assert (F.linear(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64)).dtype
                is torch.float64)
        assert F.linear(torch.eye(3).to_sparse(), torch.eye(3)).shape == (3, 3)
        meta = torch.empty(1, 2, 3, 4, device="meta")
        assert F.scaled_dot_product_attention(meta, meta, meta).is_meta


def test_a_patched_model_trains_and_compiles():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True, dropout=0.0)
    x = torch.randn(2, 6, 16)
    layer(x).square().sum().backward()
    wanted = [p.grad.clone() for p in layer.parameters()]
    with attn.torch.patch(linear=True):
        layer.zero_grad()
        layer(x).square().sum().backward()
        assert all((p.grad - g).abs().max() <= 1e-4 * g.abs().max().clamp(min=1)
                   for p, g in zip(layer.parameters(), wanted))
        compiled = torch.compile(lambda q: F.linear(F.scaled_dot_product_attention(q, q, q), torch.ones(3, 8)),
                                 fullgraph=True, backend="aot_eager")
        q = torch.randn(2, 2, 5, 8)
        assert (compiled(q) - F.linear(F.scaled_dot_product_attention(q, q, q), torch.ones(3, 8))).abs().max() < 1e-5


def test_patches_of_many_threads():
    sdpa = F.scaled_dot_product_attention
    x = torch.randn(1, 2, 5, 8)
    expected = attn.torch.scaled_dot_product_attention(x, x, x)
    wrong = []

    def work():
        for _ in range(200):
            with attn.torch.patch():
                if not torch.equal(F.scaled_dot_product_attention(x, x, x), expected):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and F.scaled_dot_product_attention is sdpa


def test_an_empty_batch_with_padding():
    ours, x = attn.torch.MultiheadAttention(8, 2, batch_first=True), torch.zeros(0, 5, 8)
    y, weights = ours(x, x, x, key_padding_mask=torch.zeros(0, 5, dtype=torch.bool))
    assert (y.shape, weights.shape) == ((0, 5, 8), (0, 5, 5))
