# python/tests/test_torch_half_masks.py: float masks with bf16 and f16:
# of 16 bits, of zeros, of numbers that hide nothing.
import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch
from error_rule import assert_as_close_as

HALVES = (torch.bfloat16, torch.float16)


def rows(dtype, keys=70, rows=70, dim=16):
    generator = torch.Generator().manual_seed(7)
    make = lambda n: torch.randn(2, 3, n, dim, generator=generator).to(dtype)
    return make(rows), make(keys), make(keys)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("shape", [(70, 70), (2, 1, 70, 70), (3, 1, 70), (2, 3, 70, 1)], ids=str)
def test_zeros_change_no_bit(dtype, shape):
    q, k, v = rows(dtype)
    plain = attn.torch.scaled_dot_product_attention(q, k, v)
    assert torch.equal(attn.torch.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(shape, dtype=dtype)),
                       plain)
    for of_bias in (*HALVES, torch.float32):
        assert torch.equal(attn.attention(q, k, v, bias=torch.zeros(shape, dtype=of_bias)), plain)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_mask_of_16_bits_has_the_bits_of_the_same_in_float32(dtype):
    mask = torch.randn(3, 70, 70, generator=torch.Generator().manual_seed(3)).to(dtype)
    results = []
    for bias in (mask, mask.float()):
        q, k, v = (x.requires_grad_() for x in rows(dtype))
        bias = bias.clone().requires_grad_()
        y = attn.attention(q, k, v, bias=bias)
        y.sum().backward()
        assert bias.grad.dtype == bias.dtype
        results.append((y, q.grad, k.grad, v.grad, bias.grad.to(dtype)))
    for ours, wide in zip(*results):
        assert torch.equal(ours, wide)


def left_padded(value, dtype):
    """As transformers makes it: a causal mask, two items with 5 and 0 positions of padding;
    rows of padding see nothing but `value`."""
    hidden = torch.ones(70, 70).triu(1).bool().expand(2, 1, 70, 70).clone()
    hidden[0, :, :, :5] = True
    return torch.zeros(2, 1, 70, 70, dtype=dtype).masked_fill(hidden, value)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("value", [-1e9, -3.4e38, torch.finfo(torch.float32).min], ids=str)
def test_large_masks_are_as_in_torch(dtype, value):
    q, k, v = rows(dtype)
    mask = left_padded(value, torch.float32)
    truth = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask)
    theirs = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask).to(dtype)
    ours = attn.torch.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_as_close_as(ours, theirs, truth, str(value))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_lowest_of_its_dtype(dtype):
    q, k, v = rows(dtype)
    mask = left_padded(torch.finfo(dtype).min, dtype)
    truth = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask.float())
    ours = attn.torch.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_as_close_as(ours, truth.to(dtype), truth)
