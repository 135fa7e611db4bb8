#!/usr/bin/env python3
# bench/peers/compare.py: attn and other libraries in turns, with pauses; the ratio of each row, as a table and as JSON.
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import attn_case
import native
import peers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def time_of(call):
    """Seconds of one call: of several in a row, when one is too short for the clock."""
    begin, calls = time.perf_counter(), 0
    while True:
        call()
        calls += 1
        passed = time.perf_counter() - begin
        if passed > 3e-4:
            return passed / calls


def for_a_while(call, seconds=0.01):
    end = time.perf_counter() + seconds
    call()
    while time.perf_counter() < end:
        call()


def compare(case, call, attn, options):
    """In each round: a pause, attn; a pause, the peer. During the pause the threads of the other fall asleep. Then each
    calls until its own threads are awake and on different cores, which takes two ticks with some schedulers."""
    call()
    call()
    attn.microseconds(case.line)
    ours, theirs = [], []
    end = time.perf_counter() + options.seconds
    while len(ours) < options.rounds or (time.perf_counter() < end and len(ours) < 400):
        time.sleep(options.pause)
        for_a_while(lambda: attn.microseconds(case.line))
        ours.append(attn.microseconds(case.line))
        time.sleep(options.pause)
        for_a_while(call)
        theirs.append(time_of(call) * 1e6)
    return {"attn_us": round(statistics.median(ours), 2), "peer_us": round(statistics.median(theirs), 2),
            "ratio": round(statistics.median(t / o for t, o in zip(theirs, ours)), 3), "rounds": len(ours)}


def main():
    parser = argparse.ArgumentParser(description="attn beside the peers that are installed")
    parser.add_argument("--attn", default=str(ROOT / "build/release/attn"), help="the command")
    parser.add_argument("--only", action="append", default=[], help="rows whose line holds this text; again: and this")
    parser.add_argument("--peer", action="append", default=[], choices=[peer.name for peer in peers.ALL],
                        help="this peer alone; again: and this")
    parser.add_argument("--rounds", type=int, default=15, help="at least so many of each row")
    parser.add_argument("--seconds", type=float, default=1.0, help="at least so long a row")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds before each turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--mkl-avx512", action="store_true",
                        help="let PyTorch's MKL use AVX-512 on this processor too, which it does on Intel's alone")
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    if options.mkl_avx512 and "mkl_avx512" not in os.environ.get("LD_PRELOAD", ""):
        os.environ["LD_PRELOAD"] = str(native.build("mkl_avx512"))
        os.execv(sys.executable, [sys.executable, *sys.argv])

    cases = attn_case.table(options.attn, options.only)
    attn = attn_case.Attn(options.attn, {**os.environ, "ATTN_NUM_THREADS": str(options.threads)})
    rows = []
    for kind in peers.ALL:
        if options.peer and kind.name not in options.peer:
            continue
        try:
            peer = kind(options.threads)
        except ImportError as missing:
            print(f"{kind.name}: not here ({missing})", file=sys.stderr)
            continue
        print(f"\n{kind.name} {peer.version}, {options.threads} threads; a ratio above 1: attn is faster")
        print(f"{'row':<66} {'attn us':>11} {'peer us':>11} {'ratio':>7}")
        for case in cases:
            try:
                call = peer.call(case)
                row = compare(case, call, attn, options)
            except peers.Refused as reason:
                print(f"{case.line:<66} {'-':>11} {'-':>11} {'-':>7}  {reason}", flush=True)
                continue
            except Exception as failure:  # a peer's own: the other rows go on
                print(f"{case.line}: {type(failure).__name__}: {str(failure).splitlines()[0]}", file=sys.stderr)
                continue
            finally:
                attn.ask("forget")
            print(f"{case.line:<66} {row['attn_us']:>11.1f} {row['peer_us']:>11.1f} {row['ratio']:>7.2f}", flush=True)
            rows.append({"peer": kind.name, "version": peer.version, "threads": options.threads, "line": case.line,
                         **row})
    attn.close()
    if options.json:
        pathlib.Path(options.json).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
