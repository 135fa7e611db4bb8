#!/usr/bin/env python3
# bench/peers/gguf_encoders.py: llama.cpp reads the encoders that attn convert writes: MiniLM-L6 in every type. Of lines
# of the GPL the ids must be attn's, and the vectors near attn's: llama.cpp computes GELU in its tanh form from a table
# in f16, and rounds activations as weights are rounded.
# Needs bench/peers/llama_cpp, the weights of python/tests/weights, and the command.
import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import encoders
import native

TYPES = {"F32": 3e-3, "F16": 3e-3, "BF16": 1e-2, "Q8_0": 5e-2, "Q4_0": 1e-1}  # the largest distance of unit vectors
COMMAND = native.ROOT / "build/release/attn"


def worker(path, text):
    """llama.cpp's side, in a process of its own: it ends the process for what it does not read."""
    import gguf_llama  # first: it says where llama_cpp is
    import llama_cpp as llama
    from llama_cpp import _logger

    _logger.set_verbose(False)
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    vocab = llama.llama_model_get_vocab(model)
    options = llama.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = 512
    options.embeddings, options.n_threads = True, 2
    context = llama.llama_init_from_model(model, options)
    result = []
    for line in pathlib.Path(text).read_text().splitlines():
        encoded = line.encode()
        room = (llama.llama_token * 512)()
        count = llama.llama_tokenize(vocab, encoded, len(encoded), room, 512, True, True)
        tokens = (llama.llama_token * count)(*room[:count])
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        if llama.llama_decode(context, llama.llama_batch_get_one(tokens, count)) != 0:
            raise SystemExit("llama_decode failed")
        found = llama.llama_get_embeddings_seq(context, 0)
        vector = np.ctypeslib.as_array(ctypes.cast(found, ctypes.POINTER(ctypes.c_float)),
                                       (llama.llama_model_n_embd(model),))
        result.append({"ids": list(tokens), "vector": [float(x) for x in vector / np.linalg.norm(vector)]})
    print(json.dumps(result))


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit((done.stderr.strip() or "failed").splitlines()[-1])
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description="llama.cpp reads the encoders that attn convert writes")
    parser.add_argument("--lines", type=int, default=64)
    options = parser.parse_args()
    from tokenizers import Tokenizer

    tokenizer, failed = Tokenizer.from_file(str(encoders.MODEL / "tokenizer.json")), 0
    tokenizer.no_padding()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines = [line.strip() for line in encoders.lines_of_licenses()[: options.lines]]
        text = folder / "lines.txt"
        text.write_text("\n".join(lines) + "\n")
        ids = [one.ids for one in tokenizer.encode_batch(lines)]
        for kind, bound in TYPES.items():
            file, out = folder / f"{kind}.gguf", folder / f"{kind}.npy"
            run(COMMAND, "convert", encoders.MODEL, file, "--type", kind)
            run(COMMAND, "embed", file, text, "--out", out)
            theirs = json.loads(run(sys.executable, __file__, "--worker", file, text))
            same = sum(one["ids"] == own for one, own in zip(theirs, ids, strict=True))
            apart = np.linalg.norm(np.load(out) - np.array([one["vector"] for one in theirs]), axis=1)
            good = same == len(lines) and apart.max() <= bound
            failed += not good
            print(f"{kind:<5} {'' if good else 'FAILED '}{same} of {len(lines)} lines have the same ids; vectors are "
                  f"{apart.mean():.2g} apart on average, at most {apart.max():.2g}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        sys.exit(main())
