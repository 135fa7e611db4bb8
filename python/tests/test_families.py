# python/tests/test_families.py: the families of language models against transformers: tiny checkpoints as folders, and
# as GGUF files that PyPI's gguf package writes.
import itertools
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="not installed: PyTorch (./setup --pytorch)")
transformers = pytest.importorskip("transformers", reason="not installed: transformers (./setup --pytorch)")
gguf = pytest.importorskip("gguf", reason="not installed: gguf (./setup --pytorch)")

import families
from conftest import assert_close
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
    """The checkpoint as llama.cpp's converter writes it: its names, its keys, its order of the rows of q and k; with a
    tokenizer of 29 tokens, single letters."""
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
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", "\u2581", *"abcdefghijklmnopqrstuvwxy"])
    writer.add_token_types([2, 3, 3] + [1] * 26)
    writer.add_token_scores([0.0] * 29)
    writer.add_bos_token_id(1)
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


# What GGUF files cannot say of a family, in a word of the refusal.
NOT_HELD = {"llama, dynamic": "dynamic", "llama, YaRN not truncated": "rounded", "gemma3": "divides scores",
            "gemma2, YaRN": "divides scores", "smollm3, windows": "windows", "qwen2, windows in some layers": "windows",
            "qwen3, windows in some layers": "windows"}


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_folder_survives_a_gguf_file(name, tmp_path, one_thread):
    """Every field of config.json that attn reads, and the weights; `first` is how attn writes the folder itself."""
    families.write(tmp_path / "theirs", families.FAMILIES[name]())
    attn("convert", tmp_path / "theirs", tmp_path / "first")
    said = attn("convert", tmp_path / "first", tmp_path / "m.gguf", check=False)
    if name in NOT_HELD:
        assert said.returncode == 1 and NOT_HELD[name] in said.stderr, said.stderr
        return
    assert said.returncode == 0, said.stderr
    attn("convert", tmp_path / "m.gguf", tmp_path / "second")
    first, second = (json.loads((tmp_path / f"{which}/config.json").read_text()) for which in ("first", "second"))
    # the file has it in f32, divided by that which is usual
    factors = [config["rope_parameters"].pop("attention_factor", 1) for config in (first, second)
               if "rope_parameters" in config] or [1, 1]
    assert factors[0] == pytest.approx(factors[1], rel=2.0**-23)
    assert first == second
    before, after = (safetensors_of(tmp_path / f"{which}/model.safetensors") for which in ("first", "second"))
    assert before.keys() == after.keys()
    for tensor, values in before.items():
        added = "gemma" in name and "norm" in tensor  # the file's numbers are rounded sums
        assert np.abs(after[tensor] - values).max() <= (2.0**-22 if added else 0), tensor


def heads_of_transformers(folder, ids, dtype, monkeypatch):
    """[(layer, head)]: the steps of a head as transformers computes them eagerly, from what its attention gets."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    module, heads = sys.modules[type(model).__module__], {}
    eager = module.eager_attention_forward

    def attention(layer, q, k, v, mask, *, scaling, softcap=None, **options):
        output, weights = eager(layer, q, k, v, mask, scaling=scaling, softcap=softcap, **options)
        for head in range(q.shape[1]):
            shared = head // (q.shape[1] // k.shape[1])
            steps = {"q": q[0, head], "k": k[0, shared], "v": v[0, shared], "weights": weights[0, head],
                     "context": output[0, :, head]}
            steps["scores"] = steps["q"] @ steps["k"].T
            steps["scaled"] = steps["scores"] * scaling
            if softcap:
                steps["capped"] = torch.tanh(steps["scaled"] / softcap) * softcap
            heads[layer.layer_idx, head] = {name: values.numpy() for name, values in steps.items()}
        return output, weights

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(module, "eager_attention_forward", attention)
        model(torch.tensor([ids]), use_cache=False)
    return heads


@pytest.mark.parametrize("name", ["gemma3", "gemma2"])
def test_explain_shows_the_heads_of_a_gemma(name, tmp_path, one_thread, monkeypatch):
    """Of a folder and of a GGUF file: each step of each head by the error rule; windows, soft caps and all."""
    families.write(tmp_path / "theirs", FILES[name]())
    write_gguf(tmp_path / "m.gguf", tmp_path / "theirs")
    attn("convert", tmp_path / "m.gguf", tmp_path / "ours")
    shutil.copy(tmp_path / "ours/tokenizer.json", tmp_path / "theirs/tokenizer.json")
    layers = json.loads((tmp_path / "theirs/config.json").read_text())["layer_types"]

    def explained(which, layer, head):
        said = attn("explain", "--model", tmp_path / which, "a bad cab ran", "--layer", str(layer), "--head", str(head),
                    "--json").stdout
        return {step["name"]: step for step in json.loads(said)["steps"]}

    ids = explained("ours", 0, 0)["ids"]["values"]
    assert len(ids) > 8
    for which in ("theirs", "ours"):
        truth, usual = (heads_of_transformers(tmp_path / which, ids, dtype, monkeypatch)
                        for dtype in (torch.float64, torch.float32))
        assert truth.keys() == set(itertools.product(range(len(layers)), range(4)))
        for layer, head in truth:
            steps = explained(which, layer, head)
            assert which != "ours" or steps == explained("m.gguf", layer, head)
            assert steps["ids"]["values"] == ids
            assert steps.keys() == truth[layer, head].keys() | {"tokens", "ids", "mask"}
            for step, values in truth[layer, head].items():
                ours = np.array([[0 if x is None else x for x in row] for row in steps[step]["values"]], np.float32)
                assert_close(ours, values, usual[layer, head][step])
            seen = np.array([[x is not None for x in row] for row in steps["mask"]["values"]])
            window = 4 if layers[layer] == "sliding_attention" else len(ids)
            assert np.array_equal(seen, np.tril(np.ones_like(seen)) & np.triu(np.ones_like(seen), 1 - window))


def test_experts_are_refused_by_name(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "mixtral", "num_local_experts": 8}))
    said = attn("convert", folder, tmp_path / "m.gguf", check=False)
    assert said.returncode != 0
    assert "num_local_experts is 8; attn reads no mixtures of experts" in said.stderr
