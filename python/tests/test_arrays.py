# python/tests/test_arrays.py: what arrays may be: layouts, strides, dtypes, read-only memory, strangers with DLPack.
import gc

import ml_dtypes
import numpy as np
import pytest
from conftest import assert_close, plain_attention, plain_attention_f32

import attn

SHAPE = (2, 3, 7, 16)


def layouts(x):
    """The same values in other memory: name, array."""
    yield "contiguous", x
    yield "tokens before heads", np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    yield "every second row of a larger array", np.repeat(x, 2, axis=2)[:, :, ::2]
    yield "rows backwards", np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1]
    yield "heads and batch backwards", np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    yield "last dim backwards", np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    yield "last dim of every second element", np.repeat(x, 2, axis=3)[..., ::2]
    yield "Fortran order", np.asfortranarray(x)
    yield "a slice in the middle", np.pad(x, ((0, 0), (0, 0), (0, 0), (3, 5)))[..., 3:-5]
    read_only = x.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only
    packed = np.zeros(x.shape, dtype=[("before", "u1"), ("value", x.dtype)])
    packed["value"] = x
    yield "a field of packed records, not aligned", packed["value"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16], ids=str)
def test_every_layout_gives_the_same_bits_and_the_right_values(random, dtype):
    q, k, v = (random.standard_normal(SHAPE).astype(dtype) for _ in range(3))
    expected = attn.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert expected.dtype == q.dtype and type(expected) is np.ndarray
    truth, _ = plain_attention(q, k, v, allowed=np.tri(7, dtype=bool))
    assert_close(expected, truth,
                 plain_attention_f32(q, k, v, allowed=np.tri(7, dtype=bool)).astype(dtype).astype(np.float64))
    for name, other in layouts(k):
        assert np.array_equal(other, k), name
        result = attn.scaled_dot_product_attention(q, other, v, is_causal=True)
        assert result.tobytes() == expected.tobytes(), name
    for name, other in layouts(q):
        result = attn.scaled_dot_product_attention(other, k, v, is_causal=True)
        assert np.ascontiguousarray(result).tobytes() == expected.tobytes(), name


def test_broadcast_arrays_are_views(random):
    one = random.standard_normal((1, 1, 5, 8), dtype=np.float32)
    q = random.standard_normal((4, 6, 3, 8), dtype=np.float32)
    k = np.broadcast_to(one, (4, 6, 5, 8))
    expected = attn.scaled_dot_product_attention(q, k.copy(), k.copy())
    assert attn.scaled_dot_product_attention(q, k, k).tobytes() == expected.tobytes()


def test_the_result_is_laid_out_as_the_query(random):
    q = np.ascontiguousarray(random.standard_normal((2, 5, 3, 8), dtype=np.float32)).transpose(0, 2, 1, 3)
    assert attn.scaled_dot_product_attention(q, q, q).strides == q.strides
    assert attn.attention(q, q, q).strides == q.strides


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("dim", range(4))
def test_sizes_of_0_and_1(random, dim, size):
    shape = [2, 2, 3, 4]
    shape[dim] = size
    q = random.standard_normal(shape, dtype=np.float32)
    assert attn.scaled_dot_product_attention(q, q, q).shape == tuple(shape)
    assert attn.attention(q, q, q).shape == tuple(shape)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (None, "query is None"),
        ([[1.0]], "query is a list; a NumPy array, a torch tensor or an object with __dlpack__ is needed"),
        ("q", "query is a str"),
        (np.zeros((2, 2), ">f4"), "query has dtype >f4; its bytes must stand in this machine's order"),
        (np.zeros((2, 2), object), "query has dtype object; numbers must be float32, float64, bfloat16 or float16, "
                                   "whole numbers int64 or int32, flags bool"),
        (np.zeros((2, 2), "U3"), "query has dtype <U3"),
        (np.zeros((2, 2), "M8[s]"), "query has dtype datetime64"),
        (np.zeros((2, 2), complex), "query has dtype complex128"),
        (np.zeros((2, 2), np.uint8), "query has dtype uint8"),
        (np.zeros((2, 2), np.longdouble), "query has dtype"),
        (np.zeros((2, 2), np.int64), "query is i64; it must be f32, f64, bf16 or f16"),
        (np.ma.masked_array(np.zeros((2, 2), np.float32)), "query is a masked array"),
        (memoryview(b"1234"), "query"),
    ],
    ids=lambda x: type(x).__name__ + str(getattr(x, "dtype", "")),
)
def test_what_is_no_array_is_refused(x, text):
    good = np.zeros((2, 2), np.float32)
    with pytest.raises(TypeError) as error:
        attn.scaled_dot_product_attention(x, good, good)
    assert text in str(error.value) and "scaled_dot_product_attention" in str(error.value)
    assert "\n" not in str(error.value)


def test_too_many_dims():
    x = np.zeros((1,) * 9, np.float32)
    with pytest.raises(ValueError, match="9 dims; at most 8"):
        attn.scaled_dot_product_attention(x, x, x)


