# python/tests/test_torch_autograd.py: attn under torch's autograd, compiler and transforms.
import gc
import threading
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch
from error_rule import assert_as_close_as

F = torch.nn.functional


def operands(Hq=2, Hk=1, L=3, S=4, E=2, Ev=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    make = lambda *sizes: torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return make(1, Hq, L, E), make(1, Hk, S, E), make(1, Hk, S, Ev)


CALLS = {
    "plain": lambda q, k, v: attn.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    "causal": lambda q, k, v: attn.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.7, enable_gqa=True),
    "bool mask": lambda q, k, v: attn.scaled_dot_product_attention(
        q, k, v, torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]).bool(), enable_gqa=True),
    "own score": lambda q, k, v: attn.attention(q, k, v, softcap=2.0, mask=attn.Mask.causal("bottom_right"),
                                                sinks=torch.tensor([0.3, -0.5], dtype=torch.float64)),
    "window": lambda q, k, v: attn.attention(q, k, v, mask=attn.Mask.window(1, 1, "bottom_right"), temperature=2.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradcheck_and_gradgradcheck(name):
    inputs = operands()
    assert torch.autograd.gradcheck(CALLS[name], inputs)
    assert torch.autograd.gradgradcheck(CALLS[name], inputs)


def test_gradcheck_of_a_float_mask():
    q, k, v = operands()
    mask = torch.randn(2, 1, 4, dtype=torch.float64, requires_grad=True)
    call = lambda *x: attn.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=True)
    assert torch.autograd.gradcheck(call, (q, k, v, mask))
    assert torch.autograd.gradgradcheck(call, (q, k, v, mask))


def test_gradcheck_of_the_operator_with_everything():
    q, k, v = operands()
    bias, sinks = (torch.randn(2, 1, 4, dtype=torch.float64, requires_grad=True),
                   torch.randn(2, dtype=torch.float64, requires_grad=True))
    mask, seed = torch.rand(1, 1, 3, 4) > 0.2, torch.tensor(-77)

    def call(weights):
        def run(q, k, v, bias, sinks):
            results = torch.ops.attn.attention(q, k, v, mask, bias, sinks, seed, 0.3, 5.0, True, 4, -1, True, 0.3,
                                               weights)
            return results[:2] if weights else results[0]

        return run

    for weights in (0, 1, 2):
        assert torch.autograd.gradcheck(call(weights), (q, k, v, bias, sinks))
        assert torch.autograd.gradgradcheck(call(weights), (q, k, v, bias, sinks))


def test_gradients_of_biases_sinks_and_scores():
    q, k, v = operands(Hq=2, Hk=2)
    slopes, sinks = (torch.rand(2, dtype=torch.float64, requires_grad=True),
                     torch.randn(2, dtype=torch.float64, requires_grad=True))
    w_q, w_k, w = (torch.randn(*sizes, dtype=torch.float64, requires_grad=True) for sizes in ((3, 2), (3, 2), (3,)))
    call = lambda q, k, v, slopes, sinks: attn.attention(q, k, v, bias=attn.Bias.alibi(slopes, "bottom_right"),
                                                         sinks=sinks, return_logsumexp=True)
    assert torch.autograd.gradcheck(call, (q, k, v, slopes, sinks))
    additive = lambda *x: attn.additive_attention(*x)
    assert torch.autograd.gradcheck(additive, (q, k, v, w_q, w_k, w))


def test_a_changed_input_is_noticed():
    q, k, v = operands()
    for call in (CALLS["plain"], CALLS["own score"]):
        x = q.detach().clone().requires_grad_()
        output = call(x, k, v)
        with torch.no_grad():
            x.mul_(2)
        with pytest.raises(RuntimeError, match="in.?place"):
            output.sum().backward()


def test_compiles_to_one_graph():
    q, k, v = operands(L=8, S=8, E=4, Ev=4, dtype=torch.float32)

    def step(q, k, v):
        y = attn.torch.scaled_dot_product_attention(q.sin(), k, v, is_causal=True, enable_gqa=True)
        return attn.torch.linear(y, torch.ones(3, 4), torch.ones(3)).cos()

    compiled = torch.compile(step, fullgraph=True)
    ours, expected = compiled(q, k, v), step(q, k, v)
    assert_as_close_as(ours, expected, expected.double())
    grads, wanted = (torch.autograd.grad(x.sum(), (q, k, v)) for x in (ours, expected))
    for a, b in zip(grads, wanted):
        assert (a - b).abs().max() <= 8 * torch.finfo(torch.float32).eps * b.abs().max()


