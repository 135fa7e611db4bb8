# python/tests/test_encoders.py: encoders of texts beside transformers: tiny checkpoints of every family.
import os
import pathlib
import re
import subprocess

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="not installed: PyTorch (./setup --pytorch)")
transformers = pytest.importorskip("transformers", reason="not installed: transformers (./setup --pytorch)")

import encoders

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "build" / "release" / "tests" / "test_model"


@pytest.mark.parametrize("name", encoders.ENCODERS)
def test_rows_vectors_and_scores(name, tmp_path):
    """tests/model/encoder_test.cc with a new encoder."""
    if not TESTS.exists():
        pytest.skip("not installed: test_model (cmake --build --preset release)")
    torch.set_num_threads(1)
    torch.manual_seed(11)
    encoders.write(tmp_path, encoders.ENCODERS[name](), seed=13)
    found = subprocess.run([TESTS, "--gtest_filter=Encoders.*"], capture_output=True, text=True, timeout=600,
                           env={**os.environ, "ATTN_ENCODERS": str(tmp_path)})
    assert found.returncode == 0, found.stdout[-6000:]
    assert re.search(r"PASSED  \] [1-9]", found.stdout), found.stdout
