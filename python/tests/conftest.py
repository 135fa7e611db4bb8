# python/tests/conftest.py: what the tests share: a plain softmax in float64, a printed seed, PyTorch on one thread.
import os

import numpy as np
import pytest

SEED = int(os.environ.get("ATTN_TEST_SEED", "20240607"))


def pytest_report_header(config):
    return f"attn tests: seed {SEED} (ATTN_TEST_SEED repeats a run)"


@pytest.fixture
def random(request):
    """A generator of its own for each test, from the seed and the test's name."""
    return np.random.default_rng([SEED, *request.node.name.encode()])


@pytest.fixture
def one_thread():
    """PyTorch on one thread: those that wait for one another cost tiny models twenty times what they compute."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def plain_attention(q, k, v, *, allowed=None, bias=None, scale=None, cap=0.0, mod=None):
    """softmax(q k^T * scale + bias) v in float64, heads repeated; q [B, Hq, Tq, D]. Rows that see nothing give 0.
    Also the weights."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    v = np.repeat(v, q.shape[1] // v.shape[1], axis=1)
    scores = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if cap:
        scores = cap * np.tanh(scores / cap)
    if bias is not None:
        scores = scores + np.asarray(bias, dtype=np.float64)
    if mod is not None:
        b, h, i, j = np.ogrid[tuple(slice(n) for n in scores.shape)]
        scores = mod(scores, b, h, i, j)
    if allowed is not None:
        scores = np.where(np.broadcast_to(allowed, scores.shape), scores, -np.inf)
    greatest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(scores - np.where(np.isfinite(greatest), greatest, 0))
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(total > 0, total, 1)
    return weights @ v, weights


def plain_attention_f32(q, k, v, **options):
    """The same as a usual implementation has it: every step rounded to float32. It tells which error is usual."""
    return _f32(q, k, v, **options)


def _f32(q, k, v, *, allowed=None, bias=None, scale=None, cap=0.0):
    q, k, v = (np.asarray(x, dtype=np.float32) for x in (q, k, v))
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    v = np.repeat(v, q.shape[1] // v.shape[1], axis=1)
    scores = q @ np.swapaxes(k, -1, -2) * np.float32(1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if cap:
        scores = np.float32(cap) * np.tanh(scores / np.float32(cap))
    if bias is not None:
        scores = scores + np.asarray(bias, dtype=np.float32)
    if allowed is not None:
        scores = np.where(np.broadcast_to(allowed, scores.shape), scores, np.float32(-np.inf))
    greatest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(scores - np.where(np.isfinite(greatest), greatest, 0), dtype=np.float32)
    total = exponentials.sum(axis=-1, keepdims=True)
    return (exponentials / np.where(total > 0, total, 1)) @ v


def assert_close(ours, truth, usual):
    """The error rule of docs/numerics.md section 7: at most twice the error of a usual
    implementation plus 4 eps of the largest value."""
    ours = np.asarray(ours)
    eps = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[ours.dtype.name]
    ours = ours.astype(np.float64)
    error = np.abs(ours - truth).max(initial=0)
    allowed = (2 * np.abs(np.asarray(usual, dtype=np.float64) - truth).max(initial=0)
               + 4 * eps * np.abs(truth).max(initial=0))
    assert error <= allowed, f"error {error}, allowed {allowed}"
