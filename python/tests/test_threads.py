# python/tests/test_threads.py: several threads at once, the GIL, use after fork, leaks.
import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import attn


def test_eight_threads_at_once(random):
    q = [random.standard_normal((2, 3, 40 + n, 16), dtype=np.float32) for n in range(8)]
    slope = np.linspace(0.1, 0.5, 3, dtype=np.float32)

    def one(x):
        return attn.attention(x, x, x, mask="causal", bias=attn.Bias.alibi(3),
                              score=lambda s, b, h, i, j: s - slope[h] * (i - j))

    expected = [one(x).tobytes() for x in q]
    wrong = []

    def work(n):
        for _ in range(40):
            if one(q[n]).tobytes() != expected[n]:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_one_cache_in_eight_threads(random):
    cache = attn.KvCache(2, 8, 256)
    x = random.standard_normal((2, 5, 8), dtype=np.float32)
    expected = attn.attention(x[None], x[None], x[None], mask="causal").tobytes()
    wrong = []

    def work():
        for _ in range(50):
            sequence = cache.create()
            cache.append(sequence, x, x)
            if attn.attention_cached(x[None], cache, [sequence], mask="causal").tobytes() != expected:
                wrong.append(sequence)
            cache.release(sequence)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and cache.free_pages == 256


def test_the_gil_is_released():
    code = """
import threading, time, numpy as np, attn
attn.set_num_threads(1)
x = np.zeros((1, 4, 2048, 64), np.float32)
done = []
thread = threading.Thread(target=lambda: (attn.attention(x, x, x), done.append(True)))
thread.start()
steps = 0
while not done:
    steps += 1
thread.join()
assert steps > 1000, steps
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


def test_use_after_fork():
    code = """
import os, numpy as np, attn
x = np.random.default_rng(0).standard_normal((4, 4, 128, 32), dtype=np.float32)
expected = attn.attention(x, x, x, mask="causal").tobytes()
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        os._exit(0 if attn.attention(x, x, x, mask="causal").tobytes() == expected else 1)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
assert attn.attention(x, x, x, mask="causal").tobytes() == expected
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def calls_of_every_kind():
    x = np.ones((1, 2, 24, 16), np.float32)
    allowed, slope = np.tri(24, dtype=bool), np.ones(2, np.float32)
    attn.scaled_dot_product_attention(x, x, x, attn_mask=allowed)
    attn.attention(x, x, x, mask=attn.Mask.attend(allowed) & attn.Mask.causal(), bias=attn.Bias.alibi(slope),
                   weights="full", return_logsumexp=True)
    attn.attention(x, x, x, score=lambda s, b, h, i, j: s - slope[h] * (i - j))
    results, tape = attn._core.attention_recorded(x, x, x, (None,) * len(attn._core.attention_options))
    tape.backward([x, None, None], True)[1].backward([x] * 3)
    cache = attn.KvCache(2, 16, 4)
    sequence = cache.create()
    cache.append(sequence, x[0], x[0])
    attn.attention_cached(x, cache, [sequence], mask="causal")
    for wrong in ({"mask": 3}, {"softcap": "a"}, {"bias": allowed}):
        with pytest.raises((TypeError, ValueError)):
            attn.attention(x, x, x, **wrong)


def test_nothing_leaks_over_10000_calls():
    for _ in range(500):
        calls_of_every_kind()
    gc.collect()
    before = resident()
    for _ in range(1250):  # eight calls each
        calls_of_every_kind()
    gc.collect()
    grown = resident() - before
    assert grown < 2 * 2**20, f"{grown / 2**20:.1f} MiB more than before"


def test_references_are_given_back():
    x, mask, slope = np.ones((1, 2, 8, 4), np.float32), np.tri(8, dtype=bool), np.ones(2, np.float32)

    def counts():
        gc.collect()
        return [sys.getrefcount(each) for each in (x, mask, slope, None if sys.version_info < (3, 12) else x)][:3]

    before = counts()
    for _ in range(10):
        attn.attention(x, x, x, mask=attn.Mask.attend(mask), bias=attn.Bias.alibi(slope),
                       score=lambda s, b, h, i, j: s * slope[h], weights="full")
        with pytest.raises(ValueError, match="temperature"):
            attn.attention(x, x, x, mask=attn.Mask.attend(mask), bias=attn.Bias.alibi(slope), temperature=-1.0)
    assert counts() == before
