# python/tests/test_torch_graphs.py: graphs of patched functions for those who have no attn: torch.jit.script, ONNX.
import pytest

torch = pytest.importorskip("torch")

import attn.torch

F = torch.nn.functional


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor):
        y = self.linear(x)
        return F.scaled_dot_product_attention(y, y, y, scale=0.5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_has_torchs_own_operators():
    torch.manual_seed(0)
    block, x = Block(), torch.randn(2, 5, 8)
    expected = block(x)
    for _ in range(2):
        with attn.torch.patch(linear=True):
            script = torch.jit.script(block)
            torch.testing.assert_close(script(x), expected)
        assert "scaled_dot_product_attention" in script.code and "attn" not in script.code
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    with attn.torch.patch(linear=True):
        torch.testing.assert_close(torch.jit.script(layer)(x), layer(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_onnx_has_no_operators_of_attn(tmp_path):
    onnx = pytest.importorskip("onnx")
    block, x = Block().eval(), torch.randn(2, 5, 8)
    with attn.torch.patch(linear=True):
        torch.onnx.export(block, (x,), tmp_path / "block.onnx", dynamo=False)
    assert {node.domain for node in onnx.load(tmp_path / "block.onnx").graph.node} == {""}
