# python/tests/test_onnx.py: every node case of ONNX's Attention (opset 23 to 25), RotaryEmbedding, LinearAttention,
# CausalConvWithState and FlexAttention through the backend.
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("ml_dtypes")

import attn.integrations.onnx as backend

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other operators' cases overflow on purpose while they are made
    from onnx.backend.test.loader import load_model_tests

    SINGLE = [case for case in load_model_tests(kind="node") if len(case.model.graph.node) == 1]
    CASES = [case for case in SINGLE if case.name.startswith("test_attention_")]
    OTHERS = [case for case in SINGLE if case.model.graph.node[0].op_type in (
        "RotaryEmbedding", "FlexAttention", "LinearAttention", "CausalConvWithState")]


def units(x):
    """bf16 as whole numbers whose neighbours are neighbours."""
    bits = np.asarray(x).view(np.int16).astype(np.int32)
    return np.where(bits < 0, -32768 - bits, bits)


def assert_same(got, wanted, case):
    """bf16: to one unit in the last place."""
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    if wanted.dtype.name == "bfloat16":
        assert np.abs(units(got) - units(wanted)).max(initial=0) <= 1
    else:
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=case.rtol, atol=case.atol)


def test_all_cases_are_here():
    opsets = [case.model.opset_import[0].version for case in CASES]
    print(f"{len(CASES)} single Attention nodes of onnx {onnx.__version__}: "
          + ", ".join(f"{opsets.count(n)} of opset {n}" for n in sorted(set(opsets))))
    if onnx.__version__.startswith("1.23."):
        assert len(CASES) == 93
        assert len(OTHERS) == 46
    assert CASES


@pytest.mark.parametrize("case", CASES + OTHERS, ids=lambda case: case.name)
def test_node(case):
    for inputs, outputs in case.data_sets:
        results = backend.run_model(case.model, list(inputs))
        assert len(results) == len(outputs)
        for got, wanted in zip(results, outputs):
            assert_same(got, wanted, case)


def model_of(**attributes):
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], **attributes)
    relu = helper.make_node("Relu", ["y"], ["z"])
    values = [helper.make_tensor_value_info(name, kind, [1, 2, 4, 8]) for name in "qkvz"]
    graph = helper.make_graph([node, relu], "g", values[:3], values[3:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])


def test_other_nodes_run_beside_it():
    import attn

    q, k, v = (np.random.default_rng(n).standard_normal((1, 2, 4, 8)).astype(np.float32) for n in range(3))
    (z,) = backend.run_model(model_of(is_causal=1), {"q": q, "k": k, "v": v})
    assert np.array_equal(z, np.maximum(attn.scaled_dot_product_attention(q, k, v, is_causal=True), 0))


def test_only_the_cpu():
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")
    with pytest.raises(ValueError, match="CPU"):
        backend.prepare(model_of(), "CUDA")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_heads_without_columns_weigh_all_keys_alike(dtype):
    q, k, v = (np.zeros((2, 4, 3, 0), dtype), np.zeros((2, 2, 5, 0), dtype),
               np.arange(2 * 2 * 5 * 6).reshape(2, 2, 5, 6).astype(dtype))
    y, *_ = backend.attention(q, k, v)
    np.testing.assert_allclose(y, np.broadcast_to(v.repeat(2, axis=1).mean(axis=2, keepdims=True), y.shape),
                               rtol=1e-2 if dtype == np.float16 else 1e-6)
    flat = [x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3]) for x in (q, k, v)]
    z, *_ = backend.attention(*flat, q_num_heads=4, kv_num_heads=2)
    assert np.array_equal(z, y.transpose(0, 2, 1, 3).reshape(2, 3, 24))
    assert backend.attention(flat[0][:, :0], *flat[1:], q_num_heads=4, kv_num_heads=2)[0].shape == (2, 0, 24)
    assert backend.attention(k[:, :, :3], k, v[..., :0])[0].shape == (2, 2, 3, 0)


