# python/tests/test_torch_mistakes.py: wrong calls with torch tensors:
# always TypeError or ValueError with a text, never a crash.
import faulthandler

import numpy as np
import pytest
import test_mistakes

torch = pytest.importorskip("torch")

import attn
import attn.torch

faulthandler.enable()
CALLS_EACH = 5000


def strange(random):
    """Tensors of all kinds, now and then a good one, beside what is no tensor."""
    shape = tuple(int(n) for n in random.integers(0, 5, size=int(random.integers(0, 6))))
    return [
        *(torch.zeros(shape, dtype=dtype)
          for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.int64,
                        torch.int32, torch.uint8, torch.complex64)),
        torch.zeros(shape, requires_grad=True), torch.full(shape, float("nan")), torch.zeros(shape, device="meta"),
        torch.zeros(3, 4).to_sparse(), torch.zeros((1,) * 10), torch.zeros(2, 3, 4, 8),
        torch.zeros(2, 3, 4, 8, requires_grad=True), torch.zeros(2, 3, 8, 4).transpose(2, 3),
        torch.zeros(1, 1, 4, 8).expand(2, 3, 4, 8), torch.imag(torch.zeros(2, 3, 4, 8, dtype=torch.complex64).conj()),
        torch.zeros(2, 0, 4, 8), torch.zeros(0), torch.ones(4, 4).bool(), torch.zeros(4, 4), torch.zeros(8, 8),
        torch.nn.Parameter(torch.zeros(8, 8)), torch.quantize_per_tensor(torch.zeros(2, 2), 0.1, 0, torch.quint8),
        torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)]),
        torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)], layout=torch.jagged),
        torch.tensor([0, 2, 4]), torch.tensor([4, 2, 0]), torch.tensor([-1, 2**62]), torch.float32, torch.device("cpu"),
        torch.nn.Linear(2, 2), torch, *test_mistakes.strange(random),
    ]  # fmt: skip


def targets():
    attention = list(attn._core.attention_options)
    module = attn.torch.MultiheadAttention(8, 2, batch_first=True)
    sdpa = ["attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"]
    masks = ["key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal"]
    return {
        "scaled_dot_product_attention": (attn.scaled_dot_product_attention, 3, sdpa),
        "torch.scaled_dot_product_attention": (attn.torch.scaled_dot_product_attention, 3, sdpa),
        "attention": (attn.attention, 3, attention),
        "additive_attention": (attn.additive_attention, 6, attention[1:]),
        "attention_scores": (attn.attention_scores, 2, ["score", "scale"]),
        "linear": (attn.torch.linear, 2, ["bias"]),
        "MultiheadAttention": (module, 3, masks),
    }


def test_a_number_that_wants_a_gradient():
    """Refused: a learned temperature would stay as it is without a word."""
    q, learned = torch.randn(1, 2, 5, 8), torch.tensor(0.7, requires_grad=True)
    compiled = torch.compile(lambda x: attn.attention(q, q, q, scale=x).sum(), backend="eager")
    calls = [lambda x, name=name: attn.attention(q, q, q, **{name: x}).sum()
             for name in ("scale", "softcap", "temperature", "dropout_p")]
    for call in (*calls, lambda x: attn.torch.scaled_dot_product_attention(q, q, q, scale=x).sum(), compiled):
        with pytest.raises(TypeError, match="wants a gradient, which numbers do not get"):
            call(learned)
        with pytest.raises(TypeError, match="wants a gradient"):
            torch.func.grad(call)(learned.detach())
        with torch.no_grad():
            assert torch.equal(call(learned), call(learned.detach())) or call is calls[3]


@pytest.mark.parametrize("name", targets())
def test_5000_random_wrong_calls(random, name):
    function, count, keywords = targets()[name]
    good = torch.zeros(2, 4, 8) if name in ("MultiheadAttention", "linear") else torch.zeros(2, 3, 4, 8)
    good = good.requires_grad_(bool(random.integers(0, 2)))

    def objects():
        # What is not dense goes to torch's own module, and its mistakes are told by it.
        return [x for x in strange(random)
                if name != "MultiheadAttention" or not isinstance(x, torch.Tensor) or not (x.is_nested or x.is_sparse)]

    refused = sum(test_mistakes.throw(random, function, count, keywords, objects(), good) is not None
                  for _ in range(CALLS_EACH))
    print(f"{name}: {refused} refused calls")
    assert refused > CALLS_EACH // 2


def test_out_where_a_gradient_is_wanted():
    """The result of a recorded call is new memory: out would stay as it was, without a word."""
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    out = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="attention: out is given and a gradient is wanted"):
        attn.attention(q, q, q, out=out)
    with torch.no_grad():
        assert attn.attention(q, q, q, out=out) is out and out.any()


def test_what_is_written_to_out_is_seen_by_other_records():
    x, out, w = torch.randn(1, 2, 3, 4), torch.empty(1, 2, 3, 4), torch.ones(1, 2, 3, 4, requires_grad=True)
    for mode in (torch.enable_grad, torch.no_grad):
        y = (w * out).sum()
        with mode():
            attn.attention(x, x, x, out=out)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
    with pytest.raises(ValueError, match="attention: out wants a gradient"):
        attn.attention(x, x, x, out=torch.empty(1, 2, 3, 4, requires_grad=True))


def test_a_gradient_that_numpy_would_lose_is_refused():
    x, leaf = np.ones((1, 2, 3, 4), np.float32), torch.ones(1, 2, 3, 4, requires_grad=True)
    for options in ({}, {"bias": torch.zeros(3, 3, requires_grad=True)}, {"sinks": torch.zeros(2, requires_grad=True)}):
        k = leaf if not options else x
        with pytest.raises(TypeError,
                           match=f"{'k' if not options else next(iter(options))} wants a gradient and the first array "
                                 "is no torch tensor"):
            attn.attention(x, k, x, **options)
        with torch.no_grad():
            assert type(attn.attention(x, k, x, **options)) is np.ndarray
    with pytest.raises(TypeError, match="key wants a gradient"):
        attn.scaled_dot_product_attention(x, leaf, x)
    number = torch.tensor(0.5, requires_grad=True)
    for name in ("scale", "softcap", "temperature", "dropout_p"):
        for call in (attn.attention, attn.scaled_dot_product_attention,
                     attn.attention_scores)[: 2 if name == "dropout_p" else 3 if name == "scale" else 1]:
            values = (x, x) if call is attn.attention_scores else (x, x, x)
            with pytest.raises(TypeError, match=f"{call.__name__}: {name} wants a gradient, which numbers do not get"):
                call(*values, **{name: number})
            with torch.no_grad():
                assert type(call(*values, **{name: number})) is np.ndarray
    with pytest.raises(TypeError, match="wants a gradient, which numbers do not get"):
        attn.Bias.alibi([number, number])


def test_what_only_looks_like_a_tensor_is_refused():
    class Duck:
        @classmethod
        def __torch_function__(cls, *_):
            return 7

    with pytest.raises(TypeError, match="attention: q is a .*Duck; a NumPy array, a torch tensor"):
        attn.attention(Duck(), torch.ones(3, 4), torch.ones(3, 4))
