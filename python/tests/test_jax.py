# python/tests/test_jax.py: attn.integrations.jax: the bits of attn.attention, gradients, transforms, mistakes.
import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp

import attn

if attn._core._xla_handlers() is None:
    pytest.skip("not installed: jaxlib where attn was built", allow_module_level=True)

import attn.integrations.jax as ours

SIZES = (2, 4, 9, 16), (2, 2, 13, 16), (2, 2, 13, 24)


def operands(random, dtype=np.float32):
    return [random.standard_normal(size).astype(dtype) for size in SIZES]


def definition(q, k, v, mask, bias=None, scale=None, softcap=0.0):
    """The formula in JAX's own operations."""
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = jnp.einsum("bhid,bhjd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * jnp.tanh(scores / softcap)
    scores = scores if bias is None else scores + bias
    return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1), v)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_bits_of_attention(random, dtype):
    q, k, v = (jnp.asarray(x, dtype) for x in operands(random))
    bias = jnp.asarray(random.standard_normal((1, 4, 9, 13)).astype(np.float32))
    options = dict(mask="causal(bottom_right) & window(6, 0, bottom_right)", softcap=5.0, scale=0.3)
    for call in (ours.attention, jax.jit(lambda *x, **more: ours.attention(*x, **more, **options))):
        more = options if call is ours.attention else {}
        got = np.asarray(call(q, k, v, bias=bias, **more))
        wanted = attn.attention(*(np.asarray(x) for x in (q, k, v)), bias=np.asarray(bias), **options)
        assert got.dtype == wanted.dtype and np.array_equal(got.view(np.uint8), np.asarray(wanted).view(np.uint8))


def test_gradients(random):
    q, k, v = (jnp.asarray(x) for x in operands(random))
    bias, flow = (jnp.asarray(random.standard_normal(size).astype(np.float32)) for size in ((1, 4, 9, 13),
                                                                                          (2, 4, 9, 24)))
    mask = np.tril(np.ones((9, 13), bool))

    def loss(call):
        return jax.jit(jax.grad(lambda *x: (call(*x) * flow).sum(), argnums=(0, 1, 2, 3)))(q, k, v, bias)

    found = loss(lambda q, k, v, b: ours.attention(q, k, v, mask="causal(top_left)", bias=b, softcap=4.0))
    wanted = loss(lambda q, k, v, b: definition(q, k, v, mask, b, softcap=4.0))
    for got, theirs in zip(found, wanted):
        assert got.shape == theirs.shape
        np.testing.assert_allclose(got, theirs, atol=4e-6)


def test_float64_and_vmap(random):
    with jax.enable_x64(True):
        q, k, v = (jnp.asarray(x) for x in operands(random, np.float64))
        np.testing.assert_allclose(ours.attention(q, k, v), definition(q, k, v, True), atol=1e-14)
        many = [jnp.stack([x, 2 * x, -x]) for x in (q, k, v)]
        together = jax.vmap(lambda *x: ours.attention(*x, mask="window(3, 3, top_left)"))(*many)
        one_by_one = [ours.attention(*(x[n] for x in many), mask="window(3, 3, top_left)") for n in range(3)]
        assert np.array_equal(together, jnp.stack(one_by_one))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [({"q": np.zeros(SIZES[0], np.float32)}, TypeError, "attention: q is a ndarray; a JAX array is needed"),
     ({"q": jnp.zeros(SIZES[0], jnp.int32)}, TypeError, "attention: q is int32; it must be float32"),
     ({"k": jnp.zeros(SIZES[1], jnp.bfloat16)}, TypeError, "attention: k is bfloat16; it must be float32 as q"),
     ({"k": jnp.zeros((2, 2, 13))}, ValueError, "attention: k has shape [2, 2, 13]; it must have 4 dims"),
     ({"k": jnp.zeros((2, 3, 13, 16))}, ValueError, "attention: k has shape [2, 3, 13, 16]; it must be [2, heads,"),
     ({"v": jnp.zeros((2, 2, 12, 24))}, ValueError, "attention: v has shape [2, 2, 12, 24]; its batch and keys"),
     ({"mask": "casual"}, ValueError, "casual"),
     ({"mask": attn.Mask.attend(np.ones((9, 13), bool))}, ValueError, "attend"),
     ({"mask": attn.Mask.attend(np.ones((9, 13), bool))}, ValueError, "attention: mask is attend(bool [9, 13]), which"),
     ({"mask": np.ones((9, 13), bool)}, TypeError, "attention: mask is a ndarray; an attn.Mask or its text is needed"),
     ({"mask": "causal"}, ValueError, "attention: causal does not say how 9 rows stand against 13 keys"),
     ({"scale": float("nan")}, ValueError, "attention: scale is nan; it must be finite"),
     ({"scale": "2"}, TypeError, "attention: scale is a str; a number is needed"),
     ({"softcap": -1}, ValueError, "attention: softcap is -1.0; it must be above 0"),
     ({"v": jnp.zeros((2, 3, 13, 24))}, ValueError, "its heads must divide those of q [2, 4, 9, 16]"),
     ({"bias": jnp.zeros((9, 13))}, ValueError, "attention: bias has shape [9, 13]; it must have 4 dims, [B, Hq, Tq,"),
     ({"bias": jnp.zeros((1, 4, 9, 12))}, ValueError, "attention: bias has shape [1, 4, 9, 12]; it must be [2, 4,")],
)
def test_wrong_calls(change, error, text):
    arguments = {"q": jnp.zeros(SIZES[0]), "k": jnp.zeros(SIZES[1]), "v": jnp.zeros(SIZES[2]), **change}
    with pytest.raises(error) as found:
        jax.block_until_ready(ours.attention(**arguments))
    assert text in str(found.value)


def test_a_number_that_is_traced_is_refused():
    q, k, v = (jnp.zeros(size) for size in SIZES)
    for name in ("scale", "softcap"):
        with pytest.raises(TypeError, match=f"^attention: {name} is traced; it is a constant of the function"):
            jax.jit(lambda x, name=name: ours.attention(q, k, v, **{name: x}))(2.0)
