# python/tests/test_process.py: threads, forks, a second interpreter, and the end of a process.
import subprocess
import sys

import pytest

DAEMONS = """
import threading, time
import numpy as np
import attn
x = np.ones((1, 2, 64, 16), np.float32)
def compute():
    while True:
        seen = np.ones((64, 64), bool)
        attn.attention(x, x, x, mask=attn.Mask.attend(seen) & attn.Mask.causal(),
                       bias=attn.Bias.dense(x[0, :, :, :1].copy()))
for _ in range(4):
    threading.Thread(target=compute, daemon=True).start()
time.sleep(0.3)
"""


def test_a_process_ends_while_daemon_threads_compute():
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", DAEMONS], capture_output=True, text=True, timeout=120)
        assert (ended.returncode, ended.stderr) == (0, "")


FORK = """
import os, signal, threading
import numpy as np
import attn
attn.set_num_threads(1)
row, rows, q = np.ones((8, 1, 64), np.float32), np.ones((8, 4096, 64), np.float32), np.ones((1, 8, 64, 64), np.float32)
cache = attn.KvCache(8, 64, 600)
sequence = cache.create()
cache.append(sequence, rows, rows)
expected = attn.attention_cached(q, cache, [sequence])
def read():
    attn.attention_cached(q, cache, [sequence])
def change():
    cache.append(sequence, rows, rows)
    cache.truncate(sequence, 4096)
def child():
    signal.alarm(20)
    try:
        cache.append(sequence, row, row)
        return 7 if cache.length(sequence) in (4097, 8193) else 1
    except ValueError as error:
        return 8 if "a thread was changing it when this process was forked" in str(error) else 1
for use, allowed in ((read, {7}), (change, {7, 8})):
    stop = threading.Event()
    def loop():
        while not stop.is_set():
            use()
    threads = [threading.Thread(target=loop) for _ in range(2 if use is read else 1)]
    for thread in threads:
        thread.start()
    codes = set()
    for _ in range(10):
        process = os.fork()
        if process == 0:
            os._exit(child())
        codes.add(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    assert codes <= allowed, codes
assert np.array_equal(attn.attention_cached(q, cache, [sequence]), expected)
"""


def test_a_forked_child_uses_a_cache_that_other_threads_use():
    ended = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr


INTERPRETERS = """
import _xxsubinterpreters as interpreters
import numpy as np
import attn
x = np.ones((1, 2, 4, 8), np.float32)
expected = attn.attention(x, x, x, mask="causal").tobytes()
for _ in range(2):
    other = interpreters.create()
    try:
        interpreters.run_string(other, "import attn")
        raise AssertionError("attn was loaded twice")
    except interpreters.RunFailedError as error:
        assert "interpreter" in str(error), error
    interpreters.destroy(other)
    assert attn.attention(x, x, x, mask=attn.Mask.causal()).tobytes() == expected
"""


def test_a_second_interpreter_is_refused_and_harms_nothing():
    pytest.importorskip("_xxsubinterpreters")
    ended = subprocess.run([sys.executable, "-c", INTERPRETERS], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