def test_operators_pass_torchs_own_checks():
    q, k, v = operands()
    seed = torch.tensor(3)
    torch.library.opcheck(torch.ops.attn.attention.default,
                          (q, k, v, None, None, None, seed, 0.5, 0.0, True, -1, -1, False, 0.0, 0))
    torch.library.opcheck(torch.ops.attn.linear.default,
                          (torch.randn(3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True),
                           torch.randn(5, requires_grad=True)))


def test_vmap_and_functional_gradients():
    x = torch.randn(5, 3, 2, 6, 4)
    call = lambda q, k, v: attn.torch.scaled_dot_product_attention(q, k, v, is_causal=True)
    mapped = torch.func.vmap(call)(x, x, x)
    assert torch.equal(mapped, torch.stack([call(y, y, y) for y in x]))
    shared = torch.func.vmap(call, in_dims=(0, None, 0))(x, x[0], x)
    assert torch.equal(shared, torch.stack([call(y, x[0], y) for y in x]))
    loss = lambda q, k, v: call(q, k, v).square().sum()
    per_sample = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(x, x, x)
    for n, y in enumerate(x):
        for a, b in zip(per_sample, torch.func.grad(loss, argnums=(0, 1, 2))(y, y, y)):
            assert torch.equal(a[n], b)
    mask = torch.rand(5, 6, 6) > 0.3
    masked = torch.func.vmap(lambda q, m: attn.torch.scaled_dot_product_attention(q, q, q, m))(x, mask)
    assert torch.equal(masked,
                       torch.stack([attn.torch.scaled_dot_product_attention(y, y, y, m) for y, m in zip(x, mask)]))