def test_wrong_calls_say_what_is_needed():
    x = np.zeros((1, 2, 4, 8), np.float32)
    with pytest.raises(ValueError, match="left_window_size is -2"):
        backend.attention(x, x, x, left_window_size=-2)
    with pytest.raises(ValueError, match="together"):
        backend.attention(x, x, x, past_key=x)
    with pytest.raises(ValueError, match="q_num_heads"):
        backend.attention(x[0], x[0], x[0])


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"Q": [[1.0]]}, TypeError, "Attention: Q is a list; a NumPy array is needed"),
        ({"V": None}, TypeError, "V is None"),
        ({"attn_mask": [True]}, TypeError, "attn_mask is a list"),
        ({"Q": np.zeros((4, 8), np.float32)}, ValueError, "Q has shape [4, 8]; it must be [B, H, T, D], or [B, T, "
                                                          "H * D]"),
        ({"K": np.zeros((1, 4, 16), np.float32)}, ValueError, "K has shape [1, 4, 16]; it must be"),
        ({"qk_matmul_output_mode": 4}, ValueError, "qk_matmul_output_mode is 4; it must be from 0 to 3"),
        ({"softmax_precision": 7}, ValueError, "softmax_precision is 7; it must be a floating type"),
        ({"past_key": np.zeros((1, 3, 2, 8), np.float32), "past_value": np.zeros((1, 2, 2, 8), np.float32)}, ValueError,
         "past_key is float32 of shape [1, 3, 2, 8]; it must be float32 [1, 2, past, 8]"),
        ({"past_key": np.zeros((1, 2, 2, 8), np.float32), "past_value": np.zeros((1, 2, 2, 8))}, ValueError,
         "past_value is float64"),
    ],
    ids=lambda x: str(x)[:30],
)
def test_what_a_model_gives_wrongly(change, error, text):
    x = np.zeros((1, 2, 4, 8), np.float32)
    with pytest.raises(error) as found:
        backend.attention(**{"Q": x, "K": x, "V": x, **change})
    assert text in str(found.value)


def test_heads_that_do_not_divide_and_too_many_inputs():
    x = np.zeros((1, 4, 16), np.float32)
    with pytest.raises(ValueError,
                       match=r"K has shape \[1, 4, 16\]; its last dim must be a multiple of kv_num_heads 3"):
        backend.attention(x, x, x, q_num_heads=4, kv_num_heads=3)
    with pytest.raises(ValueError, match="q_num_heads -4"):
        backend.attention(x, x, x, q_num_heads=-4, kv_num_heads=2)
    y = np.zeros((1, 2, 4, 8), np.float32)
    with pytest.raises(ValueError, match="4 inputs are given; the graph has 3: q, k, v"):
        backend.run_model(model_of(), [y] * 4)


def test_linear_attention_goes_on_and_shares_its_state():
    random = np.random.default_rng(3)
    q, k = (random.standard_normal((2, 9, heads * 4)).astype(np.float32) for heads in (6, 2))
    v, decay = random.standard_normal((2, 9, 2 * 5)).astype(np.float32), -random.random((2, 9, 8), dtype=np.float32)
    beta = random.random((2, 9, 1), dtype=np.float32)
    heads = {"q_num_heads": 6, "kv_num_heads": 2}
    whole, end = backend.linear_attention(q, k, v, None, decay, beta, **heads)
    assert whole.shape == (2, 9, 30) and end.shape == (2, 2, 4, 5)
    one, state = backend.linear_attention(*(x[:, :4] for x in (q, k, v)), None, decay[:, :4], beta[:, :4], **heads)
    two, last = backend.linear_attention(*(x[:, 4:] for x in (q, k, v)), state, decay[:, 4:], beta[:, 4:], **heads)
    assert np.array_equal(np.concatenate((one, two), 1), whole) and np.array_equal(last, end)


X = np.zeros((1, 3, 8), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: backend.linear_attention(X, X, X, q_num_heads=2, kv_num_heads=2), ValueError,
         "LinearAttention: decay is missing; update_rule gated_delta needs decay"),
        (lambda: backend.linear_attention(X, X, X, beta=X, q_num_heads=2, kv_num_heads=2, update_rule="linear"),
         ValueError, "LinearAttention: beta is given; update_rule linear has no beta"),
        (lambda: backend.linear_attention(X, X, X, q_num_heads=3, kv_num_heads=2, update_rule="linear"), ValueError,
         "LinearAttention: q_num_heads is 3; it must be a multiple of kv_num_heads 2"),
        (lambda: backend.linear_attention(X, X, X, X[:, 0], q_num_heads=2, kv_num_heads=2, update_rule="linear"),
         ValueError, "LinearAttention: past_state has shape [1, 8]; it must be [1, 2, 4, 4]"),
        (lambda: backend.linear_attention(X, X, X.astype(np.float64), q_num_heads=2, kv_num_heads=2,
                                          update_rule="linear"), TypeError,
         "LinearAttention: value is float64; it must be float32"),
        (lambda: backend.linear_attention(X, X, X, q_num_heads=2, kv_num_heads=2, update_rule="rwkv"), ValueError,
         "LinearAttention: update_rule is rwkv; it must be linear, gated, delta, gated_delta"),
        (lambda: backend.causal_conv_with_state(X, X), ValueError,
         "CausalConvWithState: weight has shape [1, 3, 8]; it must be [3, 1, K]"),
        (lambda: backend.causal_conv_with_state(X, X[0, :, None], activation="gelu"), ValueError,
         "CausalConvWithState: activation is gelu; it must be none, silu, swish"),
        (lambda: backend.causal_conv_with_state(X, None), TypeError,
         "CausalConvWithState: weight is None; a NumPy array is needed"),
    ],
    ids=range(9),
)
def test_what_recurrent_nodes_are_given_wrongly(call, error, text):
    with pytest.raises(error) as found:
        call()
    assert text in str(found.value)


