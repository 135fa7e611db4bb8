# python/tests/test_relative.py: attn.Bias.relative_product and attn.RelativeIndex against complete matrices.
import copy
import pickle

import attn
import numpy as np
import pytest


def _by_distance(x, table, rows, scale):
    """scale * x . table[rows[i, j]] of all pairs."""
    return scale * np.einsum("bhid,hijd->bhij", x, np.broadcast_to(table, (x.shape[1], *table.shape[-2:]))[:, rows])


def _drawn(*shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def _operands():
    return tuple(_drawn(2, 3, 20, 8, seed=n) for n in range(3))


I, J = np.arange(20)[:, None], np.arange(20)


@pytest.mark.parametrize("index, rows", [
    (attn.RelativeIndex.distance(4, 2), np.clip(J - I, -4, 2) + 4),
    (attn.RelativeIndex.distance(4, 2).reversed(), 2 - np.clip(J - I, -4, 2)),
    (attn.RelativeIndex.picture_rows(4, 5), I // 5 - J // 5 + 3),
    (attn.RelativeIndex.picture_columns(5), I % 5 - J % 5 + 4)])
def test_numpy(index, rows):
    q, k, v = _operands()
    for table in (_drawn(3, index.rows, 8, seed=4), _drawn(index.rows, 8, seed=5)):
        for of_keys, scale in ((False, None), (True, 0.5)):
            bias = attn.Bias.relative_product(table, index, of_keys=of_keys, scale=scale)
            ours = attn.attention(q, k, v, bias=bias)
            number = 8**-0.5 if scale is None else scale
            values = (_by_distance(k, table, rows.T, number).swapaxes(-1, -2) if of_keys
                      else _by_distance(q, table, rows, number))
            np.testing.assert_allclose(ours, attn.attention(q, k, v, bias=values), rtol=1e-12, atol=1e-12)


def test_copies_and_texts():
    index = attn.RelativeIndex.log_buckets(8, 20).reversed()
    assert repr(index) == "attn.RelativeIndex.log_buckets(8, 20).reversed()"
    assert repr(pickle.loads(pickle.dumps(index))) == repr(index)
    q, k, v = _operands()
    bias = (attn.Bias.relative_product(_drawn(16, 8, seed=6), index, operand=q + 1, scale=0.25)
            + attn.Bias.relative_product(_drawn(3, 16, 8, seed=7), index, of_keys=True))
    assert repr(bias) == (
        "attn.Bias.relative_product(float64 [16, 8], attn.RelativeIndex.log_buckets(8, 20).reversed(), "
        "operand=float64 [2, 3, 20, 8], scale=0.25) + attn.Bias.relative_product(float64 [3, 16, 8], "
        "attn.RelativeIndex.log_buckets(8, 20).reversed(), of_keys=True)")
    assert len(bias.arrays) == 3
    expected = attn.attention(q, k, v, bias=bias)
    for other in (copy.deepcopy(bias), pickle.loads(pickle.dumps(bias)), bias.with_arrays([None] * 3)):
        np.testing.assert_array_equal(attn.attention(q, k, v, bias=other), expected)


def test_torch_gradients():
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    table = torch.randn(2, 13, 4, dtype=torch.float64, requires_grad=True)
    u, w = (torch.randn(2, 1, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def ours(q, k, v, table, u, w):
        bias = attn.Bias.relative_product(table, attn.RelativeIndex.distance(6, 6), operand=q + w)
        return attn.attention(q + u, k, v, mask="causal", bias=bias)

    assert torch.autograd.gradcheck(ours, (q, k, v, table, u, w))
    assert torch.autograd.gradgradcheck(ours, (q, k, v, table, u, w))

    def of_keys(q, k, v, table):
        bias = attn.Bias.relative_product(table, attn.RelativeIndex.log_buckets(4, 8), of_keys=True)
        return attn.attention(q, k, v, bias=bias)

    assert torch.autograd.gradcheck(of_keys, (q, k, v, table[:, :8].detach().requires_grad_()))


def test_torch_buckets_are_those_of_transformers():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    for buckets, most in ((8, 20), (32, 128), (256, 512), (16, 40), (64, 1000)):
        distance = torch.arange(-2 * most, 2 * most + 1)
        theirs = (make_log_bucket_position(distance, buckets, most) + buckets).clamp(0, 2 * buckets - 1).long()
        # a row at position p and the key 0: the output is the number of the row of the table
        table = torch.eye(2 * buckets, dtype=torch.float64)
        index = attn.RelativeIndex.log_buckets(buckets, most)
        ones = torch.ones(1, 1, len(distance), 2 * buckets, dtype=torch.float64)
        for n in range(2 * buckets):
            row = torch.zeros_like(ones)
            row[..., n] = 1
            scores = attn.attention(
                torch.zeros_like(ones), torch.zeros(1, 1, 1, 2 * buckets, dtype=torch.float64),
                torch.ones(1, 1, 1, 1, dtype=torch.float64), query_start=[-2 * most], return_logsumexp=True,
                bias=attn.Bias.relative_product(table, index, operand=row, scale=1.0))[1]
            assert torch.equal(scores[0, 0].round().long() == 1, theirs == n), (buckets, most, n)
            if n > 4:
                break


def test_mistakes():
    q, k, v = _operands()
    index = attn.RelativeIndex.distance(2, 2)
    with pytest.raises(ValueError, match=r"the table has shape \[4, 8\]; distance\(2, 2\) needs \[Hq, 5, D\]"):
        attn.Bias.relative_product(np.zeros((4, 8)), index)
    with pytest.raises(TypeError, match="Bias.relative_product: index is a int; an attn.RelativeIndex is needed"):
        attn.Bias.relative_product(np.zeros((5, 8)), 2)
    with pytest.raises(ValueError, match="before is -1; it must be from 0 to"):
        attn.RelativeIndex.distance(-1, 0)
    with pytest.raises(ValueError, match="has no tangent here"):
        attn.attention_jvp(q, k, v, q_tangent=q, bias=attn.Bias.relative_product(np.zeros((5, 8)), index))
    with pytest.raises(ValueError, match="3 arrays are given; there are 1"):
        attn.Bias.relative_product(np.zeros((5, 8)), index).with_arrays([None] * 3)


def test_pictures_refuse_positions_that_they_do_not_have():
    q = np.zeros((1, 1, 1024, 4), np.float32)

    def attend(index, q=q, **options):
        return attn.attention(q, q, q, bias=attn.Bias.relative_product(np.zeros((index.rows, 4), np.float32), index),
                              **options)

    rows = attn.RelativeIndex.picture_rows(170, 6)
    with pytest.raises(ValueError, match=r"^attention: batch item 0 has rows at positions 0 to 1023 and keys at 0 to "
                                         r"1023; picture_rows\(170, 6\) has 170 x 6 = 1020 pixels, from position 0 to "
                                         r"1019$"):
        attend(rows)
    attend(rows, key_lengths=[1020], query_lengths=[1020])
    attend(attn.RelativeIndex.picture_columns(6))  # right for any height
    packed = {"cu_seqlens_q": [0, 500, 1024], "cu_seqlens_k": [0, 500, 1024]}
    attend(rows, **packed)
    with pytest.raises(ValueError, match=r"sequence 1 has rows at positions 0 to 523 .* picture_rows\(87, 6\)"):
        attend(attn.RelativeIndex.picture_rows(87, 6), **packed)
    with pytest.raises(ValueError, match=r"rows at positions -1 to 1022 .*; picture_columns\(6\) has pixels from "
                                         r"position 0$"):
        attend(attn.RelativeIndex.picture_columns(6), query_start=[-1])


def test_other_arrays_are_checked_as_the_first():
    q, k, v = _operands()
    bias = attn.Bias.relative_product(np.zeros((5, 8)), attn.RelativeIndex.distance(2, 2))
    for wrong, text in ((np.zeros((3, 8)), r"the table has shape \[3, 8\]; distance\(2, 2\) needs \[Hq, 5, D\]"),
                        (np.zeros(8), r"the table has shape \[8\]; distance"),
                        (np.zeros((5, 7)), "the table of a relative product has rows of 7; they must have the 8")):
        with pytest.raises(ValueError, match=f"^attention: {text}"):
            attn.attention(q, k, v, bias=bias.with_arrays([wrong]))
    with pytest.raises(ValueError, match=r"the scale of a relative product is 1e\+300; it must be finite in f32"):
        q = q.astype(np.float32)
        attn.attention(q, q, q, bias=attn.Bias.relative_product(
            np.zeros((5, 8), np.float32), attn.RelativeIndex.distance(2, 2), scale=1e300))
