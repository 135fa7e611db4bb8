# python/tests/test_real_models.py: models that people run, as their GGUF files are: weights, greedy texts and the
# perplexity of the GPL against transformers with the decoded weights, in f32; that a file stays mapped.
import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="not installed: PyTorch (./setup --pytorch)")
transformers = pytest.importorskip("transformers", reason="not installed: transformers (./setup --pytorch)")
pytest.importorskip("gguf", reason="not installed: gguf (./setup --pytorch)")

import real_models
from test_gguf import COMMAND, FULL, attn, safetensors_of

PROMPTS = ["The capital of France is", "Once upon a time", "def add(a, b):", "1 + 1 =", "中文"]
LICENSE = pathlib.Path("/usr/share/common-licenses/GPL-3")
WINDOW = 512


@pytest.fixture(scope="module", params=real_models.NAMED)
def real(request, tmp_path_factory):
    """The file, transformers' model, and its tokenizer from the folder that attn convert writes."""
    made = real_models.theirs(request.param, tmp_path_factory.mktemp("file"), torch, transformers)
    made.folder = tmp_path_factory.mktemp("real") / "folder"
    attn("convert", made.path, made.folder)
    made.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(made.folder / "tokenizer.json"))
    return made


def test_the_decoded_weights_are_those_of_the_package(real):
    ours, theirs = safetensors_of(real.folder / "model.safetensors"), dict(real.model.named_parameters())
    assert ours.keys() == theirs.keys() - {"lm_head.weight"}
    for name, values in ours.items():
        assert np.array_equal(values, theirs[name].detach().numpy()), name
    (real.folder / "model.safetensors").unlink()


def greedy(real, prompts, tokens, tmp_path):
    """attn's tokens after each prompt, all prompts as one batch; and transformers', each prompt alone."""
    (tmp_path / "prompts.txt").write_text("\n".join(prompts), encoding="utf-8")
    said = json.loads(attn("generate", real.path, "--prompts", tmp_path / "prompts.txt", "--tokens", str(tokens),
                           "--temperature", "0", "--json").stdout)
    for prompt, text in zip(prompts, said["texts"], strict=True):
        ids = real.tokenizer(prompt, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            theirs = real.model.generate(ids, max_new_tokens=tokens, do_sample=False)[0, ids.shape[1] :].tolist()
        yield prompt, text["tokens"], theirs[:-1] if theirs[-1] == real.end else theirs


def test_its_texts_are_those_of_transformers(real, tmp_path):
    for prompt, ours, theirs in greedy(real, PROMPTS, 24, tmp_path):
        assert ours == theirs, prompt


def test_a_text_of_200_tokens_is_that_of_transformers(real, tmp_path):
    for prompt, ours, theirs in greedy(real, PROMPTS if FULL else PROMPTS[1:2], 200, tmp_path):
        assert ours == theirs, prompt
        assert len(ours) == 200 or prompt != PROMPTS[1]


def their_perplexity(real, text, skip):
    """exp of the mean of -log p over windows side by side, without the first `skip` tokens of each."""
    begin = real.tokenizer("")["input_ids"]
    ids, sum_of_logs, count = real.tokenizer(text)["input_ids"], 0.0, 0
    for at in range(0, len(ids) // WINDOW * WINDOW, WINDOW):
        window = torch.tensor(begin + ids[at + len(begin) : at + WINDOW])
        with torch.no_grad():
            logits = real.model(window[None], logits_to_keep=WINDOW - skip + 1).logits[0, :-1]
        for row, token in zip(logits, window[skip:].tolist(), strict=True):
            sum_of_logs += torch.log_softmax(row.double(), -1)[token].item()
            count += 1
    return math.exp(-sum_of_logs / count), count


@pytest.mark.parametrize("skip", [WINDOW // 2 + 1, 1] if FULL else [WINDOW // 2 + 1])
def test_the_perplexity_of_the_gpl_is_that_of_transformers(real, skip, tmp_path):
    """Within 0.01 %, in f32, over windows of 512 tokens: of the whole text, or else of its first two windows."""
    if not LICENSE.exists():
        pytest.skip(f"not installed: {LICENSE} (Debian's base-files)")
    text = LICENSE.read_text(encoding="utf-8")
    if not FULL:
        text = text[:6000]
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    said = json.loads(attn("perplexity", real.path, tmp_path / "text.txt", "--window", str(WINDOW), "--skip", str(skip),
                           "--json").stdout)
    theirs, count = their_perplexity(real, text, skip)
    print(f"{real.name}, but the first {skip} of {WINDOW}: attn {said['perplexity']:.6f}, transformers {theirs:.6f}")
    assert said["counted"] == count >= 2 * (WINDOW - skip)
    assert abs(said["perplexity"] / theirs - 1) < 1e-4


def test_a_real_file_stays_mapped(tmp_path):
    """Its text, and the numbers of its last layer, are those of the decoded weights; and it takes the file's memory."""
    path, folder = real_models.smollm(), tmp_path / "decoded"
    attn("convert", path, folder)
    for dtype in ("f32", "bf16"):
        said = [attn("generate", where, "--prompt", PROMPTS[0], "--tokens", "24", "--temperature", "0", "--dtype",
                     dtype, "--log-probabilities", "--json").stdout for where in (path, folder)]
        assert json.loads(said[0])["texts"] == json.loads(said[1])["texts"]
    told = [json.loads(attn("explain", "--model", where, PROMPTS[0], "--layer", "29", "--head", "1", "--json").stdout)
            for where in (path, folder)]
    assert told[0] == told[1]

    # by a small process, because a child's peak begins with the memory of the process that starts it
    measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    peak = int(subprocess.run([sys.executable, "-S", "-c", measure, COMMAND, "generate", path, "--prompt", PROMPTS[0],
                               "--tokens", "8"], check=True, capture_output=True, text=True).stdout)
    assert peak * 1024 < path.stat().st_size + (64 << 20)


def test_info_names_what_a_file_holds():
    said = json.loads(attn("info", real_models.smollm(), "--json").stdout)
    assert (said["architecture"], said["parameters"]) == ("llama", 134515008)
    assert said["tensors"] == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert (said["tokenizer"], said["pre_tokenizer"], said["tokens"]) == ("gpt2", "smollm", 49152)