ANGLES = np.zeros((9, 4), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: backend.rotary_embedding(x, ANGLES, ANGLES), ValueError,
         "RotaryEmbedding: cos_cache has shape [9, 4]; it must be [1, 4, 4]"),
        (lambda x: backend.rotary_embedding(x, ANGLES, ANGLES, np.full((1, 4), 9)), ValueError,
         "RotaryEmbedding: position_ids holds 9; cos_cache has 9 positions"),
        (lambda x: backend.rotary_embedding(x, ANGLES, ANGLES, np.zeros((4,))), ValueError,
         "RotaryEmbedding: position_ids is float64 of shape [4]; it must be int64 [1, 4]"),
        (lambda x: backend.rotary_embedding(x[0], ANGLES, ANGLES), ValueError,
         "RotaryEmbedding: X has shape [2, 4, 8]; its last dim must be a multiple of num_heads None"),
        (lambda x: backend.rotary_embedding(x, ANGLES, ANGLES, rotary_embedding_dim=3), ValueError,
         "RotaryEmbedding: 3 columns are rotated; it must be an even number, at most 8"),
        (lambda x: backend.rotary_embedding(x, ANGLES.astype(int), ANGLES), TypeError,
         "RotaryEmbedding: cos_cache is int64; it must be float32"),
        (lambda x: backend.flex_attention(x, x[0], x), ValueError,
         "FlexAttention: K has shape [2, 4, 8]; it must be [B, H, T, D]"),
        (lambda x: backend.flex_attention(x, x, x, softmax_precision=7), ValueError,
         "FlexAttention: softmax_precision is 7; it must be a floating type"),
        (lambda x: backend.flex_attention(x, x, x, score_mod=3), TypeError,
         "FlexAttention: score_mod is a int; a function of one matrix is needed"),
        (lambda x: backend.flex_attention(x, x, x, prob_mod=lambda p: p[0]), ValueError,
         "FlexAttention: prob_mod gives shape [2, 4, 4]; it must be [1, 2, 4, 4]"),
        (lambda x: backend.prepare([1]), TypeError, "attn: model is a list; an onnx.ModelProto, "
                                                    "the path of a file or its bytes is needed"),
        (lambda x: backend.prepare("no such.onnx"), ValueError, 'attn: model is "no such.onnx"; there is no such file'),
        (lambda x: backend.prepare(b"no model"), ValueError, "attn: model is not one of ONNX: "),
        (lambda x: backend.prepare(model_of(), 0), TypeError, 'attn: device is a int; a text is needed, as "CPU"'),
        (lambda x: backend.run_model(model_of(), [x, x]), ValueError,
         "attn: input v is missing; the graph has q, k, v"),
        (lambda x: backend.run_model(model_of(), {"q": x, "k": x, "v": x, "w": x}), ValueError,
         "attn: the graph has no input w; it has q, k, v"),
        (lambda x: backend.run_model(model_of(), [x, "k", x]), TypeError,
         "attn: input k is a str; a NumPy array is needed"),
        (lambda x: backend.attention(x, x, x, scale=[1]), TypeError, "Attention: scale is a list; a number is needed"),
        (lambda x: backend.attention(x, x, x, is_causal=0.5), TypeError,
         "Attention: is_causal is a float; a whole number is needed"),
        (lambda x: backend.attention(x.astype(int), x, x), TypeError,
         "Attention: Q is int64; it must be float32 or float64 or float16 or bfloat16"),
        (lambda x: backend.attention(x, x, x, np.float32(0) + np.zeros(())), TypeError,
         "Attention: attn_mask is a float64; a NumPy array is needed"),
    ],
)
def test_what_users_give_wrongly(call, error, text):
    with pytest.raises(error) as found:
        call(np.zeros((1, 2, 4, 8), np.float32))
    assert str(found.value).startswith(text) and "\n" not in str(found.value)


def test_models_by_path_and_bytes(tmp_path):
    model, x = model_of(), np.ones((1, 2, 4, 8), np.float32)
    onnx.save(model, tmp_path / "model.onnx")
    expected = backend.run_model(model, [x, x, x])
    for given in (tmp_path / "model.onnx", str(tmp_path / "model.onnx"), model.SerializeToString()):
        assert all(np.array_equal(a, b) for a, b in zip(backend.run_model(given, [x, x, x]), expected, strict=True))
    assert not backend.supports_device("TPU") and not backend.is_compatible(5)
