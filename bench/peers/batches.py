#!/usr/bin/env python3
# bench/peers/batches.py: whether a text's vector depends on its batch: sentence-transformers, transformers, onnxruntime
# and attn compute MiniLM's vectors of lines alone, 32 at a time, in another order, and beside a long text; prints how
# many vectors change, how many of their numbers, and the largest change.
# Needs sentence-transformers, onnxruntime, the weights of python/tests/weights, and attn's Python package or command.
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import encoders
import native

COUNT = 128
LONG = "a long text that stands beside each of them " * 20


def sentence_transformers(folder):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    return lambda lines, size: model.encode(lines, batch_size=size, show_progress_bar=False)


def transformers(folder):
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def call(lines, size):
        vectors = []
        for first in range(0, len(lines), size):
            batch = tokenizer(lines[first : first + size], padding=True, truncation=True, max_length=256,
                              return_tensors="pt")
            with torch.inference_mode():
                rows = model(**batch).last_hidden_state
            mask = batch["attention_mask"][:, :, None]
            vectors.append(((rows * mask).sum(1) / mask.sum(1)).numpy())
        return np.concatenate(vectors)

    return call


def onnxruntime(folder):
    import encoders_theirs

    def call(lines, size):
        encoders_theirs.BATCH = size
        return encoders_theirs.onnxruntime_lines(folder, lines)()

    return call


def attn(folder):
    command = native.ROOT / "build/release/attn"

    def call(lines, size):
        with tempfile.TemporaryDirectory() as name:
            text, out = pathlib.Path(name) / "lines.txt", pathlib.Path(name) / "vectors.npy"
            text.write_text("\n".join(lines) + "\n")
            # tokens that are computed together: one text, or about as many as the others
            together = str(1 if size == 1 else 16 * size)
            subprocess.run([command, "embed", folder, text, "--out", out, "--batch", together], check=True,
                           stdout=subprocess.DEVNULL)
            return np.load(out)

    return call


def compared(name, vectors, alone):
    differ = vectors.view(np.uint32) != alone.view(np.uint32)
    scale = abs(alone).max()
    return (f"{name:<22} {differ.any(1).sum():>4} of {len(alone)} vectors, {100 * differ.mean():>5.1f} % of their "
            f"numbers, by at most {abs(vectors - alone).max():.1e} (the largest number is {scale:.2g})")


def main():
    parser = argparse.ArgumentParser(description="whether a text's vector depends on the batch it is computed in")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "ATTN_NUM_THREADS"):
        os.environ[variable] = str(options.threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    folder, lines = str(encoders.MODEL), encoders.lines_of_licenses()[:COUNT]
    print(f"{COUNT} lines of licences, MiniLM-L6, f32, {options.threads} threads; beside each line computed alone")
    changed = {}
    for make in (sentence_transformers, transformers, onnxruntime, attn):
        call = make(folder)
        alone = call(lines, 1)
        print(make.__name__.replace("_", "-"))
        backwards = call(lines[::-1], 32)[::-1]
        beside = call([text for line in lines for text in (line, LONG)], 2)[::2]
        for name, vectors in (("32 at a time", call(lines, 32)), ("in reverse order", backwards),
                              ("beside a long text", beside)):
            print("  " + compared(name, np.ascontiguousarray(vectors), np.ascontiguousarray(alone)), flush=True)
            changed[make.__name__] = changed.get(make.__name__, 0) + int((vectors != alone).any())
    return 1 if changed["attn"] else 0


if __name__ == "__main__":
    sys.exit(main())
