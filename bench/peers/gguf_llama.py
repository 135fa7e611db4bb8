# bench/peers/gguf_llama.py: llama.cpp's side of bench/peers/gguf.py, through llama-cpp-python's functions of llama.h,
# with llama.cpp's own defaults; prints one line of JSON.
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "build/peers/llama_cpp/site"))
import llama_cpp as llama
import numpy as np
from llama_cpp import _logger


def memory(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


class Model:
    def __init__(self, path, context, threads, exact_cache=False):
        self.model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        options = llama.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = context, 2048, 512
        options.n_threads = options.n_threads_batch = threads
        if exact_cache:  # in f32, and attention too, instead of f16
            options.type_k = options.type_v = llama.GGML_TYPE_F32
            options.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama.llama_init_from_model(self.model, options)
        self.vocab = llama.llama_model_get_vocab(self.model)
        self.tokens = llama.llama_vocab_n_tokens(self.vocab)

    def clear(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def logits(self, at):
        return np.ctypeslib.as_array(llama.llama_get_logits_ith(self.context, at), (self.tokens,))

    def next(self, ids):
        """The likeliest token after these."""
        tokens = (llama.llama_token * len(ids))(*ids)  # the batch points to it
        if llama.llama_decode(self.context, llama.llama_batch_get_one(tokens, len(ids))) != 0:
            raise SystemExit("llama_decode failed")
        return int(self.logits(-1).argmax())

    def log_probabilities(self, ids, skip):
        """log p of ids[skip], ids[skip + 1] ..., as llama-perplexity computes them."""
        self.clear()
        batch = llama.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for n, token in enumerate(ids):
            batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.logits[n] = token, n, 1, n >= skip - 1
            batch.seq_id[n][0] = 0
        if llama.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        for n in range(skip, len(ids)):
            row = self.logits(n - 1).astype(np.float64)
            greatest = row.max()
            yield row[ids[n]] - greatest - np.log(np.exp(row - greatest).sum())
        llama.llama_batch_free(batch)


def main():
    path, work, ids_file, count, repeats, threads = sys.argv[1:]
    ids = [int(line) for line in pathlib.Path(ids_file).read_text().split()]
    count, repeats = int(count), int(repeats)
    _logger.set_verbose(False)
    llama.llama_backend_init()
    before, begin = memory("VmRSS"), time.perf_counter()
    model = Model(path, count + 64, int(threads))
    model.next(ids[:8])
    first, seconds, found = time.perf_counter() - begin, [], {}
    for _ in range(repeats):
        model.clear()
        if work == "prompt":
            begin = time.perf_counter()
            model.next(ids[:count])
            seconds.append(time.perf_counter() - begin)
        if work == "next":
            token = model.next(ids[:16])
            begin = time.perf_counter()
            for _ in range(count):
                token = model.next([token])
            seconds.append(time.perf_counter() - begin)
    if work == "perplexity":
        begins, sums = llama.llama_vocab_get_add_bos(model.vocab), []
        for at in range(0, len(ids) // count * count, count):
            window = ids[at : at + count]
            if begins:
                window[0] = llama.llama_vocab_bos(model.vocab)
            sums += model.log_probabilities(window, count // 2 + 1)
        found = {"perplexity": float(np.exp(-np.mean(sums)))}
    print(json.dumps({"first": first, "seconds": seconds, "memory": memory("VmHWM") - before, **found}))


if __name__ == "__main__":
    main()
