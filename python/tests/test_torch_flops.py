# python/tests/test_torch_flops.py: what torch's FlopCounterMode counts for calls of attn.
import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def counted(run):
    with FlopCounterMode(display=False) as mode:
        run()
    return mode.get_total_flops()


def test_a_patched_layer_counts_as_torchs_own():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x = torch.randn(3, 10, 32)
    with sdpa_kernel(SDPBackend.MATH):
        torchs = counted(lambda: layer(x))
    with attn.torch.patch(linear=True):
        assert counted(lambda: layer(x)) == torchs > 0


def test_gradients_of_linear_count_as_torchs_own():
    x, weight, bias = (torch.randn(2, 7, 16, requires_grad=True), torch.randn(24, 16, requires_grad=True),
                       torch.randn(24, requires_grad=True))
    torchs = counted(lambda: torch.nn.functional.linear(x, weight, bias).sum().backward())
    assert counted(lambda: attn.torch.linear(x, weight, bias).sum().backward()) == torchs == 3 * 2 * 14 * 16 * 24


@pytest.mark.parametrize("heads", [6, 2])
def test_attention_counts_five_products_backward(heads):
    q, k, v = (torch.randn(2, 6, 5, 8, requires_grad=True), torch.randn(2, heads, 9, 8, requires_grad=True),
               torch.randn(2, heads, 9, 12, requires_grad=True))
    scores, output = 2 * 2 * 6 * 5 * 9 * 8, 2 * 2 * 6 * 5 * 9 * 12
    for call in (
        lambda: attn.torch.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        lambda: attn.attention(q, k, v, softcap=20.0, mask=attn.Mask.causal('bottom_right')),
    ):
        assert counted(call) == scores + output
        assert counted(lambda: call().sum().backward()) == (scores + output) + (3 * scores + 2 * output)


def test_packed_sequences_count_their_own_pairs_alone():
    x = torch.randn(12, 4, 8)
    lengths = torch.tensor([0, 3, 12], dtype=torch.int32)
    for given in (lengths, lengths.numpy()):
        assert (counted(lambda: attn.attention(x, x, x, cu_seqlens_q=given, cu_seqlens_k=given))
                == 2 * 4 * (3 * 3 + 9 * 9) * (8 + 8))


def test_scores_with_weights_count_their_projections():
    q, k, v = torch.randn(2, 3, 5, 6), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 8)
    pairs, output = 2 * 3 * 5 * 7, 2 * 2 * 3 * 5 * 7 * 8
    additive = attn.Score.additive(torch.randn(10, 6), torch.randn(10, 4), torch.randn(10))
    assert counted(lambda: attn.attention(q, k, v, score=additive)) == 2 * 10 * (q.numel() + k.numel() + pairs) + output
    assert (counted(lambda: attn.attention(q, k, v, score=attn.Score.general(torch.randn(6, 4))))
            == 2 * 4 * (q.numel() + pairs) + output)
