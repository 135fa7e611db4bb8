# python/tests/test_flash_mistakes.py: what the functions of flash-attn and torch's varlen_attn refuse, each in one line
# that names the argument; and how they stand in torch's place.
import inspect

import pytest

torch = pytest.importorskip("torch")

from random_tensors import draw

import attn
import attn.torch
from attn.integrations import flash_attn

X = draw(2, 5, 2, 8)
CU = torch.tensor([0, 2, 5], dtype=torch.int32)
FUNCTIONS = {
    "flash_attn_func": dict(q=X, k=X, v=X),
    "flash_attn_kvpacked_func": dict(q=X, kv=draw(2, 5, 2, 2, 8)),
    "flash_attn_qkvpacked_func": dict(qkv=draw(2, 5, 3, 2, 8)),
    "flash_attn_varlen_func": dict(q=X[0], k=X[0], v=X[0], cu_seqlens_q=CU, cu_seqlens_k=CU, max_seqlen_q=3,
                                   max_seqlen_k=3),
    "flash_attn_varlen_kvpacked_func": dict(q=X[0], kv=draw(5, 2, 2, 8), cu_seqlens_q=CU, cu_seqlens_k=CU,
                                            max_seqlen_q=3, max_seqlen_k=3),
    "flash_attn_varlen_qkvpacked_func": dict(qkv=draw(5, 3, 2, 8), cu_seqlens=CU, max_seqlen=3),
    "flash_attn_with_kvcache": dict(q=X, k_cache=draw(3, 9, 2, 8), v_cache=draw(3, 9, 2, 8), k=X, v=X,
                                    cache_seqlens=torch.tensor([1, 4], dtype=torch.int32)),
    "varlen_attn": dict(query=X[0], key=X[0], value=X[0], cu_seq_q=CU, cu_seq_k=CU, max_q=3, max_k=3),
}


def function_of(name):
    return getattr(flash_attn, name, None) or getattr(attn.torch, name)


def refused(name, change, error, text):
    arguments = {**FUNCTIONS[name], **change}
    caches = [x.clone() for n, x in arguments.items() if "cache" in n and isinstance(x, torch.Tensor)]
    with pytest.raises(error) as found:
        function_of(name)(**arguments)
    assert text in str(found.value) and str(found.value).startswith(f"{name}: ") and "\n" not in str(found.value), (
        str(found.value))
    after = [x for n, x in arguments.items() if "cache" in n and isinstance(x, torch.Tensor)]
    assert all(torch.equal(a, b) for a, b in zip(caches, after)), "something was written"


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_calls_without_options_run(name):
    result = function_of(name)(**FUNCTIONS[name])
    assert torch.isfinite(result).all() and result.is_contiguous()


COMMON = [
    ({"softmax_scale": "a"}, TypeError, "softmax_scale is a str; a number is needed"),
    ({"softmax_scale": torch.ones((), requires_grad=True)}, TypeError, "softmax_scale wants a gradient"),
    ({"causal": None}, TypeError, "causal is None; True or False is needed"),
    ({"window_size": 3}, TypeError, "window_size is a int; it must be (left, right), -1 for no limit"),
    ({"window_size": (1, 2, 3)}, TypeError, "window_size is of length 3; it must be (left, right)"),
    ({"window_size": (1.5, 0)}, TypeError, "window_size is a float; a whole number is needed"),
    ({"softcap": None}, TypeError, "softcap is None; a number is needed"),
    ({"alibi_slopes": [1, 2]}, TypeError, "alibi_slopes is a list; a torch tensor is needed"),
    ({"alibi_slopes": torch.ones(2, dtype=torch.int32)}, TypeError, "alibi_slopes is torch.int32; it must be float32"),
    ({"alibi_slopes": torch.ones(3)}, ValueError, "alibi_slopes has shape [3]; it must be [2] or [2, 2]"),
]
TRAINED = [
    ({"dropout_p": 1.5}, ValueError, "dropout_p is 1.5; it must be from 0 to 1"),
    ({"dropout_p": None}, TypeError, "dropout_p is None; a number is needed"),
    ({"deterministic": "yes"}, TypeError, "deterministic is a str; True or False is needed"),
    ({"return_attn_probs": 0.5}, TypeError, "return_attn_probs is a float; True or False is needed"),
]


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_options_that_are_refused(name):
    cases = COMMON if name != "varlen_attn" else [
        ({"scale": "a"}, TypeError, "scale is a str; a number is needed"),
        ({"enable_gqa": None}, TypeError, "enable_gqa is None; True or False is needed"),
        ({"num_splits": 1.5}, TypeError, "num_splits is a float; a whole number is needed"),
        ({"return_aux": True}, TypeError, "return_aux is a bool"), *COMMON[3:6]]
    for case in cases:
        refused(name, *case)
    if name not in ("varlen_attn", "flash_attn_with_kvcache"):
        for case in TRAINED:
            refused(name, *case)


