# python/tests/test_flex_attention.py: attn.torch.flex_attention against torch's own definition: score functions, masks,
# blocks, gradients of what the functions read, and what cannot be traced.
import math
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

from error_rule import assert_as_close_as
from random_tensors import draw
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask

import attn.torch
from attn.torch import _flex_blocks, _flex_symbols, _flex_trace

B, HQ, HK, TQ, TK, D, DV = 2, 4, 2, 70, 90, 16, 24


@pytest.fixture(autouse=True)
def quiet():
    """What cannot be traced is an error here unless a test expects it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="flex_attention: computed with whole matrices")
        yield


def definition(q, k, v, score_mod, mask_mod, scale):
    """torch's eager definition, which computes on the CPU what torch's own front refuses there: gradients, maxima."""
    from torch._higher_order_ops.flex_attention import math_attention

    def keep(s, b, h, i, j):
        return s

    block_mask = (mask_mod or flex.noop_mask,)
    output, logsumexp, largest = math_attention(q, k, v, score_mod or keep, block_mask, scale, {})
    return output, logsumexp * math.log(2), largest * math.log(2)


class Tables:
    """What the functions read, in one dtype."""

    def __init__(self, dtype):
        self.slope = draw(HQ, dtype=dtype).requires_grad_()
        self.dense = draw(HQ, TQ, TK, dtype=dtype).requires_grad_()
        self.near = draw(HQ, 2 * 9 + 1, dtype=dtype).requires_grad_()
        self.gain = draw(1, dtype=dtype).squeeze().detach().requires_grad_()
        self.batch = draw(B, 3, dtype=dtype).requires_grad_()
        self.all = [self.slope, self.dense, self.near, self.gain, self.batch]


def score_mods(t):
    bucket = torch.clamp(torch.arange(-TK, TK) // 7, -3, 3) + 3
    seen = draw(TQ, TK) > -0.5
    return {
        "none": None,
        "alibi": lambda s, b, h, i, j: s - t.slope[h] * (i - j),
        "alibi of both sides": lambda s, b, h, i, j: s - t.slope[h] * torch.abs(i - j),
        "softcap": lambda s, b, h, i, j: 5 * torch.tanh(s / 5),
        "dense": lambda s, b, h, i, j: s + t.dense[h, i, j],
        "relative": lambda s, b, h, i, j: s + t.near[h, torch.clamp(j - i, -9, 9) + 9],
        "buckets": lambda s, b, h, i, j: s + t.near[h, bucket[j - i + TK - 1]],
        "gain": lambda s, b, h, i, j: s * torch.sigmoid(t.gain) + t.batch[b, i % 3],
        "causal by where": lambda s, b, h, i, j: torch.where(i + 30 >= j, s, -float("inf")),
        "masked_fill": lambda s, b, h, i, j: s.masked_fill(~seen[i, j], float("-inf")),
        "methods": lambda s, b, h, i, j: s.clamp(-1, 1).mul(2).add(t.slope[h].exp(), alpha=0.5) - (i - j).abs().float(),
        "powers": lambda s, b, h, i, j: s ** 2 / 4 + torch.exp2(-(i // 8).to(torch.float32)) * 2.0 ** (-(j % 5)),
        "logical": lambda s, b, h, i, j: torch.where(torch.logical_or(i < j, torch.eq(h, 1)), s * 0.5, s.relu()),
        "bool as number": lambda s, b, h, i, j: s + (i >= j) * t.slope[h] + seen[i, j].float(),
    }


def masks():
    ids, seen = torch.arange(max(TQ, TK)) // 23, draw(HQ, TQ, TK) > 0
    rows = ids[:TQ]
    return {
        "none": None,
        "causal": lambda b, h, i, j: i >= j,
        "shifted causal": lambda b, h, i, j: i + (TK - TQ) >= j,
        "window": lambda b, h, i, j: (i - j <= 12) & (i >= j),
        "both sides": lambda b, h, i, j: torch.abs(i - j) < 9,
        "prefix": lambda b, h, i, j: (i >= j) | (j < 11),
        "documents": lambda b, h, i, j: (ids[i] == ids[j]) & (i >= j),
        "documents of two lengths": lambda b, h, i, j: rows[i] == ids[j],
        "table": lambda b, h, i, j: seen[h, i, j],
        "heads": lambda b, h, i, j: (i - j > -5 * h) | (b == 1),
        "nothing": lambda b, h, i, j: i > j + TQ,
        "and_masks": flex.and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: ~(j < 4)),
        "strict": lambda b, h, i, j: (i > j) & (j >= 2) & (i - j != 3),
    }


def tensors(dtype, groups=HK):
    return (draw(B, HQ, TQ, D, dtype=dtype), draw(B, groups, TK, D, dtype=dtype), draw(B, groups, TK, DV, dtype=dtype))


def run(call, operands, tables):
    """Output, logsumexp and gradients of the operands and the tables (zeros where there is none)."""
    operands = [x.detach().clone().requires_grad_() for x in operands]
    output, logsumexp, largest = call(*operands)
    flow, some = draw(*output.shape, dtype=output.dtype), draw(*logsumexp.shape, dtype=logsumexp.dtype)
    loss = (output * flow).sum() + (logsumexp.masked_fill(logsumexp == -torch.inf, 0) * some).sum() / 8
    leaves = [*operands, *tables.all]
    grads = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else [None] * len(leaves)
    return [output, logsumexp, largest, *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads))]


def by_attn(score_mod, mask_mod, create=(None, None), scale=None):
    def call(q, k, v):
        block_mask = None
        if mask_mod is not None:
            block_mask = create_block_mask(mask_mod, *create, TQ, TK, device="cpu", BLOCK_SIZE=16)
        output, aux = attn.torch.flex_attention(q, k, v, score_mod, block_mask, scale=scale, enable_gqa=True,
                                                return_aux=AuxRequest(lse=True, max_scores=True))
        return output, aux.lse, aux.max_scores
    return call


NAMES = ("output", "logsumexp", "max_scores", "query", "key", "value", "slope", "dense", "near", "gain", "batch")


def compare(name, mask, dtype, scale=None, create=(None, None)):
    found = []
    for which in (dtype, torch.float64, torch.float32):
        tables = Tables(torch.float64 if which is torch.float64 else torch.float32)
        operands = [x.to(which) for x in tensors(dtype)]
        mod, mask_mod = score_mods(tables)[name], masks()[mask]
        if found:
            def call(q, k, v):
                return definition(q, k, v, mod, mask_mod, D ** -0.5 if scale is None else scale)
        else:
            call = by_attn(mod, mask_mod, create, scale)
        found.append(run(call, operands, tables))
    for what, ours, truth, theirs in zip(NAMES, *found):
        # docs/numerics.md section 7: delta; and attn adds what the pairs give to a table in one chain, torch in a tree
        most = 1 if what in NAMES[:3] else 2 if what in NAMES[3:6] else 3
        assert_as_close_as(ours.to(theirs.dtype), theirs, truth, f"{name}, {mask}, {dtype}: {what}", most)


CREATE = {"heads": (B, HQ), "table": (None, HQ)}


@pytest.mark.parametrize("name", list(score_mods(Tables(torch.float32))))
def test_score_functions(name):
    for mask in ("none", "table"):
        compare(name, mask, torch.float32, create=CREATE.get(mask, (None, None)))


@pytest.mark.parametrize("mask", list(masks()))
def test_masks(mask):
    for name in ("none", "alibi"):
        compare(name, mask, torch.float32, 0.4, CREATE.get(mask, (None, None)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_against_torch(dtype):
    q, k, v = tensors(dtype, HQ)
    tables = Tables(torch.float64 if dtype is torch.float64 else torch.float32)
    mod, mask = score_mods(tables)["alibi"], masks()["window"]
    block_mask = create_block_mask(mask, None, None, TQ, TK, device="cpu", BLOCK_SIZE=32)
    output, logsumexp = attn.torch.flex_attention(q, k, v, mod, block_mask, return_lse=True)
    truth, total, _ = definition(*(x.double() for x in (q, k, v)), mod, mask, D ** -0.5)
    assert output.dtype is dtype and logsumexp.dtype is (dtype if dtype is torch.float64 else torch.float32)
    error = 2 ** -7 if dtype is torch.bfloat16 else 2 ** -10 if dtype is torch.float16 else 1e-13
    assert (output.double() - truth).abs().max() <= 4 * error * truth.abs().max()
    assert torch.equal(torch.isinf(logsumexp), torch.isinf(total))


def test_as_torchs_own_front():
    q, k, v = tensors(torch.float32, HQ)
    ids = torch.arange(TQ) // 20
    block_mask = create_block_mask(lambda b, h, i, j: ids[i] == ids[j], None, None, TQ, TQ, device="cpu",
                                   BLOCK_SIZE=16)
    k, v = k[:, :, :TQ], v[:, :, :TQ]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        theirs = flex.flex_attention(q, k, v, score_mods(Tables(torch.float32))["softcap"], block_mask)
    ours = attn.torch.flex_attention(q, k, v, score_mods(Tables(torch.float32))["softcap"], block_mask)
    assert torch.allclose(ours, theirs, atol=2e-6)


def test_masks_that_become_attns_own():
    _, *places = _flex_symbols.symbols()
    kinds = {"causal": "causal(top_left)", "window": "window(12, -1, top_left) & causal(top_left)",
             "prefix": "causal(top_left) | prefix(11)", "documents": "documents(i64 [90]) & causal(top_left)"}
    for name, text in kinds.items():
        cover = _flex_trace.traced(masks()[name], *places).cover
        assert cover.exact and str(cover.mask) == text, (name, cover)


def test_blocks_alone_and_blocks_that_say_more_than_the_function():
    q, k, v = (x[:, :, :64] for x in tensors(torch.float32, HQ))
    counts = torch.tensor([[[1, 2, 2, 1]]], dtype=torch.int32)
    indices = torch.tensor([[[[1, 0, 0, 0], [0, 2, 0, 0], [3, 1, 0, 0], [2, 0, 0, 0]]]], dtype=torch.int32)
    full = torch.tensor([[[0, 0, 1, 1]]], dtype=torch.int32), torch.tensor([[[[0] * 4, [0] * 4, [2, 0, 0, 0],
                                                                              [3, 0, 0, 0]]]], dtype=torch.int32)
    for mask_mod in (None, lambda b, h, i, j: i >= j):
        block_mask = BlockMask.from_kv_blocks(counts, indices, *full, BLOCK_SIZE=16, mask_mod=mask_mod)
        kind = torch.zeros(4, 4, dtype=torch.int64)
        for row, columns in enumerate(([1], [0, 2], [3, 1], [2])):
            kind[row, columns] = 1
        kind[2, 2] = kind[3, 3] = 2
        kind = kind.repeat_interleave(16, 0).repeat_interleave(16, 1)
        seen = (kind == 2) | ((kind == 1) & (torch.ones(64, 64).tril().bool() if mask_mod else True))
        output = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
        truth = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen)
        assert torch.allclose(output, truth, atol=2e-6), mask_mod


def test_other_functions_are_computed_in_their_blocks_alone():
    """A key in a block that no row sees is never read: NaN in it changes nothing, and the mask names the block."""
    q, k, v = (x[:, :, :64] for x in tensors(torch.float32, HQ))
    block_mask = create_block_mask(lambda b, h, i, j: ((i // 16 + j // 16) % 3 == 0) & ((i + j) % 2 == 0), None, None,
                                   64, 64, device="cpu", BLOCK_SIZE=16)
    mask = _flex_blocks.listed(block_mask, 64)
    shown = (torch.arange(64)[:, None] // 16 + torch.arange(64) // 16) % 3 == 0
    assert str(mask) == "blocks(i64 [1, 1, 4, 2], 16, 16)" and np.array_equal(mask.dense(1, 1, 64, 64)[0, 0], shown)
    output = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
    seen = shown & ((torch.arange(64)[:, None] + torch.arange(64)) % 2 == 0)
    assert torch.allclose(output, torch.nn.functional.scaled_dot_product_attention(q, k, v, seen), atol=2e-6)
    whole = create_block_mask(lambda b, h, i, j: i >= 0, None, None, 64, 64, device="cpu")
    assert _flex_blocks.listed(whole, 64) is None


def test_a_change_of_what_a_mask_reads_is_seen():
    q, k, v = (x[:, :, :64] for x in tensors(torch.float32, HQ))
    ids = torch.arange(64) // 16
    block_mask = create_block_mask(lambda b, h, i, j: ids[i] == ids[j], None, None, 64, 64, device="cpu",
                                   BLOCK_SIZE=16)
    before = [attn.torch.flex_attention(q, k, v, block_mask=block_mask) for _ in range(2)]
    ids[8:16] = 7  # within the first block, which is a full one and stays so
    after = [attn.torch.flex_attention(q, k, v, block_mask=block_mask) for _ in range(2)]
    assert torch.equal(*before) and torch.equal(*after) and torch.equal(before[0], after[0])
    block_mask.mask_mod = lambda b, h, i, j: i >= j
    seen = (torch.arange(64)[:, None] // 16) == (torch.arange(64) // 16)  # the full blocks on the diagonal
    assert torch.allclose(attn.torch.flex_attention(q, k, v, block_mask=block_mask),
                          torch.nn.functional.scaled_dot_product_attention(q, k, v, seen), atol=2e-6)


def test_a_masked_key_changes_nothing():
    q, k, v = tensors(torch.float32, HQ)
    k, v = k.clone(), v.clone()
    k[:, :, 40], v[:, :, 41] = math.nan, math.inf
    hidden = create_block_mask(lambda b, h, i, j: (j != 40) & (j != 41), None, None, TQ, TK, device="cpu")
    assert torch.isfinite(attn.torch.flex_attention(q, k, v, block_mask=hidden)).all()


ROW = draw(TK)


@pytest.mark.parametrize(
    ("mod", "named"),
    [(lambda s, b, h, i, j: torch.sin(s), "sin"),
     (lambda s, b, h, i, j: s + torch.log1p((i - j).abs().float()), "log1p"),
     (lambda s, b, h, i, j: s + ROW[i - j], 'the index "i'),
     (lambda s, b, h, i, j: s * 2 ** (i % 3), "a whole power"),
     (lambda s, b, h, i, j: s + torch.bitwise_xor(i, j), "bitwise_xor")],
)
def test_what_expressions_do_not_have_is_computed_and_named(mod, named):
    q, k, v = (x[:, :, :TQ].double().requires_grad_() for x in tensors(torch.float32, HQ))
    block_mask = create_block_mask(masks()["causal"], None, None, TQ, TQ, device="cpu", BLOCK_SIZE=16)
    with pytest.warns(UserWarning, match="whole matrices") as found:
        output, aux = attn.torch.flex_attention(q, k, v, mod, block_mask, return_aux=AuxRequest(True, True))
    assert named in str(found[0].message)
    truth, total, largest = definition(q, k, v, mod, masks()["causal"], D ** -0.5)
    for ours, theirs in ((output, truth), (aux.lse, total), (aux.max_scores, largest),
                         *zip(torch.autograd.grad(output.sum(), (q, k, v)),
                              torch.autograd.grad(truth.sum(), (q, k, v)))):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_operators_without_an_expression():
    q, k, v = (x[:, :, :TQ].double() for x in tensors(torch.float32, HQ))
    def sided(s, b, h, i, j):
        return torch.where((i > j) ^ (h == 1), s, 2 * s)
    assert torch.allclose(attn.torch.flex_attention(q, k, v, sided), definition(q, k, v, sided, None, D ** -0.5)[0])
    for mod in (lambda s, b, h, i, j: s + (i >> 2), lambda s, b, h, i, j: s + (i ^ j),
                lambda s, b, h, i, j: s + (1 << h)):
        with pytest.warns(UserWarning, match="whole matrices"):
            ours = attn.torch.flex_attention(q, k, v, mod)
        assert torch.allclose(ours, definition(q, k, v, mod, None, D ** -0.5)[0])


def test_a_mask_that_cannot_be_traced():
    q, k, v = (x[:, :, :TQ] for x in tensors(torch.float32, HQ))
    def odd(b, h, i, j):
        return torch.bitwise_xor(i, j) % 2 == 0
    block_mask = create_block_mask(odd, None, None, TQ, TQ, device="cpu", BLOCK_SIZE=16)
    with pytest.warns(UserWarning, match="bitwise_xor"):
        output = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
    assert torch.allclose(output, definition(q, k, v, None, odd, D ** -0.5)[0], atol=2e-6)


def test_a_tensor_may_be_indexed_dim_by_dim():
    q, k, v = tensors(torch.float32, HQ)
    t = Tables(torch.float32)
    one, other = (attn.torch.flex_attention(q, k, v, mod) for mod in (
        lambda s, b, h, i, j: s + t.dense[h, i, j], lambda s, b, h, i, j: s + t.dense[h][i][j]))
    assert torch.equal(one, other)


def test_one_batch_of_keys_for_all():
    q, k, v = tensors(torch.float32, HQ)
    block_mask = create_block_mask(masks()["causal"], B, None, TQ, TK, device="cpu")
    together = attn.torch.flex_attention(q, k[:1], v[:1], block_mask=block_mask)
    assert torch.equal(together, attn.torch.flex_attention(q, k[:1].repeat(B, 1, 1, 1), v[:1].repeat(B, 1, 1, 1),
                                                           block_mask=block_mask))


X = draw(1, 2, 4, 8)
WRONG = [
    (dict(query=X[0]), ValueError, "query has shape [2, 4, 8]; it must be [B, H, T, D]"),
    (dict(key=X.double()), TypeError, "key is torch.float64; it must be torch.float32 as query"),
    (dict(query=X.int()), TypeError, "query is torch.int32; it must be float32"),
    (dict(value=X.numpy()), TypeError, "value is a ndarray; a torch tensor is needed"),
    (dict(value=X[:, :, :3]), ValueError, "value has shape [1, 2, 3, 8]; all dims but the last must be those of key"),
    (dict(key=X[:, :1], value=X[:, :1]), ValueError, "heads of query, or enable_gqa=True"),
    (dict(key=draw(1, 3, 4, 8), value=draw(1, 3, 4, 8), enable_gqa=True), ValueError, "its 3 heads must divide the 2"),
    (dict(key=draw(3, 2, 4, 8), value=draw(3, 2, 4, 8)), ValueError, "it must be [1, heads, keys, 8]"),
    (dict(score_mod=3), TypeError, "score_mod is a int; a function or None is needed"),
    (dict(score_mod=lambda *x: 1.0), TypeError, "score_mod or mask_mod returns a float; a tensor is needed"),
    (dict(score_mod=lambda *x: None), TypeError, "score_mod or mask_mod returns None; a tensor is needed"),
    (dict(block_mask=X), TypeError, "block_mask is a Tensor; a BlockMask or None is needed"),
    (dict(block_mask=create_block_mask(lambda b, h, i, j: i >= j, None, None, 8, 4, device="cpu")), ValueError,
     "block_mask has shape [1, 1, 8, 4]; it must be [1, 2, 4, 4]"),
    (dict(scale="a"), TypeError, "scale is a str; a number is needed"),
    (dict(enable_gqa=None), TypeError, "enable_gqa is None; True or False is needed"),
    (dict(return_lse=2.5), TypeError, "return_lse is a float; True or False is needed"),
    (dict(return_aux=True), TypeError, "return_aux is a bool; an AuxRequest or None is needed"),
    (dict(return_lse=True, return_aux=AuxRequest()), ValueError, "return_lse and return_aux are both given"),
    (dict(kernel_options={"BLOCK_K": 3}), ValueError, "kernel_options has 'BLOCK_K', which attn does not know"),
    (dict(kernel_options={"BACKEND": "FLASH"}), ValueError, "kernel_options has BACKEND 'FLASH'"),
    (dict(kernel_options=[1]), TypeError, "kernel_options is a list; a dict is needed"),
]


@pytest.mark.parametrize(("change", "error", "text"), WRONG, ids=range(len(WRONG)))
def test_wrong_calls(change, error, text):
    with pytest.raises(error) as found:
        attn.torch.flex_attention(**{"query": X, "key": X, "value": X, **change})
    assert text in str(found.value) and str(found.value).startswith("flex_attention: ")
    assert "\n" not in str(found.value)


def test_accepted_kernel_options_change_nothing():
    options = {"BLOCK_M": 32, "fwd_num_warps": 4, "bwd_BLOCK_N2": 16, "PRESCALE_QK": True, "BACKEND": "AUTO"}
    assert torch.equal(attn.torch.flex_attention(X, X, X, kernel_options=options), attn.torch.flex_attention(X, X, X))


def test_in_place_of_torchs_own():
    with attn.torch.patch(flex=True):
        assert flex.flex_attention.__module__ != "attn.torch._patch"  # wraps keeps torch's name
        assert torch.equal(flex.flex_attention(X, X, X), attn.torch.flex_attention(X, X, X))
        with pytest.raises(NotImplementedError):
            flex.flex_attention(X[0], X[0], X[0])
    np.testing.assert_allclose(attn.torch.flex_attention(X, X, X),
                               torch.nn.functional.scaled_dot_product_attention(X, X, X), atol=1e-6)