class Stranger:
    """An array of a library that attn has never heard of."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def test_anything_with_dlpack(random):
    q, k, v = (random.standard_normal(SHAPE, dtype=np.float32) for _ in range(3))
    expected = attn.scaled_dot_product_attention(q, k, v)
    result = attn.scaled_dot_product_attention(Stranger(q),
                                               Stranger(k.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)),
                                               Stranger(v))
    assert type(result) is np.ndarray and result.tobytes() == expected.tobytes()
    allowed = np.tri(7, dtype=bool)
    masked = attn.attention(q, k, v, mask=attn.Mask.attend(Stranger(allowed)))
    assert masked.tobytes() == attn.attention(q, k, v, mask=attn.Mask.attend(allowed)).tobytes()


def test_views_keep_memory_alive(random):
    q = random.standard_normal((1, 2, 64, 16), dtype=np.float32)
    values = random.standard_normal((64, 64), dtype=np.float32)
    allowed = random.random((64, 64)) < 0.5
    expected = attn.attention(q, q, q, bias=values, mask=attn.Mask.attend(allowed))
    mask, bias = attn.Mask.attend(allowed.copy()), attn.Bias.dense(values.copy())
    gc.collect()
    garbage = [np.full((64, 64), np.nan, np.float32) for _ in range(64)]  # where the copies would have been
    assert attn.attention(q, q, q, bias=bias, mask=mask).tobytes() == expected.tobytes()
    assert len(garbage) == 64
    _, weights, logsumexp = attn.attention(q, q, q, weights="full", return_logsumexp=True)
    kept, last = weights.copy(), logsumexp.copy()
    part = weights[0, 1, ::3]
    del weights
    gc.collect()
    garbage = [attn.attention(q, q, q, weights="full")[1] for _ in range(16)]
    assert np.array_equal(part, kept[0, 1, ::3]) and np.array_equal(logsumexp, last)


def test_out_receives_the_output(random):
    q = random.standard_normal(SHAPE, dtype=np.float32)
    out = np.zeros(SHAPE, np.float32)
    assert attn.attention(q, q, q, out=out) is out
    assert out.tobytes() == attn.attention(q, q, q).tobytes()
    aliased = q.copy()
    attn.attention(aliased, aliased, aliased, out=aliased)
    assert aliased.tobytes() == out.tobytes()
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out cannot be written to"):
        attn.attention(q, q, q, out=out)
    with pytest.raises(ValueError, match="out"):
        attn.attention(q, q, q, out=np.zeros((2, 3, 7, 15), np.float32))
    with pytest.raises(TypeError, match="out"):
        attn.attention(q, q, q, out=np.zeros(SHAPE, np.float64))


def test_out_may_be_any_array_whose_dlpack_says_that_it_is_writable(random):
    q = random.standard_normal(SHAPE, dtype=np.float32)
    expected = attn.attention(q, q, q)
    memory = np.zeros(SHAPE, np.float32)
    out = Stranger(memory)
    assert attn.attention(q, q, q, out=out) is out
    assert memory.tobytes() == expected.tobytes()
    transposed = np.zeros((2, 7, 3, 16), np.float32).transpose(0, 2, 1, 3)  # its strides are kept
    attn.attention(q, q, q, out=Stranger(transposed))
    assert transposed.tobytes() == expected.tobytes()
    aliased = q.copy()
    attn.attention(Stranger(aliased), Stranger(aliased), Stranger(aliased), out=Stranger(aliased))
    assert aliased.tobytes() == expected.tobytes()
    cache = attn.KvCache(SHAPE[1], SHAPE[3], pages=4)
    sequences = [cache.create() for _ in q]
    cache.append(sequences, q, q)
    memory[...] = 0
    assert attn.attention_cached(q, cache, sequences, out=out) is out
    assert memory.tobytes() == expected.tobytes()

    class Old(Stranger):  # before DLPack 1.0, which has no flag for memory that is read-only
        def __dlpack__(self):
            return self.x.__dlpack__()

    class Copied(Stranger):
        def __dlpack__(self, **options):
            return self.x.__dlpack__(copy=True, **options)

    memory[...] = 0
    read_only = expected.copy()
    read_only.flags.writeable = False
    for refused in (Old(memory), Stranger(read_only), Copied(memory)):
        with pytest.raises(ValueError, match="^attention: out cannot be written to; a writable array is needed, or "):
            attn.attention(q, q, q, out=refused)
    assert not memory.any() and read_only.tobytes() == expected.tobytes()
    with pytest.raises(TypeError, match="out"):
        attn.attention(q, q, q, out=Stranger(np.zeros(SHAPE, np.float64)))
    with pytest.raises(TypeError, match="out is a list"):
        attn.attention(q, q, q, out=[1.0])


def test_operands_are_not_changed(random):
    q, k, v = (random.standard_normal(SHAPE, dtype=np.float32) for _ in range(3))
    before = [x.copy() for x in (q, k, v)]
    attn.attention(q, k, v, mask="causal", softcap=2.0, weights="full")
    assert all(np.array_equal(a, b) for a, b in zip(before, (q, k, v), strict=True))


def test_an_array_that_cannot_be_had_says_why():
    class Gone:
        def __dlpack__(self, **_):
            raise RuntimeError("the array has been deleted\nlong ago")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(TypeError,
                       match="attention: q is a .*Gone whose __dlpack__ gives no array: the array has been deleted$"):
        attn.attention(Gone(), Gone(), Gone())


def test_an_interrupt_is_no_mistake():
    """Ctrl-C while an object of the caller is asked for its number or its memory."""

    class Interrupted:
        def __index__(self, **_):
            raise KeyboardInterrupt

        __float__ = __dlpack__ = __index__

        def __dlpack_device__(self):
            return (1, 0)

    x = np.zeros((3, 4), np.float32)
    for call in (
        lambda: attn.attention(Interrupted(), x, x),
        lambda: attn.attention(x, x, x, scale=Interrupted()),
        lambda: attn.attention(x, x, x, dropout_seed=Interrupted()),
        lambda: attn.Mask.window(Interrupted(), 0),
    ):
        with pytest.raises(KeyboardInterrupt):
            call()
