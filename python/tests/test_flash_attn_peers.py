# python/tests/test_flash_attn_peers.py: the comparison with other modules that have flash-attn's functions
# (bench/peers/flash_attn_cpu.py): what is missing is one line, and an argument that is ignored is found.
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "peers" / "flash_attn_cpu.py"

PEER = """
from attn.integrations.flash_attn import flash_attn_varlen_func as whole

def flash_attn_varlen_func(q, k, v, a, b, c, d, softcap=0.0, alibi_slopes=None, dropout_p=0.0, seqused_k=None,
                           return_attn_probs=False, **rest):
    if seqused_k is not None:
        raise ValueError("seqused_k is not there")
    return whole(q, k, v, a, b, c, d, **rest)
"""


def run(*arguments, folder=None):
    path = os.pathsep.join(x for x in (str(folder) if folder else "", os.environ.get("PYTHONPATH", "")) if x)
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"})


def test_a_missing_package_is_one_line():
    for arguments in ((), ("--module", "no_such_flash_attn")):
        done = run(*arguments)
        assert done.returncode == 1 and not done.stdout
        assert done.stderr.startswith("flash_attn_cpu: ") and done.stderr.count("\n") == 1


def test_ignored_arguments_are_found(tmp_path):
    (tmp_path / "some_flash.py").write_text(PEER)
    done = run("--module", "some_flash", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.stdout.splitlines()[1:]}
    assert all(mine == "honoured" for mine, _ in rows.values())
    assert {name: other for name, (_, other) in rows.items()} == {
        "causal": "honoured", "window_size": "honoured", "softmax_scale": "honoured", "softcap": "ignored",
        "alibi_slopes": "ignored", "dropout_p": "ignored", "seqused_k": "refused: seqused_k is not there",
        "return_attn_probs": "ignored: no softmax_lse"}
