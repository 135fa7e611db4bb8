# python/tests/test_torch_constants.py: NumPy arrays together with torch tensors that want gradients are constants.
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch

X = np.random.default_rng(0).standard_normal((1, 2, 4, 8))


def gained(gain):
    return attn.ScoreExpression(lambda s, b, h, i, j: s * gain[j])


OPTIONS = {
    "bias": lambda as_given: {"bias": as_given(X[0, :, :, :4])},
    "a bias of one": lambda as_given: {"bias": attn.Bias.dense(as_given(X[0, 0, :, :4]))},
    "alibi": lambda as_given: {"bias": attn.Bias.alibi(as_given(X[0, 0, 0, :2]))},
    "sinks": lambda as_given: {"sinks": as_given(X[0, 0, 0, :2])},
    "general": lambda as_given: {"score": attn.Score.general(as_given(np.tile(X[0, 0], (2, 1))))},
    "a function": lambda as_given: {"score_mod": gained(as_given(X[0, 1, 0]))},
    "a mask": lambda as_given: {"mask": attn.Mask.attend(as_given(X[0, 0, :, :4] > -1))},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_call_has_the_gradients_of_one_of_tensors(name):
    given = OPTIONS[name](np.ascontiguousarray), OPTIONS[name](lambda x: torch.from_numpy(np.ascontiguousarray(x)))
    q = torch.from_numpy(X).clone().requires_grad_()
    runs = []
    for options in given:
        output = attn.attention(q, q.detach(), q, **options)
        (first,) = torch.autograd.grad((output**2).sum(), q, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), q)
        runs.append((output, first, second))
    assert all(torch.equal(a, b) for a, b in zip(*runs))


@pytest.mark.parametrize("mask", [X[0, :, :, :4] > -1, X[0, :, :, :4]])
def test_a_mask_of_scaled_dot_product_attention(mask):
    q, numbers = torch.from_numpy(X).clone().requires_grad_(), mask.copy()
    outputs = [attn.torch.scaled_dot_product_attention(q, q, q, given) for given in (numbers, torch.from_numpy(mask))]
    numbers[...] = 0  # the call has a copy
    found = [torch.autograd.grad((output**2).sum(), q)[0] for output in outputs]
    assert torch.equal(*outputs) and torch.equal(*found)
    with pytest.raises(TypeError, match="attn_mask is a list; a torch tensor is needed"):
        attn.torch.scaled_dot_product_attention(q, q, q, mask.tolist())


def test_a_constant_that_was_changed_is_noticed():
    q, bias = torch.from_numpy(X).clone().requires_grad_(), X[0, :, :, :4].copy()
    output = attn.attention(q, q, q, bias=bias)
    bias[0, 0, 0] += 1
    with pytest.raises(RuntimeError, match="attention: bias of shape .* was changed in place after the call"):
        output.sum().backward()


def test_q_k_and_v_are_tensors_together():
    q = torch.from_numpy(X).requires_grad_()
    for q, k, v, name in ((q, X, q, "k"), (q, q, X, "v")):
        with pytest.raises(TypeError,
                           match=f"attention: {name} is a ndarray; a torch tensor is needed, as the others are"):
            attn.attention(q, k, v)


def test_the_checksum_sees_every_small_change():
    checksum, random = attn._core.checksum, np.random.default_rng(1)
    for size in range(0, 200, 7):
        x = random.integers(0, 256, size, np.uint8)
        found = {checksum(x[:n]) for n in range(size + 1)}
        for n in range(size):
            for bit in (1, 16, 128):
                other = x.copy()
                other[n] ^= bit
                found.add(checksum(other))
        assert len(found) == size + 1 + 3 * size
    x = random.standard_normal((8, 16))
    swapped, first = x.copy(), x.copy()
    swapped[[0, 4]], first[0] = x[[4, 0]], -x[0]
    zeros = (np.zeros((8, 16)), -np.zeros((8, 16)))
    assert len({checksum(given) for given in (x, -x, swapped, first, *zeros)}) == 6
    assert checksum(x) == checksum(x.copy())


def test_a_checksum_of_what_has_no_bytes_is_an_error():
    for given in (3, None, np.ones((4, 4))[:, ::2]):
        with pytest.raises((TypeError, ValueError)):
            attn._core.checksum(given)


@pytest.mark.parametrize("form", ["backwards", "swapped", "mapped"])
def test_masks_of_any_layout_and_kind_of_array(form, tmp_path):
    mask = X[0, 0, :, :4].astype(np.float32)
    given = {"backwards": lambda: np.ascontiguousarray(mask[::-1])[::-1], "swapped": lambda: mask.astype(">f4"),
             "mapped": lambda: np.memmap(tmp_path / "mask", np.float32, "w+", shape=mask.shape)}[form]()
    if form == "mapped":
        given[:] = mask
    q = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    out = attn.torch.scaled_dot_product_attention(q, q, q, attn_mask=given)
    assert torch.equal(out, attn.torch.scaled_dot_product_attention(q, q, q, attn_mask=torch.from_numpy(mask.copy())))
