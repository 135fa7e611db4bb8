# python/tests/test_transformers_batching.py: transformers' continuous batching with attn's packed sequences.
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import attn.integrations.transformers as integration
from test_transformers import batch, model_of

integration.register()

PROMPTS = [[5, 6, 7, 8, 9], [1, 2, 3], [9, 8, 7] * 7, [4]]
NAMES = ["llama", "mistral, a window of 4", "gemma2, softcap and windows", "gpt-oss, sinks and windows"]


def batched(model, implementation, prompts=PROMPTS, **options):
    model.set_attn_implementation(implementation)
    config = transformers.GenerationConfig(max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=0)
    cache = transformers.ContinuousBatchingConfig(num_blocks=16, page_size=16, **options)
    results = model.generate_batch(inputs=prompts, generation_config=config, continuous_batching_config=cache,
                                   progress_bar=False)
    return [results[f"req_{i}"].generated_tokens for i in range(len(prompts))]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_tokens_as_eager_one_by_one(name, monkeypatch):
    model, calls = model_of(name), []
    packed = integration.packed_attention
    monkeypatch.setattr(integration, "packed_attention", lambda *a, **o: calls.append(a[0].shape[2]) or packed(*a, **o))
    found = batched(model, "attn_flash")
    assert max(calls) > 21 and 4 in calls, "prompts, and then a row of each, in one call"
    model.set_attn_implementation("eager")
    for prompt, tokens in zip(PROMPTS, found):
        whole = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0)
        assert tokens == whole[0, len(prompt):].tolist()
    assert len({token for tokens in found for token in tokens}) > 6, "the model says something"


@pytest.mark.parametrize("name", ["llama", "mistral, a window of 4"])
def test_the_same_tokens_as_sdpa_in_batches(name):
    """Few tokens a batch: the long prompt is read in pieces, which see those before."""
    model = model_of(name)
    for tokens in (8, 64):
        assert batched(model, "attn_flash", max_batch_tokens=tokens) == batched(model, "sdpa", max_batch_tokens=tokens)


def test_the_name_generates_and_loads_as_the_other_one(tmp_path):
    model = model_of("llama")
    expected = model.generate(**batch(True), max_new_tokens=12, do_sample=False)
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="attn_flash").eval()
    assert again.config._attn_implementation == "attn_flash"
    assert torch.equal(again.generate(**batch(True), max_new_tokens=12, do_sample=False), expected)


def test_a_model_that_asks_for_flash_is_refused():
    """ESM C and others compute another way under a name that contains "flash"."""
    small = dict(vocab_size=99, n_positions=64, n_embd=32, n_layer=1, n_head=4)
    config = transformers.GPTBigCodeConfig(**small, bos_token_id=0, eos_token_id=0)
    with pytest.raises(ValueError) as found:
        transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attn_flash")
    assert str(found.value) == (
        'attn: GPTBigCodeForCausalLM asks whether the name of its implementation contains "flash", and then computes '
        'another way; load it with a name that does not, such as attn_implementation="attn", not "attn_flash"')
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attn")
    assert model.config._attn_implementation == "attn"


def packed(dtype=torch.float64, **options):
    generator = torch.Generator().manual_seed(2)
    query, key, value = (torch.randn(1, heads, rows, 8, dtype=dtype, generator=generator)
                         for heads, rows in ((4, 7), (2, 16), (2, 16)))
    ends = dict(cu_seq_lens_q=torch.tensor([0, 3, 3, 7], dtype=torch.int32),
                cu_seq_lens_k=torch.tensor([0, 5, 5, 16], dtype=torch.int32))
    module = torch.nn.Module()
    return (query, key, value), integration.attention(module, query, key, value, None, **ends | options)[0]


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("causal", [True, False])
def test_the_rows_of_a_sequence_end_at_its_last_key(causal, window):
    (query, key, value), output = packed(is_causal=causal, sliding_window=window)
    assert output.shape == (1, 7, 4, 8)
    for rows, keys in (((0, 3), (0, 5)), ((3, 7), (5, 16))):
        q, k, v = (x[:, :, a:b] for x, (a, b) in ((query, rows), (key, keys), (value, keys)))
        ahead = torch.arange(k.shape[2]) - (torch.arange(q.shape[2]) + k.shape[2] - q.shape[2])[:, None]
        seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
        seen = seen if window is None else seen & (ahead.abs() < window)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen, enable_gqa=True)
        assert (output[:, rows[0]:rows[1]] - expected.transpose(1, 2)).abs().max() <= 1e-12


def test_rows_after_the_last_sequence_are_zero():
    _, whole = packed(is_causal=True)
    _, some = packed(is_causal=True, cu_seq_lens_q=torch.tensor([0, 3, 3]), cu_seq_lens_k=torch.tensor([0, 5, 5]))
    assert torch.equal(some[:, :3], whole[:, :3]) and not some[:, 3:].any()


def test_wrong_packed_calls_say_what_is_needed():
    for options, text in [
        ({"cu_seq_lens_q": [0, 7]}, "attention: cu_seq_lens_q is a list; it must be int32 or int64 [N + 1]"),
        ({"cu_seq_lens_k": torch.zeros(2)},
         "attention: cu_seq_lens_k is torch.float32 of shape [2]; it must be int32 or int64 [N + 1]"),
        ({"block_table": torch.zeros(1, 1)},
         "attention: block_table is given with cu_seq_lens_q; packed sequences do not take it"),
    ]:
        with pytest.raises(ValueError) as found:
            packed(**options)
        assert str(found.value) == text


def test_packed_calls_are_refused_where_torch_computes(monkeypatch):
    monkeypatch.setattr(integration._call, "writes_onnx", lambda: True)
    with pytest.raises(ValueError) as found:
        packed()
    assert str(found.value) == (
        "attn: ONNX is written, where torch's function takes the call, which knows no packed sequences")
