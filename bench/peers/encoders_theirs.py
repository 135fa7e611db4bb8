# bench/peers/encoders_theirs.py: the other side of bench/peers/encoders.py: PyTorch, sentence-transformers, onnxruntime
# or kjarni computes a batch of ids or the vectors of lines, and prints one line of JSON.
import importlib.metadata
import json
import os
import pathlib
import shutil
import sys
import time

import numpy as np

BATCH = 32  # lines that sentence-transformers and onnxruntime compute together, sorted by length


def torch_batch(folder, dtype, texts, tokens):
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    ids = torch.randint(0, model.config.vocab_size, (int(texts), int(tokens)))
    mask = torch.ones_like(ids)

    def call():
        with torch.inference_mode():
            return model(input_ids=ids, attention_mask=mask).last_hidden_state

    return call


def sentence_transformers_lines(folder, lines):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    return lambda: model.encode(lines, batch_size=BATCH, show_progress_bar=False)


def exported(folder):
    """The model as ONNX with onnxruntime's own fused operators, made once."""
    import native

    path = native.BUILT / "minilm.onnx"
    if path.exists():
        return path
    import torch
    from onnxruntime.transformers.optimizer import optimize_model
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    class Rows(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask, segments):
            return self.model(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state

    ids = torch.randint(0, 100, (2, 7))
    names, axes = ["input_ids", "attention_mask", "token_type_ids"], {0: "texts", 1: "tokens"}
    plain = path.with_suffix(".plain.onnx")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(Rows(), (ids, torch.ones_like(ids), torch.zeros_like(ids)), str(plain), input_names=names,
                      output_names=["rows"], dynamic_axes=dict.fromkeys([*names, "rows"], axes), opset_version=17,
                      dynamo=False)
    config = model.config
    fused = optimize_model(str(plain), "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size)
    print("onnxruntime: fused", fused.get_fused_operator_statistics(), file=sys.stderr)
    fused.save_model_to_file(str(path))
    return path


def onnxruntime_lines(folder, lines):
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    session = onnxruntime.InferenceSession(str(exported(folder)), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def call():
        vectors = np.empty((len(lines), 384), np.float32)
        order = sorted(range(len(lines)), key=lambda n: -len(lines[n]))
        for first in range(0, len(lines), BATCH):
            which = order[first : first + BATCH]
            batch = tokenizer.encode_batch([lines[n].strip() for n in which])
            ids, mask = (np.array([getattr(one, name) for one in batch], np.int64)
                         for name in ("ids", "attention_mask"))
            rows, = session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
            means = (rows * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
            vectors[which] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors

    return call


def kjarni_lines(folder, lines):
    import kjarni
    import native

    # where it looks for a file before it downloads one
    cache = native.BUILT / "kjarni"
    shutil.copytree(folder, cache / "sentence-transformers_all-MiniLM-L6-v2", dirs_exist_ok=True)
    embedder = kjarni.Embedder(model="minilm-l6-v2", cache_dir=str(cache), quiet=True)
    return lambda: np.array(embedder.encode_batch(lines), np.float32)


def main():
    who, folder, work, dtype, *arguments, repeats = sys.argv[1:]
    if who in ("torch", "sentence-transformers"):
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if work == "batch":
        call = torch_batch(folder, {"f32": "float32", "bf16": "bfloat16"}[dtype], *arguments)
    else:
        lines = pathlib.Path(arguments[0]).read_text().splitlines()
        call = {"sentence-transformers": sentence_transformers_lines, "onnxruntime": onnxruntime_lines,
                "kjarni": kjarni_lines}[who](folder, lines)
    result, seconds = call(), []
    for _ in range(int(repeats)):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    if work == "lines":
        np.save(arguments[0] + "." + who + ".npy", result)
    print(json.dumps({"version": importlib.metadata.version(who), "seconds": seconds}))


if __name__ == "__main__":
    main()
