# python/tests/test_recurrent.py: linear attention with a state and the causal convolution: against plain loops in
# float64, torch's gradients, splits to the bit, memory, mistakes.
import os
import subprocess
import sys

import numpy as np
import pytest

import attn

torch = pytest.importorskip("torch")

from error_rule import assert_as_close_as  # noqa: E402


def assert_close(ours, theirs, truth):
    assert_as_close_as(*map(torch.as_tensor, (ours, theirs, truth)))


def formula(q, k, v, g=None, beta=None, state=None, scale=None, exp=np.exp, stack=np.stack):
    """The recurrence of the documentation, in whatever q is."""
    group = v.shape[1] // q.shape[1]
    index = [h // group for h in range(v.shape[1])]
    q, k = q[:, index], k[:, index]
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = 0 * (k[:, :, 0, :, None] * v[:, :, 0, None, :]) if state is None else state
    rows = []
    for t in range(q.shape[2]):
        if g is not None:
            s = s * exp(g[:, :, t, :, None] if g.ndim == 4 else g[:, :, t, None, None])
        u = v[:, :, t]
        if beta is not None:
            u = (u - (s * k[:, :, t, :, None]).sum(-2)) * beta[:, :, t, None]
        s = s + k[:, :, t, :, None] * u[:, :, None, :]
        rows.append((s * q[:, :, t, :, None]).sum(-2))
    return stack(rows, 2), s


def operands(gate, delta, rows=70, batch=2, heads=(2, 4), dims=(8, 12), dtype=np.float32, seed=1):
    random = np.random.default_rng(seed)
    k_heads, v_heads = heads
    q, k = (random.standard_normal((batch, k_heads, rows, dims[0])) / 2 for _ in range(2))
    v = random.standard_normal((batch, v_heads, rows, dims[1]))
    sizes = {None: None, "head": (batch, v_heads, rows), "channel": (batch, v_heads, rows, dims[0])}[gate]
    g = None if sizes is None else -random.random(sizes)
    beta = random.random((batch, v_heads, rows)) if delta else None
    state = random.standard_normal((batch, v_heads, *dims))
    return [None if x is None else x.astype(dtype) for x in (q, k, v, g, beta, state)]


CASES = [(gate, delta) for gate in (None, "head", "channel") for delta in (False, True)]


@pytest.mark.parametrize("gate, delta", CASES)
def test_is_its_formula(gate, delta):
    given = operands(gate, delta)
    truth = formula(*(None if x is None else x.astype(np.float64) for x in given))
    naive = formula(*given)
    ours = attn.linear_attention(*given[:5], initial_state=given[5])
    for mine, theirs, true in zip(ours, naive, truth):
        assert_close(mine, theirs, true)


@pytest.mark.parametrize("gate, delta", CASES)
def test_goes_on_from_its_state(gate, delta):
    *given, state = operands(gate, delta)
    output, end = attn.linear_attention(*given, initial_state=state)
    for split in (0, 1, 37, 64, 70):
        part = lambda rows: [None if x is None else x[:, :, rows] for x in given]  # noqa: E731
        first, middle = attn.linear_attention(*part(slice(0, split)), initial_state=state)
        second, last = attn.linear_attention(*part(slice(split, None)), initial_state=middle)
        assert np.array_equal(np.concatenate((first, second), 2), output) and np.array_equal(last, end)


@pytest.mark.parametrize("gate, delta", CASES)
def test_gradients_are_torchs(gate, delta):
    given = [None if x is None else torch.from_numpy(x) for x in operands(gate, delta, rows=67, dtype=np.float64)]

    def gradients(call, dtype):
        leaves = [None if x is None else x.detach().clone().to(dtype).requires_grad_() for x in given]
        output, state = call(*leaves)
        weight = lambda x: torch.linspace(-1, 1, x.numel(), dtype=dtype).reshape(x.shape)  # noqa: E731
        ((output * weight(output)).sum() + (state * weight(state)).sum()).backward()
        return [x.grad for x in leaves if x is not None]

    plain = lambda *x: formula(*x, exp=torch.exp, stack=torch.stack)  # noqa: E731
    ours = lambda q, k, v, g, beta, s: attn.linear_attention(q, k, v, g, beta, initial_state=s)  # noqa: E731
    truth, naive = gradients(plain, torch.float64), gradients(plain, torch.float32)
    for mine, theirs, true in zip(gradients(ours, torch.float32), naive, truth):
        assert_close(mine, theirs, true)


def test_half_tensors_and_layouts():
    q, k, v, g, beta, _ = (torch.from_numpy(x).bfloat16() for x in operands("head", True))
    output, state = attn.gated_delta_rule(q, k, v, g, beta, l2norm=True)
    assert output.dtype is torch.bfloat16 and state.dtype is torch.float32
    transposed = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v, g, beta)]
    again, _ = attn.gated_delta_rule(*transposed, l2norm=True)
    assert torch.equal(again, output) and again.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("gate", ("head", "channel"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_gates_and_states_of_other_dtypes(gate, dtype):
    given = [torch.from_numpy(x) for x in operands(gate, True, dtype=np.float64)]
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for other in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        rows, rest = [x.to(dtype) for x in given[:3]], [x.to(other) for x in given[3:]]

        def run(of):
            x = [*(y.clone().requires_grad_() for y in rows), *(y.to(of).requires_grad_() for y in rest)]
            output, state = attn.linear_attention(*x[:5], initial_state=x[5], l2norm=True)
            return [output, state, *torch.autograd.grad(output.sum() + state.sum(), x)]

        for ours, same in zip(run(other), run(wide)):
            assert torch.equal(ours, same.to(ours.dtype)), other


def test_lengths_and_packed():
    q, k, v, g, beta, _ = operands("head", True)
    output, state = attn.gated_delta_rule(q, k, v, g, beta, lengths=[70, 20])
    assert not output[1, :, 20:].any()
    packed = [np.concatenate((x[:1], x[1:, :, :20]), 2) for x in (q, k, v, g, beta)]
    together, states = attn.gated_delta_rule(*packed, cu_seqlens=[0, 70, 90])
    assert np.array_equal(states, state) and np.array_equal(together[0, :, 70:], output[1, :, :20])


TRAINING_STEP = """
import torch, attn

def memory(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field)) / 1024

rows, dim = {rows}, 128
q, k, v = (torch.randn(1, 1, rows, dim, requires_grad=True) for _ in range(3))
g, beta = (torch.rand(1, 1, rows) for _ in range(2))
g = (-g).requires_grad_()
attn.gated_delta_rule(*(x[:, :, :64] for x in (q, k, v, g, beta)), l2norm=True)[0].sum().backward()  # what is made once
for x in (q, k, v, g):
    x.grad = None
before = memory("VmRSS")
attn.gated_delta_rule(q, k, v, g, beta.requires_grad_(), l2norm=True)[0].sum().backward()
print(memory("VmHWM") - before)
"""


def test_memory_of_a_training_step_grows_with_the_rows():
    """Output, its gradient, those of q, k and v, and a state every 64 rows: 3.5 KB a row, and 48 MB at once. With
    ATTN_TEST_FULL=1 65,536 rows, for which a state a row would take 4 GB."""
    rows = 65_536 if os.environ.get("ATTN_TEST_FULL") == "1" else 8_192
    said = subprocess.run([sys.executable, "-c", TRAINING_STEP.format(rows=rows)], capture_output=True, text=True,
                          timeout=600, check=True)
    assert float(said.stdout) < 48 + rows * 3.5 / 1024, said.stdout


def test_mistakes():
    x = np.zeros((1, 2, 3, 4), np.float32)
    with pytest.raises(ValueError, match=r"^linear_attention: g has shape \[1, 2, 4\]; it must be \[1, 2, 3\]$"):
        attn.linear_attention(x, x, x, np.zeros((1, 2, 4), np.float32))
    with pytest.raises(TypeError, match="^linear_attention: v is f64; it must be f32 as q$"):
        attn.linear_attention(x, x, x.astype(np.float64))
    with pytest.raises(ValueError, match=r"^causal_conv1d: weight has shape \[3, 2\]; it must be \[2, K\] for x"):
        attn.causal_conv1d(x[0, :, :, :].transpose(1, 0, 2)[:1, :2], np.zeros((3, 2), np.float32))


def test_second_gradients_are_refused():
    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    for output in (attn.linear_attention(x, x, x)[0], attn.causal_conv1d(x[0], torch.randn(3, 2))[0]):
        with pytest.raises(RuntimeError, match="its gradient has no gradient here; create_graph must be False$"):
            torch.autograd.grad(output.sum(), x, create_graph=True)


def test_lengths_may_change_after_the_call():
    for make in (list, np.array, torch.tensor):
        for option, numbers in (("lengths", [5]), ("cu_seqlens", [0, 2, 9])):
            x, given = torch.randn(1, 1, 9, 4, requires_grad=True), make(numbers)
            output, _ = attn.linear_attention(x, x, x, **{option: given})
            (expected,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
            given[-2 if len(numbers) > 1 else 0] = 7
            assert torch.equal(torch.autograd.grad(output.sum(), x)[0], expected)


def test_an_exported_call_is_refused():
    class Layer(torch.nn.Module):
        def forward(self, x):
            return attn.linear_attention(x, x, x)[0] + attn.causal_conv1d(x[0], x[0, 0])[0]

    with pytest.raises(RuntimeError, match=r"linear_attention: a trace \(torch.export, FakeTensor\) has no values"):
        torch.export.export(Layer(), (torch.randn(1, 1, 9, 4),))


def test_tensors_of_inference_mode():
    """A state of a call in inference mode goes on in training."""
    x = torch.randn(1, 1, 9, 4, requires_grad=True)
    calls = (lambda state: attn.linear_attention(x, x, x, initial_state=state),
             lambda state: attn.causal_conv1d(x[0], x[0, 0], initial_state=state))
    for call in calls:
        with torch.inference_mode():
            _, state = call(None)
        found, expected = (torch.autograd.grad(call(s)[0].sum(), x)[0] for s in (state, state.clone()))
        assert torch.equal(found, expected)


def test_batches_of_gradients_are_refused():
    x = torch.randn(1, 1, 3, 4)
    for call in (lambda x: attn.linear_attention(x, x, x)[0], lambda x: attn.causal_conv1d(x[0], x[0, :, :, 0].T)[0]):
        with pytest.raises(NotImplementedError, match="its backward pass takes no batch of gradients"):
            torch.autograd.functional.jacobian(call, x, vectorize=True)


@pytest.mark.parametrize("by_rows", (False, True))
def test_convolution_is_torchs(by_rows):
    torch.manual_seed(1)
    given = [torch.randn(2, 9, 37), torch.randn(9, 4), torch.randn(9), torch.randn(2, 9, 3)]
    if by_rows:
        given[0] = given[0].transpose(1, 2).contiguous().transpose(1, 2)
    flow = torch.randn(2, 9, 37)

    def by_torch(x, weight, bias, state):
        return torch.nn.functional.silu(
            torch.nn.functional.conv1d(torch.cat((state, x), 2), weight[:, None], bias, groups=9))

    def by_attn(x, weight, bias, state):
        output, last = attn.causal_conv1d(x, weight, bias, initial_state=state, silu=True)
        assert torch.equal(last, x[..., -3:])
        return output

    def everything(call, dtype):
        leaves = [x.detach().clone().to(dtype).requires_grad_() for x in given]
        output = call(*leaves)
        return output.detach(), *torch.autograd.grad((output * flow.to(dtype)).sum(), leaves)

    truth, theirs = everything(by_torch, torch.float64), everything(by_torch, torch.float32)
    for mine, other, true in zip(everything(by_attn, torch.float32), theirs, truth):
        assert_close(mine, other, true)