@pytest.mark.parametrize(
    ("name", "change", "error", "text"),
    [
        ("flash_attn_func", {"q": X.numpy()}, TypeError, "q is a ndarray; a torch tensor is needed"),
        ("flash_attn_func", {"q": X[0]}, ValueError, "q has shape [5, 2, 8]; it must be [B, seqlen_q, heads,"),
        ("flash_attn_func", {"q": X.int()}, TypeError, "q is torch.int32; it must be float32, float64, bfloat16 or"),
        ("flash_attn_func", {"k": X.double()}, TypeError, "k is torch.float64; it must be torch.float32 as q"),
        ("flash_attn_func", {"alibi_slopes": X[0, 0, :, 0].double()}, TypeError,
         "alibi_slopes is torch.float64; it must be float32"),
        ("flash_attn_func", {"k": X[:1]}, ValueError, "k has shape [1, 5, 2, 8]; it must be [2, seqlen_k, heads_k, 8]"),
        ("flash_attn_func", {"k": X[..., :4]}, ValueError, "k has shape [2, 5, 2, 4]; it must be [2, seqlen_k,"),
        ("flash_attn_func", {"v": X[:, :3]}, ValueError, "v has shape [2, 3, 2, 8]; all dims but the last must be"),
        ("flash_attn_func", {"k": draw(2, 5, 3, 8), "v": draw(2, 5, 3, 8)}, ValueError, "its 3 heads must divide"),
        ("flash_attn_func", {"v": X.to_sparse()}, TypeError, "v has layout torch.sparse_coo; give v.to_dense()"),
        ("flash_attn_kvpacked_func", {"kv": X}, ValueError, "kv has shape [2, 5, 2, 8]; it must be [B, seqlen, 2,"),
        ("flash_attn_qkvpacked_func", {"qkv": 3}, TypeError, "qkv is a int; a torch tensor is needed"),
        ("flash_attn_varlen_func", {"q": X}, ValueError, "q has shape [2, 5, 2, 8]; it must be [total_q, heads,"),
        ("flash_attn_varlen_func", {"cu_seqlens_q": CU.float()}, TypeError, "cu_seqlens_q is torch.float32; it"),
        ("flash_attn_varlen_func", {"cu_seqlens_q": CU[None]}, ValueError, "cu_seqlens_q has shape [1, 3]; it must be"),
        ("flash_attn_varlen_func", {"cu_seqlens_q": CU + 1}, ValueError, "cu_seqlens_q must begin with 0 and never"),
        ("flash_attn_varlen_func", {"cu_seqlens_q": CU[[0, 2, 1]]}, ValueError, "cu_seqlens_q must begin with 0 and"),
        ("flash_attn_varlen_func", {"cu_seqlens_k": CU * 2}, ValueError, "cu_seqlens_k ends at 10; k has 5 rows"),
        ("flash_attn_varlen_func", {"cu_seqlens_k": CU[:2]}, ValueError, "cu_seqlens_k has shape [2]; it must be [3]"),
        ("flash_attn_varlen_func", {"cu_seqlens_k": None}, TypeError, "cu_seqlens_k is None; it is needed unless"),
        ("flash_attn_varlen_func", {"max_seqlen_q": 2}, ValueError, "max_seqlen_q is 2; the longest sequence has 3"),
        ("flash_attn_varlen_func", {"max_seqlen_k": None}, TypeError, "max_seqlen_k is None; a whole number is needed"),
        ("flash_attn_varlen_func", {"seqused_k": CU[1:] * 2}, ValueError, "seqused_k holds 4 for a sequence of 2 keys"),
        ("flash_attn_varlen_func", {"leftpad_k": CU[1:]}, ValueError, "leftpad_k holds 5; a sequence has fewer keys"),
        ("flash_attn_varlen_func", {"leftpad_k": -CU[1:]}, ValueError, "leftpad_k holds -5; its numbers must be 0 or"),
        ("flash_attn_varlen_func", {"block_table": CU}, ValueError, "k has shape [5, 2, 8]; it must be [pages,"),
        ("flash_attn_varlen_func", {"block_table": CU, "k": X, "v": X}, ValueError,
         "block_table has shape [3]; it must be [2, pages of a sequence]"),
        ("flash_attn_varlen_func", {"block_table": torch.tensor([[0], [7]]), "k": X, "v": X}, ValueError,
         "block_table holds 7; there are 2 pages"),
        ("flash_attn_varlen_func", {"block_table": torch.tensor([[0], [1]]), "k": X[:, :2], "v": X[:, :2]}, ValueError,
         "a sequence has 3 keys; block_table has 1 pages of 2 for it"),
        ("flash_attn_varlen_func", {"block_table": torch.tensor([[0], [1]]), "k": X, "v": X, "leftpad_k": CU[1:]},
         ValueError, "leftpad_k is given with block_table"),
        ("flash_attn_varlen_qkvpacked_func", {"max_seqlen": 1}, ValueError, "max_seqlen is 1; the longest sequence"),
        ("varlen_attn", {"key": draw(5, 1, 8), "value": draw(5, 1, 8)}, ValueError,
         "key has shape [5, 1, 8]; it must have the 2 heads of query [5, 2, 8], or enable_gqa=True is needed"),
        ("varlen_attn", {"block_table": torch.tensor([[0], [1]])}, TypeError, "block_table is given without seqused_k"),
        ("varlen_attn", {"cu_seq_q": None}, TypeError, "cu_seq_q is None; a torch tensor is needed"),
        ("varlen_attn", {"max_k": 2}, ValueError, "max_k is 2; the longest sequence has 3"),
        ("varlen_attn", {"value": X[0].half()}, TypeError, "value is torch.float16; it must be torch.float32 as query"),
        ("flash_attn_with_kvcache", {"v": None}, TypeError, "v is None; k and v are given together or not at all"),
        ("flash_attn_with_kvcache", {"cache_seqlens": None}, TypeError, "cache_seqlens is None; it is needed where k"),
        ("flash_attn_with_kvcache", {"cache_seqlens": 5}, ValueError,
         "sequence 0 has 5 keys in the cache and 5 new ones; there is room for 9"),
        ("flash_attn_with_kvcache", {"cache_seqlens": CU}, ValueError, "cache_seqlens has shape [3]; it must be [2]"),
        ("flash_attn_with_kvcache", {"cache_batch_idx": CU[1:]}, ValueError,
         "cache_batch_idx holds 5; k_cache has 3 sequences"),
        ("flash_attn_with_kvcache", {"cache_leftpad": CU[1:]}, ValueError, "cache_leftpad holds 5; a sequence has"),
        ("flash_attn_with_kvcache", {"k": X[:, :2]}, ValueError, "v has shape [2, 5, 2, 8]; it must be [2, seqlen"),
        ("flash_attn_with_kvcache", {"k": X.double()}, TypeError, "k is torch.float64; it must be torch.float32 as q"),
        ("flash_attn_with_kvcache", {"k_cache": draw(1, 9, 2, 8), "v_cache": draw(1, 9, 2, 8)}, ValueError,
         "k_cache has shape [1, 9, 2, 8]; it must have 2 or more rows of keys to match q"),
        ("flash_attn_with_kvcache", {"k_cache": X[0]}, ValueError, "k_cache has shape [5, 2, 8]; it must have 4 dims"),
        ("flash_attn_with_kvcache", {"rotary_cos": draw(9, 4)}, TypeError, "rotary_sin is None; rotary_cos and"),
        ("flash_attn_with_kvcache", {"rotary_cos": draw(9, 5), "rotary_sin": draw(9, 5)}, ValueError,
         "rotary_cos has shape [9, 5]; it must be [positions, rotary_dim / 2]"),
        ("flash_attn_with_kvcache", {"rotary_cos": draw(6, 2), "rotary_sin": draw(6, 2)}, ValueError,
         "rotary_cos has shape [6, 2]; position 8 is rotated"),
        ("flash_attn_with_kvcache", {"rotary_cos": draw(9, 4), "rotary_sin": draw(9, 4), "k": None, "v": None},
         TypeError, "rotary_cos is given without k and v"),
        ("flash_attn_with_kvcache", {"rotary_interleaved": None}, TypeError, "rotary_interleaved is None; True or"),
        ("flash_attn_with_kvcache", {"num_splits": "a"}, TypeError, "num_splits is a str; a whole number is needed"),
        ("flash_attn_with_kvcache", {"return_softmax_lse": None}, TypeError, "return_softmax_lse is None; True or"),
        ("flash_attn_with_kvcache", {"q": X.clone().requires_grad_()}, ValueError, "q requires a gradient, which a"),
        ("flash_attn_with_kvcache", {"block_table": torch.tensor([[3, 1], [2, 0]])}, ValueError,
         "block_table holds 3; there are 3 pages"),
        ("flash_attn_with_kvcache", {"block_table": torch.tensor([[0], [1]]), "cache_batch_idx": CU[1:]}, ValueError,
         "cache_batch_idx is given with block_table"),
        ("flash_attn_with_kvcache", {"block_table": torch.tensor([[0], [1]]), "cache_leftpad": CU[1:]}, ValueError,
         "cache_leftpad is given with block_table"),
        ("flash_attn_with_kvcache", {"block_table": torch.tensor([0, 1])}, ValueError,
         "block_table has shape [2]; it must be [2, pages of a sequence]"),
    ],
)
def test_what_is_refused(name, change, error, text):
    refused(name, change, error, text)


