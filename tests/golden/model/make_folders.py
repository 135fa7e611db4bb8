# tests/golden/model/make_folders.py: writes folders.json with transformers 5.24.0 and PyTorch 2.13.0 (CPU): folders as
# people have them, each a tiny checkpoint of this folder with other files, the end tokens, and the logits that
# transformers gives for it, unless they are those of the checkpoint.
import json
import logging
import pathlib
import tempfile

import torch
import transformers
from safetensors import safe_open

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "I8": 1, "BOOL": 1, "F8_E4M3": 1}
torch.set_num_threads(1)
logging.getLogger("transformers").setLevel(logging.ERROR)


def tensors_of(base):
    with safe_open(HERE / base / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def write(path, entries, base):
    """Writes a safetensors file: each entry is a tensor of the base by its name there ("from"), or bytes of 1 ("dtype", "shape")."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for entry in entries:
        if "from" in entry:
            x = base[entry["from"]]
            dtype, shape, content = "F32", list(x.shape), x.numpy().tobytes()
        else:
            dtype, shape = entry["dtype"], entry["shape"]
            content = b"\1" * (SIZES[dtype] * torch.Size(shape).numel())
        header[entry["name"]] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def record(name, base, files=None, index=None, config=None, generation=None):
    """One folder: `files` lists the tensors of each file (default: those of the base), `index` the weight_map, `config` the text."""
    tensors = tensors_of(base)
    if files is None:
        files = {"model.safetensors": [{"name": n, "from": n} for n in tensors]}
    config = (HERE / base / "config.json").read_text() if config is None else config
    ids = torch.tensor(json.loads((HERE / base / "logits.json").read_text())["ids"])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for file, entries in files.items():
            write(folder / file, entries, tensors)
        if index is not None:
            (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
        (folder / "config.json").write_text(config)
        if generation is not None:
            (folder / "generation_config.json").write_text(generation)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        ends = model.generation_config.eos_token_id
        with torch.no_grad():
            logits, truth = model(ids).logits, model.double()(ids).logits
    error = (logits.double() - truth).abs().max().item()
    values = [float(f"{v:.9g}") for v in logits.flatten().tolist()]
    recorded = json.loads((HERE / base / "logits.json").read_text())["logits"]["values"]
    kept = {"files": files} if config == (HERE / base / "config.json").read_text() else {"config": config}
    return {"name": name, "base": base, **kept, **({"index": index} if index else {}),
            **({"generation_config": generation} if generation else {}), "eos_token_id": ends if isinstance(ends, list) else [] if ends is None else [ends],
            **({} if values == recorded else {"logits": values, "torch_error_vs_float64": error})}


def same(names, rename=lambda n: n):
    return [{"name": rename(n), "from": n} for n in names]


def folders():
    gpt2, llama, tied = tensors_of("gpt2"), tensors_of("llama"), tensors_of("qwen2")
    embedding = "model.embed_tokens.weight"
    for dtype in ("U8", "BOOL", "F16", "I64", "F8_E4M3"):
        masks = [{"name": f"transformer.h.{n}.attn.bias", "dtype": dtype, "shape": [1, 1, 16, 16]} for n in range(2)]
        yield record(f"GPT-2 with masks of {dtype}", "gpt2", {"model.safetensors": same(gpt2) + masks})
    bare = same(gpt2, lambda n: n.removeprefix("transformer."))
    masks = [{"name": "h.0.attn.bias", "dtype": "U8", "shape": [1, 1, 16, 16]}, {"name": "h.0.attn.masked_bias", "dtype": "I8", "shape": []}]
    yield record("the bare GPT-2 with its masks first", "gpt2", {"model.safetensors": masks + bare})
    frequencies = [{"name": f"model.layers.{n}.self_attn.rotary_emb.inv_freq", "dtype": dtype, "shape": [2]} for n, dtype in enumerate(("F16", "I8"))]
    frequencies += [{"name": "model.rotary_emb.inv_freq", "dtype": "U8", "shape": [2]},
                    {"name": "model.layers.0.self_attn.rotary_emb.cos_cached", "dtype": "F8_E4M3", "shape": [1, 1, 32, 4]}]
    yield record("Llama with its frequencies", "llama", {"model.safetensors": frequencies + same(llama)})
    yield record("a tied head alone", "qwen2", {"model.safetensors": same(tied, lambda n: "lm_head.weight" if n == embedding else n)})
    yield record("a tied head beside its table", "qwen2", {"model.safetensors": same(tied) + [{"name": "lm_head.weight", "from": embedding}]})
    gpt2_head = same(gpt2, lambda n: "lm_head.weight" if n == "transformer.wte.weight" else n)
    yield record("GPT-2's tied head alone", "gpt2", {"model.safetensors": gpt2_head})
    # of two copies transformers takes that of the last file by name: here it is the one that the index names
    names = list(llama)
    stale = [{"name": n, "dtype": "F32", "shape": list(llama[n].shape)} for n in names]
    newer = names[::3]
    index = {n: "b-overlay.safetensors" if n in newer else "a-base.safetensors" for n in names}
    files = {"a-base.safetensors": [e for e in stale if e["name"] in newer] + same([n for n in names if n not in newer]),
             "b-overlay.safetensors": same(newer), "c-forgotten.safetensors": stale, "d.safetensors": [{"name": "x", "dtype": "U8", "shape": [3]}]}
    yield record("an overlay, its stale copies and a forgotten file", "llama", files, index)
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": "a-base.safetensors"}
    yield record("an index that names a buffer which is gone", "llama", files, index | buffer)
    index = {("lm_head.weight" if n == embedding else n): "model-00001-of-00001.safetensors" for n in tied}
    yield record("a tied head alone, by an index", "qwen2",
                 {"model-00001-of-00001.safetensors": same(tied, lambda n: "lm_head.weight" if n == embedding else n)}, index)


def configs():
    def text(base, **changes):
        config = json.loads((HERE / base / "config.json").read_text()) | changes
        return json.dumps({k: v for k, v in config.items() if v is not ...}, indent=2)

    def case(name, base, generation=None, **changes):
        return record(name, base, config=text(base, **changes), generation=generation)

    inf = float("inf")
    no_rope = {"rope_parameters": ...}
    yield case("swish", "llama", hidden_act="swish")
    for kind in ("gelu_fast", "gelu_accurate", "gelu_python_tanh", "gelu_python"):
        yield case(kind, "gpt2", activation_function=kind)
    yield case("linear scaling by 1", "llama", **no_rope, rope_theta=10000.0, rope_scaling={"type": "linear", "factor": 1.0})
    yield case("linear scaling by 1, twice named", "llama", rope_parameters={"type": "linear", "rope_type": "linear", "factor": 1, "rope_theta": 10000.0})
    yield case("default scaling", "llama", **no_rope, rope_theta=500000.0, rope_scaling={"type": "default"})
    yield case("no scaling", "llama", **no_rope, rope_theta=1000000, rope_scaling=None)
    yield case("Llama 3.1's scaling", "llama3", **no_rope, rope_theta=500000.0, rope_scaling={
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16, "rope_type": "llama3"})
    yield case("numbers of Python", "llama", limit=float("nan"), x_limit=inf, y_limit=-inf, nested={"list": [inf, "NaN", {"a\"b": -inf}]},
               generation='{"eos_token_id": [3, 4], "temperature": Infinity, "x": NaN}')
    yield case("Llama 2's file", "llama", _name_or_path="meta-llama/Llama-2-7b-hf", architectures=["LlamaForCausalLM"], bos_token_id=1, eos_token_id=2,
               pad_token_id=0, initializer_range=0.02, pretraining_tp=1, **no_rope, rope_theta=..., rope_scaling=None, torch_dtype="float16", dtype=...,
               transformers_version="4.31.0.dev0", use_cache=True, head_dim=..., attention_bias=..., mlp_bias=..., attention_dropout=...)
    yield case("Llama 3.2's file", "llama3", **no_rope, eos_token_id=[2, 3, 4], bos_token_id=1, rope_theta=500000.0, torch_dtype="bfloat16", dtype=..., rope_scaling={
        "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 16, "rope_type": "llama3"})
    yield case("SmolLM2's file", "llama", **no_rope, rope_theta=100000, rope_scaling=None, rope_interleaved=False, is_llama_config=True, head_dim=None,
               torch_dtype="bfloat16", dtype=..., **{"transformers.js_config": {"dtype": "q4", "kv_cache_dtype": {"q4f16": "float16"}}})
    yield case("Mistral 0.3's file", "mistral", **no_rope, rope_theta=1000000.0, sliding_window=None, torch_dtype="bfloat16", dtype=..., head_dim=None)
    yield case("Mistral 0.1's file", "mistral", **no_rope, rope_theta=10000.0, sliding_window=4, torch_dtype="bfloat16", dtype=..., head_dim=...)
    yield case("Qwen2.5's file", "qwen2", **no_rope, layer_types=..., rope_theta=1000000.0, rope_scaling=None, sliding_window=131072, use_sliding_window=False,
               max_window_layers=28, use_mrope=False, torch_dtype="bfloat16", dtype=..., head_dim=..., eos_token_id=5,
               generation='{"bos_token_id": 1, "do_sample": true, "eos_token_id": [5, 6], "repetition_penalty": 1.05, "temperature": 0.7, "top_k": 20, "top_p": 0.8}')
    yield case("Qwen2.5's file, windows null", "qwen2", layer_types=..., sliding_window=None, use_sliding_window=False, max_window_layers=1)
    yield case("Qwen3's file", "qwen3", **no_rope, layer_types=..., rope_theta=1000000, rope_scaling=None, sliding_window=None, use_sliding_window=False,
               max_window_layers=2, attention_bias=False, torch_dtype="bfloat16", dtype=...)
    yield case("Qwen3 as transformers 5 writes it", "qwen3", layer_types=["full_attention"] * 2, sliding_window=None, use_sliding_window=False)
    yield case("GPT-2's file", "gpt2", n_ctx=16, activation_function="gelu_new", architectures=["GPT2LMHeadModel"], summary_activation=None,
               summary_first_dropout=0.1, summary_proj_to_labels=True, summary_type="cls_index", summary_use_proj=True, initializer_range=0.02, n_inner=None,
               task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}}, dtype=..., tie_word_embeddings=...)


(HERE / "folders.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in [*folders(), *configs()]) + "\n]\n")
