#!/usr/bin/env python3
# bench/peers/literature.py: every recipe of docs/literature.md beside its plain form in torch, forward and backward:
# times in turns, and the peak of memory, each in a process of its own.
import argparse
import datetime
import json
import os
import pathlib
import resource
import subprocess
import sys

import torch

import attn
from memory import peak
from turns import in_turns

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "tests"))
import literature  # noqa: E402

HEADS, DIM = 4, 64
MOST_APART = 0.01  # of the plain result: a choice of keys by rounded scores may differ in a few rows


def operands(one, tokens):
    sizes = literature.Sizes(1, HEADS, tokens, DIM)
    return one.draw(sizes, torch.Generator().manual_seed(1))


def times(one, given):
    """ours, plain in milliseconds, after a look at whether they agree."""
    values = operands(one, given.tokens)
    calls = [lambda f=f: literature.results(f, values, settings=one.large) for f in (one.ours, one.plain)]
    for name, ours, plain in zip(("the output", *one.operands), *(call() for call in calls)):
        if plain is not None and (ours - plain).norm() > MOST_APART * plain.norm():
            sys.exit(f"{one.name}: {name} is {(ours - plain).norm() / plain.norm():.1e} of it from the plain form's")
    return in_turns(calls, given.rounds)


def memory_of(which, one, given):
    """In MB, measured in another process; None if the limit is not enough."""
    command = [sys.executable, __file__, "--long", str(given.long), "--limit", str(given.limit), "--only", one.name,
               "--peak", which, "--threads", str(given.threads)]
    child = subprocess.run(command, capture_output=True, text=True)
    if child.returncode == 0:
        return float(child.stdout)
    if "allocate memory" in child.stderr or "MemoryError" in child.stderr:
        return None
    sys.exit(f"{one.name}: {child.stderr}")


def own_peak(one, given):
    resource.setrlimit(resource.RLIMIT_DATA, (given.limit << 20, given.limit << 20))
    small, large = (operands(one, tokens) for tokens in (256, given.long))
    function = getattr(one, given.peak)
    literature.results(function, small, settings=one.large)  # what a first call loads and starts
    print(f"{peak(lambda: literature.results(function, large, settings=one.large)):.0f}")


def measured(one, given):
    ours, plain = times(one, given)
    row = {"line": one.name, "T": given.tokens, "attn_us": round(ours * 1e3), "peer_us": round(plain * 1e3),
           "ratio": round(plain / ours, 3), "long_T": given.long}
    row["attn_mb"] = memory_of("ours", one, given)
    row["peer_mb"] = memory_of("plain", one, given)
    mb = ["-" if row[key] is None else f"{row[key]:.0f}" for key in ("attn_mb", "peer_mb")]
    print(f"{one.name:40}{ours:10.2f} {plain:10.2f} ms {plain / ours:8.2f}{mb[0]:>9}{mb[1]:>9} MB", file=sys.stderr)
    return row


def environment(given):
    model = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return {"op": "environment", "version": attn.__version__, "cpu": model, "torch": torch.__version__,
            "threads": given.threads, "B": 1, "H": HEADS, "D": DIM, "rounds": given.rounds,
            "limit_mb": given.limit, "load": round(os.getloadavg()[0], 2), "date": datetime.date.today().isoformat()}


def main():
    parser = argparse.ArgumentParser(description="the recipes of docs/literature.md beside their plain forms in torch")
    parser.add_argument("--tokens", type=int, default=1024, help="of the times")
    parser.add_argument("--long", type=int, default=8192, help="tokens of the memory")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--limit", type=int, default=12288, help="MB that a process may have")
    parser.add_argument("--only", action="append", help="the name of a mechanism; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="the rows of these mechanisms in FILE are replaced")
    parser.add_argument("--peak", choices=("ours", "plain"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    attn.set_num_threads(given.threads)
    rows = [one for one in literature.all_rows() if not given.only or one.name in given.only]
    if not rows or given.only and len(rows) < len(set(given.only)):
        sys.exit(f"{', '.join(given.only)}: not all of these are mechanisms of docs/literature.md")
    if given.peak:
        own_peak(rows[0], given)
        return
    file = pathlib.Path(given.json) if given.json else None
    there = json.loads(file.read_text()) if file and file.exists() and given.only else []
    found = {row["line"]: row for row in there if "line" in row}
    for one in rows:
        found[one.name] = measured(one, given)
        if file:  # a run that is cut off keeps what it has
            ordered = [found[one.name] for one in literature.all_rows() if one.name in found]
            lines = ",\n".join(json.dumps(row) for row in (there[:1] or [environment(given)]) + ordered)
            file.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
