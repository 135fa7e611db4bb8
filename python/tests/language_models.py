# python/tests/language_models.py: what the tests of language models share: small models, as objects and as folders.
import json
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import attn

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = ROOT / "build" / "release" / "attn"
STORY = "the cat sat on the mat, and the dog on the log saw the cat; who knows what else. "
BYTES = attn.Tokenizer.train(STORY * 8, "bpe", 280)


def tiny(seed=1, tokenizer=BYTES, dtype="float32", **changes):
    """A random Llama whose texts differ."""
    config = {"model_type": "llama", "vocab_size": 280, "hidden_size": 32, "intermediate_size": 48,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "eos_token_id": None,
              "max_position_embeddings": 64, "tie_word_embeddings": False} | changes
    return attn.LanguageModel(config, seed=seed, tokenizer=tokenizer, dtype=dtype)


def command(*arguments, given=""):
    """What the command prints."""
    if not COMMAND.exists():
        pytest.skip("not installed: the command (cmake --build --preset release)")
    return subprocess.run([COMMAND, *map(str, arguments)], input=given, check=True, capture_output=True, text=True,
                          timeout=600).stdout


def interrupt(program, argument):
    """Runs a program that prints "ready", and after Ctrl-C "interrupted"."""
    process = subprocess.Popen([sys.executable, "-c", program, argument], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "interrupted\n" and process.returncode == 0
    finally:
        process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint with large weights, as the command and Python read it."""
    path = tmp_path_factory.mktemp("model") / "model"
    tiny().save(path)
    rewrite(path / "model.safetensors")
    return path


def rewrite(path):
    """Matrices large enough for texts that differ, without the checksum of attn's own files."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    values = np.frombuffer(data, np.float32, offset=8 + length).copy()
    for name, entry in header.items():
        if "norm" not in name:
            values[entry["data_offsets"][0] // 4 : entry["data_offsets"][1] // 4] *= 15
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + values.tobytes())


@pytest.fixture(scope="module")
def model(folder):
    return attn.LanguageModel.load(folder)


FORMAT = {"user_begin": "Q", "user_end": ". ", "answer_begin": "A", "end_token": "\n", "system": "be brief"}


def chat_of(model, **options):
    return attn.Chat(model, format=FORMAT, **{"tokens": 8, **options})
