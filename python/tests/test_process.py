# python/tests/test_process.py: threads, and the end of a process.
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
        attn.attention(x, x, x, mask=attn.Mask.attend(seen) & attn.Mask.causal(), bias=attn.Bias.dense(x[0, :, :, :1].copy()))
for _ in range(4):
    threading.Thread(target=compute, daemon=True).start()
time.sleep(0.3)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="threads end otherwise there")
def test_a_process_ends_while_daemon_threads_compute():
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", DAEMONS], capture_output=True, text=True, timeout=120)
        assert (ended.returncode, ended.stderr) == (0, "")