def test_any_number_of_splits_and_deterministic_change_nothing():
    one = {**FUNCTIONS["flash_attn_with_kvcache"], "k": None, "v": None}
    assert torch.equal(*(flash_attn.flash_attn_with_kvcache(**one, num_splits=n) for n in (0, 7)))
    assert torch.equal(flash_attn.flash_attn_func(X, X, X), flash_attn.flash_attn_func(X, X, X, deterministic=True))


def test_packed_arguments_are_the_three_tensors():
    q, k, v = draw(2, 5, 3, 2, 8).unbind(2)
    together = flash_attn.flash_attn_func(q, k, v, causal=True)
    assert torch.equal(flash_attn.flash_attn_qkvpacked_func(draw(2, 5, 3, 2, 8), causal=True), together)
    assert torch.equal(flash_attn.flash_attn_kvpacked_func(q, torch.stack((k, v), 2), causal=True), together)
    flat = draw(5, 3, 2, 8)
    wanted = flash_attn.flash_attn_varlen_func(*flat.unbind(1), CU, CU, 3, 3)
    assert torch.equal(flash_attn.flash_attn_varlen_qkvpacked_func(flat, CU, 3), wanted)
    assert torch.equal(flash_attn.flash_attn_varlen_kvpacked_func(flat[:, 0], flat[:, 1:], CU, CU, 3, 3), wanted)


