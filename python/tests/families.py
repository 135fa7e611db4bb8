# python/tests/families.py: tiny checkpoints of the families of language models, made with transformers, with their
# logits and their greedy texts.
import json
import pathlib

import torch
import transformers as hf

BASE = {"vocab_size": 29, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": None,
        "pad_token_id": 0}
ROPE = {"rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "factor": 4.0, **ROPE}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, **ROPE}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 500000.0}


def longrope(pairs):
    return {"rope_type": "longrope", "short_factor": [1.0 + 0.125 * i for i in range(pairs)],
            "long_factor": [1.5 + 0.75 * i for i in range(pairs)], "original_max_position_embeddings": 16, **ROPE}


def made(name, **changes):
    config = getattr(hf, f"{name}Config")(**{**BASE, **changes})
    return getattr(hf, f"{name.removesuffix('Text')}ForCausalLM")(config)


def gemma3(**changes):
    """Two thetas, a scaling of one of them, and windows in two of three layers."""
    rope = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    return made("Gemma3Text", **{"num_hidden_layers": 3, "head_dim": 8, "sliding_window": 4, "rope_parameters": rope,
                                 "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                                 "query_pre_attn_scalar": 12} | changes)


def gemma2(**changes):
    return made("Gemma2", **{"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8,
                             "attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0} | changes)


def phi3(**changes):
    return made("Phi3", **{"hidden_size": 32, "original_max_position_embeddings": 16,
                           "rope_parameters": longrope(3) | {"partial_rotary_factor": 0.75}} | changes)


def smollm3(**changes):
    return made("SmolLM3", **{"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]} | changes)


def llama(**rope):
    return made("Llama", **{"rope_parameters": rope} if rope else {})


WINDOWS = {"use_sliding_window": True, "sliding_window": 4}
FAMILIES = {
    "gemma3": gemma3,
    "gemma3, every sixth layer": lambda: gemma3(num_hidden_layers=7, layer_types=None, final_logit_softcapping=3.0,
                                                query_pre_attn_scalar=8, rope_parameters=None),
    "gemma2": gemma2,
    "gemma2, YaRN": lambda: gemma2(rope_parameters=YARN, query_pre_attn_scalar=12, num_hidden_layers=3),
    "phi3": phi3,
    "phi3, plain": lambda: phi3(rope_parameters={"rope_type": "default", **ROPE, "partial_rotary_factor": 0.5}),
    "phi3, a window": lambda: phi3(rope_parameters={"rope_type": "default", **ROPE}, sliding_window=5),
    "smollm3": smollm3,
    "smollm3, windows": lambda: smollm3(no_rope_layers=[0, 1, 1, 0], mlp_bias=True, attention_bias=True, **WINDOWS),
    "mistral": lambda: made("Mistral", sliding_window=4),
    "qwen2, windows in some layers": lambda: made("Qwen2", max_window_layers=1, **WINDOWS),
    "qwen3, windows in some layers": lambda: made("Qwen3", head_dim=6, max_window_layers=1, **WINDOWS),
    "qwen3, YaRN": lambda: made("Qwen3", head_dim=8, rope_parameters=YARN),
    "llama": llama,
    "llama, linear": lambda: llama(**LINEAR),
    "llama, dynamic": lambda: made("Llama", max_position_embeddings=16,
                                   rope_parameters={"rope_type": "dynamic", "factor": 3.0, **ROPE}),
    "llama, YaRN": lambda: llama(**YARN),
    "llama, YaRN with magnitudes": lambda: llama(**YARN, mscale=0.7, mscale_all_dim=1.2, beta_fast=8.0, beta_slow=2.0),
    "llama, YaRN not truncated": lambda: llama(**YARN, attention_factor=1.25, truncate=False),
    "llama, longrope": lambda: llama(**longrope(2)),
    "llama, Llama 3's scaling": lambda: llama(**LLAMA3),
}


def values(x):
    return {"dtype": str(x.dtype)[6:], "shape": list(x.shape),
            "values": [float(f"{v:.9g}") for v in x.flatten().tolist()]}


def by_length(model):
    """Whether the length of a text decides its frequencies: transformers then needs each text alone, and no cache."""
    rope = model.config.rope_parameters
    return rope.get("rope_type") in ("dynamic", "longrope")


def greedy(model, prompts, tokens):
    """The tokens that transformers adds to the prompts: as one batch, padded on the left, with its cache."""
    options = {"max_new_tokens": tokens, "do_sample": False}
    if by_length(model):
        return [model.generate(torch.tensor([prompt]), use_cache=False, **options)[0, len(prompt):].tolist()
                for prompt in prompts]
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return model.generate(ids, attention_mask=mask, **options)[:, longest:].tolist()


def save(folder, model, seed):
    """The folder as transformers saves it, with other weights."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():  # biases and norms too, so that each is seen
            weight.add_(torch.randn_like(weight) * 0.3)
    model.eval().save_pretrained(folder)
    model.set_attn_implementation("eager")  # the definition; in Gemma 2 the others have no softcap


def write(folder, model, seed=7, tokens=24):
    """The folder as transformers saves it; logits of some ids, with their error against the model in float64; greedy
    texts."""
    folder = pathlib.Path(folder)
    save(folder, model, seed)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(1, model.config.vocab_size, (2, tokens))
    prompts = [torch.randint(1, model.config.vocab_size, (n,)).tolist() for n in (9, 3, 14)]
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits
        texts = greedy(model, prompts, 8)
        truth = model.double()(ids, use_cache=False).logits
    error = (logits.double() - truth).abs().max().item()
    record = {"ids": ids.tolist(), "logits": values(logits), "torch_error_vs_float64": error, "prompts": prompts,
              "greedy": texts}
    (folder / "logits.json").write_text(json.dumps(record) + "\n")