def test_dropout_is_seeded_by_torch_and_repeated_backwards():
    q, k, v = (torch.randn(2, 3, 64, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    call = lambda: attn.torch.scaled_dot_product_attention(q, k,
                                                           torch.eye(64, dtype=torch.float64).expand(2, 3, 64, 64),
                                                           dropout_p=0.25)
    torch.manual_seed(1)
    first = call()
    torch.manual_seed(1)
    assert torch.equal(call(), first) and not torch.equal(call(), first)
    assert abs((first == 0).double().mean() - 0.25) < 0.01
    with torch.no_grad():
        torch.manual_seed(1)
        assert torch.equal(call(), first)
    # The values times the kept weights: their gradient is what was kept.
    torch.manual_seed(1)
    weighted = attn.torch.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    grad = torch.randn_like(weighted)
    (dv,) = torch.autograd.grad(weighted, v, grad)
    assert (dv - first.transpose(-1, -2) @ grad).abs().max() < 1e-12
    assert torch.equal(attn.torch.scaled_dot_product_attention(q, k, v, dropout_p=1.0), torch.zeros_like(v))


def test_lazy_views_and_strides():
    x = torch.randn(2, 3, 5, 4, dtype=torch.complex64)
    negated = torch.imag(x.conj())
    assert negated.is_neg()
    q = torch.randn(2, 3, 5, 4)
    assert torch.equal(attn.torch.scaled_dot_product_attention(negated, q, q),
                       attn.torch.scaled_dot_product_attention(negated.clone(), q, q))
    y = negated.detach().requires_grad_()
    attn.torch.scaled_dot_product_attention(y, q, q).sum().backward()
    z = negated.clone().detach().requires_grad_()
    attn.torch.scaled_dot_product_attention(z, q, q).sum().backward()
    assert torch.equal(y.grad, z.grad)
    columns = torch.randn(2, 3, 5, 8)[..., ::2]
    assert torch.equal(attn.torch.scaled_dot_product_attention(columns, q, q),
                       attn.torch.scaled_dot_product_attention(columns.contiguous(), q, q))


def test_output_is_laid_out_as_query():
    q = torch.randn(2, 5, 3, 4).transpose(1, 2)
    assert attn.torch.scaled_dot_product_attention(q, q, q).transpose(1, 2).is_contiguous()


def test_meta_tensors_have_shapes_and_other_devices_an_error():
    meta = torch.empty(2, 3, 5, 4, device="meta")
    assert attn.torch.scaled_dot_product_attention(meta, meta, meta).shape == (2, 3, 5, 4)
    with torch._subclasses.FakeTensorMode():
        fake = torch.empty(2, 3, 5, 4)
        assert attn.torch.scaled_dot_product_attention(fake, fake, fake).shape == (2, 3, 5, 4)
        gpu = torch.empty(2, 3, 5, 4, device="cuda") if torch.cuda.is_available() else None
    if gpu is not None:
        with pytest.raises(ValueError, match="attn computes on the CPU"):
            attn.torch.scaled_dot_product_attention(gpu, gpu, gpu)
    with pytest.raises(TypeError, match="to_dense"):
        attn.torch.scaled_dot_product_attention(torch.eye(3).to_sparse(), torch.eye(3), torch.eye(3))


def test_autocast():
    q = torch.randn(1, 2, 8, 4, requires_grad=True)
    w = torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = attn.torch.scaled_dot_product_attention(q, q, q)
        z = attn.torch.linear(q, w)
        assert y.dtype == F.scaled_dot_product_attention(q, q, q).dtype == torch.bfloat16
        assert z.dtype == F.linear(q, w).dtype == torch.bfloat16
    y.float().sum().backward()
    assert q.grad.dtype == torch.float32


def test_wrong_calls():
    x = torch.zeros(2, 3, 4)
    sdpa = attn.torch.scaled_dot_product_attention
    for grad in (False, True):
        q = x.clone().requires_grad_(grad)
        for error, text, call in (
            (ValueError, "its last dim must be 4", lambda: sdpa(q, torch.zeros(2, 3, 5), x)),
            (ValueError, "rows must be 3", lambda: sdpa(q, x, torch.zeros(2, 4, 4))),
            (TypeError, "as query", lambda: sdpa(q, x.double(), x)),
            (ValueError, "must broadcast to the scores", lambda: sdpa(q, x, x, torch.zeros(5, 3, dtype=torch.bool))),
            (TypeError, "attn_mask", lambda: sdpa(q, x, x, torch.zeros(3, 3, dtype=torch.int64))),
            (ValueError, "dropout_p", lambda: sdpa(q, x, x, dropout_p=1.5)),
            (ValueError, "2 or more dims", lambda: sdpa(q[0, 0], x, x)),
            (ValueError, "must divide", lambda: sdpa(q, torch.zeros(3, 3, 4), x, enable_gqa=True)),
        ):
            with pytest.raises(error, match=text):
                call()


def test_threads():
    q, k, v = (torch.randn(2, 4, 96, 16) for _ in range(3))
    expected = attn.torch.scaled_dot_product_attention(q, k, v)
    leaf = q.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(attn.torch.scaled_dot_product_attention(leaf, k, v).sum(), leaf)
    wrong = []

    def work():
        for _ in range(25):
            mine = q.clone().requires_grad_()
            output = attn.torch.scaled_dot_product_attention(mine, k, v)
            (grad,) = torch.autograd.grad(output.sum(), mine)
            if not (torch.equal(output, expected) and torch.equal(grad, wanted)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_leaks():
    resource = pytest.importorskip("resource")
    q = torch.randn(1, 2, 32, 16, requires_grad=True)

    def rounds(count):
        for _ in range(count):
            q.grad = None
            attn.torch.scaled_dot_product_attention(q, q, q, dropout_p=0.1).sum().backward()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = rounds(500)
    assert rounds(2000) - before < 4096, "kilobytes; a call's memory is 8 kB"


CALLS_OF_ONE = {
    "attention": lambda x: attn.attention(x, x, x, softcap=3.0),
    "attention with weights": lambda x: attn.attention(x, x, x, weights="full", return_logsumexp=True)[0],
    "scaled_dot_product_attention": lambda x: attn.torch.scaled_dot_product_attention(x, x, x),
    "MultiheadAttention": lambda x: attn.torch.MultiheadAttention(4, 2, batch_first=True)(x[0], x[0], x[0])[0],
}


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "and back"])
@pytest.mark.parametrize("name", CALLS_OF_ONE)
def test_a_graph_goes_with_its_output(name, backward):
    """At once, not when Python looks for cycles: each of a training's steps has megabytes of it."""
    x = torch.randn(1, 2, 3, 4, requires_grad=True)
    there = weakref.ref(x)
    gc.disable()
    try:
        y = CALLS_OF_ONE[name](x)
        if backward:
            y.sum().backward()
        del x, y
        assert there() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["attention", "attention with weights", "scaled_dot_product_attention"])
def test_an_output_that_was_changed_in_place_is_an_error(name):
    x = torch.randn(1, 2, 3, 4, requires_grad=True)
    for change in (torch.relu_, lambda y: y.add_(1), lambda y: y[0].zero_()):
        y = CALLS_OF_ONE[name](x)
        change(y)
        with pytest.raises(RuntimeError,
                           match="the output of shape .* was changed in place|modified by an inplace operation"):
            y.sum().backward()


READ_AGAIN = {
    "key_lengths": lambda of: (x := of([2]), {"key_lengths": x}),
    "bias": lambda of: (x := torch.zeros(3, 3), {"bias": attn.Bias.dense(x) + attn.Bias.alibi(2)}),
    "mask": lambda of: (x := of([[True] * 3] * 3),
                        {"mask": attn.Mask.causal() & ~attn.Mask.block(x) | attn.Mask.prefix(2)}),
    "mask of documents": lambda of: (x := of([0, 0, 2]), {"mask": attn.Mask.documents(of([0, 1, 2]), x)}),
    "mask of a prefix": lambda of: (x := of([2]), {"mask": attn.Mask.prefix(x)}),
    "score_mod": lambda of: (x := of([2, 3]), {"score_mod": lambda s, b, h, i, j: s * x[h]}),
    "weights": lambda of: (x := of([0, 2]), {"weights": attn.Weights.rows(x)}),
}