def test_the_probabilities_show_what_dropout_removed():
    torch.manual_seed(3)
    output, _, weights = flash_attn.flash_attn_func(X, X, X, 0.5, causal=True, return_attn_probs=True)
    kept = torch.where(torch.signbit(weights), 0, weights) / 0.5
    assert 0 < torch.signbit(weights).sum() < weights.numel()
    assert torch.allclose(torch.einsum("bhij,bjhd->bihd", kept, X), output, atol=1e-6)


def test_varlen_attn_has_torchs_arguments():
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    assert list(inspect.signature(varlen.varlen_attn).parameters) == list(
        inspect.signature(attn.torch.varlen_attn).parameters)
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    assert list(inspect.signature(flex.flex_attention).parameters) == list(
        inspect.signature(attn.torch.flex_attention).parameters)


def test_varlen_attn_in_place_of_torchs():
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    call = FUNCTIONS["varlen_attn"]
    original = varlen.varlen_attn
    with attn.torch.patch(varlen=True):
        output, logsumexp = varlen.varlen_attn(**call, return_aux=varlen.AuxRequest(lse=True), window_size=(-1, 0))
        with pytest.raises(ValueError, match="max_q is 1"):
            varlen.varlen_attn(**{**call, "max_q": 1})
    assert varlen.varlen_attn is original
    assert torch.equal(output, attn.torch.varlen_attn(**call, window_size=(-1, 0)))
    assert logsumexp.shape == (2, 5) and logsumexp.dtype is torch.float32
    with pytest.raises(TypeError, match="varlen is a str"):
        attn.torch.patch(varlen="yes")


def test_second_derivatives_and_lengths_of_zero():
    q = X.double().requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda x: flash_attn.flash_attn_func(x, x, x, causal=True, softcap=3.0, alibi_slopes=torch.ones(2)), q)
    empty = flash_attn.flash_attn_func(X[:, :0], X, X)
    assert empty.shape == (2, 0, 2, 8)
    assert flash_attn.flash_attn_func(X, X[:, :0], X[:, :0]).abs().sum() == 0
    assert flash_attn.flash_attn_varlen_func(X[0], X[0], X[0], CU[:1], CU[:1], 0, 0).abs().sum() == 0
