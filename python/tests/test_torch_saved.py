# python/tests/test_torch_saved.py: what attn.attention keeps between its passes is torch's:
# hooks, checkpoints, save_on_cpu, retain_graph.
import contextlib
import weakref

import pytest

torch = pytest.importorskip("torch")

import attn

LEARNED = [torch.randn(6, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True),
           torch.randn(6, requires_grad=True)]
CALLS = {
    "plain": lambda q, k, bias: attn.attention(q, k, k),
    "a bias": lambda q, k, bias: attn.attention(q, k, k, bias=bias, mask="causal"),
    "weights": lambda q, k, bias: attn.attention(q, k, k, bias=bias, weights="full", return_logsumexp=True),
    "the largest weights": lambda q, k, bias: (
        lambda y, w: (y, w[0]))(*attn.attention(q, k, k, weights=attn.Weights.top_k(2))),
    "dropout": lambda q, k, bias: attn.attention(q, k, k, bias=bias, dropout_p=0.5, dropout_seed=3),
    "a function": lambda q, k, bias: attn.attention(q, k, k, bias=bias, score_mod=lambda s, b, h, i, j: attn.tanh(s)),
    "additive": lambda q, k, bias: attn.additive_attention(q, k, k, *(x.to(q.dtype) for x in LEARNED), bias=bias),
    "rank 3": lambda q, k, bias: attn.attention(q[0], k[0], k[0], bias=bias),
    "packed": lambda q, k, bias: attn.attention(q, k, k, cu_seqlens_q=torch.tensor([0, 2, 9])),
    "rows apart": lambda q, k, bias: attn.attention(q.mT.contiguous().mT, k, k, bias=bias),
}


def keep(x):
    """Elsewhere: bytes that no tensor holds."""
    return x.dtype, x.shape, x.detach().contiguous().view(torch.uint8).numpy().tobytes() if x.numel() else b""


def give(kept):
    dtype, shape, held = kept
    return torch.frombuffer(bytearray(held), dtype=dtype).view(shape) if held else torch.empty(shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_hooks_have_all_that_is_held(name, dtype):
    """What they give back is what the passes read; q, k, v and a bias of tensors are let go."""
    x, bias = (torch.randn(sizes, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
               for sizes in ((1, 2, 9, 4), (2, 9, 9)))
    runs = []
    for hooks in (contextlib.nullcontext(), torch.autograd.graph.saved_tensors_hooks(keep, give)):
        q, k, b = x * 2, x * 3, bias * 1
        there = [weakref.ref(t) for t in (q, k, b)]
        with hooks:
            results = CALLS[name](q, k, b)
        del q, k, b
        assert not runs or all(t() is None for t in there)
        results = results if isinstance(results, tuple) else (results,)
        loss = sum((y.float() * torch.linspace(0, 1, y.numel()).view(y.shape)).sum() for y in results)
        first = torch.autograd.grad(loss, (x, bias), create_graph=True, allow_unused=True)
        second = torch.autograd.grad(first[0].square().sum(), (x, bias), allow_unused=True)
        runs.append((*results, *(x for x in (*first, *second) if x is not None)))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_a_checkpoint_runs_the_call_again():
    q, k = (torch.randn(1, 2, 9, 4, requires_grad=True) for _ in range(2))
    call = lambda q, k: attn.attention(q * 2, k, k * 3, dropout_p=0.3, softcap=2.0).sin()
    found, ran = [], []
    for checkpoint in (lambda f, *x, **_: f(*x), torch.utils.checkpoint.checkpoint):
        torch.manual_seed(1)
        y = checkpoint(lambda *x: (ran.append(1), call(*x))[1], q, k, use_reentrant=False)
        found.append(torch.autograd.grad(y.sum(), (q, k)))
    assert all(torch.equal(a, b) for a, b in zip(*found)) and len(ran) == 3


def test_a_second_pass_asks_for_retain_graph():
    x = torch.randn(1, 2, 3, 4, requires_grad=True)
    y = attn.attention(x, x, x, softcap=3.0).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