@pytest.mark.parametrize("of", [torch.tensor, np.array], ids=["torch", "numpy"])
@pytest.mark.parametrize("name", READ_AGAIN)
def test_what_the_backward_pass_reads_again_must_stay(name, of):
    x = torch.randn(1, 2, 3, 4, requires_grad=True)
    array, options = READ_AGAIN[name](of)
    y = attn.attention(x, x, x, **options)
    array[...] = 0
    with pytest.raises(RuntimeError,
                       match=f"attention: (the array of )?{name.split()[0]} of shape .* was changed in place"):
        (y[0] if isinstance(y, tuple) else y).sum().backward()


def test_what_the_second_backward_pass_reads_again_must_stay():
    for changed in ("q", "a gradient"):
        q, flow = torch.randn(1, 2, 3, 4, requires_grad=True), torch.randn(1, 2, 3, 4, requires_grad=True)
        (found,) = torch.autograd.grad(attn.attention(q, q.detach(), q.detach()), q, flow, create_graph=True)
        with torch.no_grad():
            (q if changed == "q" else flow).mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation|was changed in place after the call"):
            found.sum().backward()


def test_what_the_backward_pass_reads_again_is_held():
    """Lengths of NumPy, copies that were made for the call, memory that x.data = y takes away."""
    x = torch.randn(1, 2, 300, 4)

    def gradients(lengths, lazy, swapped):
        q, k = x.clone().requires_grad_(), (torch.complex(x, -x).conj().imag if lazy else x.clone()).requires_grad_()
        y = attn.attention(q, k, x, key_lengths=lengths())
        if swapped:
            q.data = torch.zeros_like(q)
        others = [torch.full_like(x, 7) for _ in range(20)], [np.full(1, 7) for _ in range(1000)]
        found = torch.autograd.grad(y.square().sum(), (q, k))
        del others
        return found

    def unaligned():
        lengths = np.zeros(9, np.uint8)[1:].view(np.int64)
        lengths[:] = 200
        return lengths

    expected = gradients(lambda: torch.tensor([200]), False, False)
    for case in ((lambda: np.array([200]), False, False), (unaligned, False, False),
                 (lambda: torch.tensor([200]), True, False), (lambda: torch.tensor([200]), False, True)):
        assert all(torch.equal(a, b) for a, b in zip(gradients(*case), expected))


def test_a_parameter_that_a_function_reaches_by_an_attribute_has_its_gradient():
    module = torch.nn.ParameterDict({"gain": torch.tensor(0.7)})
    x, gain, found = torch.randn(1, 2, 3, 4), module["gain"], []
    for function in (lambda s, b, h, i, j: s * gain, lambda s, b, h, i, j: s * module["gain"],
                     lambda s, b, h, i, j: s * module.gain):
        found.append(torch.autograd.grad(attn.attention(x, x, x, score_mod=function).square().sum(), gain)[0])
    assert found[0] != 0 and found[0] == found[1] == found[2]


def test_the_largest_weights_have_gradients():
    found = []
    for weights in (attn.Weights.top_k(2), "full"):
        x = torch.randn(1, 2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
        w = attn.attention(x, x, x, weights=weights)[1]
        largest = w[0] if isinstance(w, tuple) else w.topk(2).values
        found.append(torch.autograd.grad(largest.square().sum(), x)[0])
    assert torch.allclose(*found, rtol=1e-12)


def test_slopes_of_float32_beside_doubles_are_widened():
    """Also where the gradient is that of the weights."""
    x = torch.randn(1, 2, 9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    slopes, i = torch.tensor([0.3, 0.1]), torch.arange(9, dtype=torch.float64)
    weights = (x @ x.mT / 2 - slopes.double().view(2, 1, 1) * (i[:, None] - i)).softmax(-1)
    (expected,) = torch.autograd.grad(weights.square().sum(), x)
    (found,) = torch.autograd.grad(attn.attention(x, x, x, bias=attn.Bias.alibi(slopes),
                                                  weights="full")[1].square().sum(), x)
    assert torch.allclose(found, expected, rtol=1e-13, atol=1e-14)


def test_an_output_without_rows_has_gradients_too():
    gain, x = torch.ones(2, requires_grad=True), torch.ones(1, 2, 0, 4)
    for order in (False, True):
        (found,) = torch.autograd.grad(attn.attention(x, x, x, score_mod=lambda s, b, h, i, j: s * gain[h]).sum(), gain,
                                       create_graph=order, allow_unused=True)
        assert found is None or not found.any()
