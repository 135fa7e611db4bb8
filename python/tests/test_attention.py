# python/tests/test_attention.py: the functions against a plain softmax in float64, option by option.
import numpy as np
import pytest
from conftest import assert_close, plain_attention, plain_attention_f32

import attn


def normal(random, *shape):
    return random.standard_normal(shape, dtype=np.float32)


def test_random_calls_of_scaled_dot_product_attention(random):
    """Shapes down to 1, grouped heads, masks of rank 1 to 4, bool and float, causal beside them, scales, Ev != E."""
    for _ in range(300):
        batch, groups, times = (int(random.integers(1, 4)) for _ in range(3))
        rows, keys, dim, value_dim = (int(x) for x in random.integers(1, 20, size=4))
        q = normal(random, batch, groups * times, rows, dim)
        k, v = normal(random, batch, groups, keys, dim), normal(random, batch, groups, keys, value_dim)
        options = {"scale": None if random.random() < 0.5 else float(random.random() * 2),
                   "is_causal": bool(random.random() < 0.4)}
        allowed = np.tri(rows, keys, dtype=bool) if options["is_causal"] else np.ones((rows, keys), bool)
        bias = None
        shape = tuple(n if random.random() < 0.7 else 1
                      for n in (batch, groups * times, rows, keys))[int(random.integers(0, 4)) :]
        kind = random.integers(0, 3)
        if kind == 1:
            options["attn_mask"] = random.random(shape) < 0.7
            allowed = allowed & options["attn_mask"]
        elif kind == 2:
            bias = options["attn_mask"] = np.where(random.random(shape) < 0.8, random.standard_normal(shape),
                                                   -np.inf).astype(np.float32)
        result = attn.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
        plain = {"allowed": allowed, "bias": bias, "scale": options["scale"]}
        assert_close(result, plain_attention(q, k, v, **plain)[0], plain_attention_f32(q, k, v, **plain))


def test_options_of_attention(random):
    q, k, v = normal(random, 2, 4, 9, 8), normal(random, 2, 2, 9, 8), normal(random, 2, 2, 9, 6)
    i, j = np.ogrid[:9, :9]
    window = (j <= i) & (j >= i - 3)
    slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    alibi = -slopes[:, None, None] * (i - j)
    for options, plain in [
        ({"mask": "causal"}, {"allowed": j <= i}),
        ({"mask": attn.Mask.causal() & attn.Mask.window(3, 0)}, {"allowed": window}),
        ({"mask": ~attn.Mask.causal() | attn.Mask.prefix(2)}, {"allowed": (j > i) | (j < 2)}),
        ({"bias": attn.Bias.alibi(slopes)}, {"bias": alibi}),
        ({"bias": attn.Bias.alibi(slopes, symmetric=True)}, {"bias": -np.abs(alibi)}),
        ({"bias": alibi.astype(np.float32)}, {"bias": alibi}),
        ({"bias": attn.Bias.alibi(slopes) + attn.Bias.dense(alibi.astype(np.float32))}, {"bias": 2 * alibi}),
        ({"softcap": 1.5}, {"cap": 1.5}),
        ({"scale": 0.3}, {"scale": 0.3}),
        ({"score": "dot"}, {"scale": 1.0}),
        ({"temperature": 2.0}, {"scale": 1 / np.sqrt(8) / 2}),
        ({"key_lengths": np.array([4, 9])}, {"allowed": (j < np.array([4, 9])[:, None, None])[:, None]}),
    ]:
        result, weights = attn.attention(q, k, v, weights="full", **options)
        truth, shares = plain_attention(q, k, v, **plain)
        assert_close(result, truth, plain_attention_f32(q, k, v, **plain))
        assert np.abs(weights - shares).max() <= 32 * 2.0**-23  # the weights' own usual error is not computed here
        average = attn.attention(q, k, v, weights="head_average", **options)[1]
        assert np.abs(average - weights.mean(axis=1)).max() <= 8 * 2.0**-23
        columns = attn.attention(q, k, v, weights="column_sums", **options)[1]
        assert np.abs(columns - weights.sum(axis=2)).max() <= 64 * 2.0**-23
        rows = np.array([5, 0])
        assert np.array_equal(attn.attention(q, k, v, weights=attn.Weights.rows(rows), **options)[1],
                              weights[:, :, rows])
        largest, keys = attn.attention(q, k, v, weights=attn.Weights.top_k(3), **options)[1]
        assert np.array_equal(largest, -np.sort(-weights, axis=-1)[..., :3])
        assert np.array_equal(np.take_along_axis(weights, np.maximum(keys, 0), axis=-1)[keys >= 0], largest[keys >= 0])


def test_results_are_what_was_asked_for(random):
    q = normal(random, 1, 2, 3, 4)
    assert isinstance(attn.attention(q, q, q), np.ndarray)
    output, logsumexp = attn.attention(q, q, q, return_logsumexp=True)
    assert logsumexp.shape == (1, 2, 3) and logsumexp.dtype == np.float32
    output, weights, logsumexp, plan = attn.attention(q, q, q, weights="full", return_logsumexp=True, return_plan=True)
    assert weights.shape == (1, 2, 3, 3) and plan.kernel == plan.steps[-1][0]
    scores = attn.attention_scores(q, q)
    assert (np.abs(np.exp(scores - logsumexp[..., None]) - weights).max() < 1e-6
            and np.allclose(weights @ q, output, atol=1e-6))


def test_scores_of_every_kind(random):
    q, k = normal(random, 1, 2, 3, 4), normal(random, 1, 2, 5, 6)
    w = normal(random, 4, 6)
    assert np.allclose(attn.attention_scores(q, k, attn.Score.general(w)), q @ w @ np.swapaxes(k, -1, -2), atol=1e-5)
    w_q, w_k, w_last = normal(random, 7, 4), normal(random, 7, 6), normal(random, 7)
    additive = np.tanh((q @ w_q.T)[..., :, None, :] + (k @ w_k.T)[..., None, :, :]) @ w_last
    assert np.allclose(attn.attention_scores(q, k, attn.Score.additive(w_q, w_k, w_last)), additive, atol=1e-5)
    shares = np.exp(additive) / np.exp(additive).sum(-1, keepdims=True)
    assert np.allclose(attn.additive_attention(q, k, k, w_q, w_k, w_last), shares @ k, atol=1e-5)


def test_packed_sequences_have_the_bits_of_each_alone(random):
    lengths = [3, 0, 5, 1]
    ends = np.cumsum([0, *lengths])
    q, k, v = (normal(random, 9, 2, 8) for _ in range(3))
    packed = attn.attention(q, k, v, cu_seqlens_q=ends, mask="causal")
    assert packed.shape == q.shape
    for begin, end in zip(ends[:-1], ends[1:], strict=True):
        one = [x[begin:end].transpose(1, 0, 2)[None] for x in (q, k, v)]
        alone = attn.attention(*one, mask="causal")
        assert np.array_equal(alone[0].transpose(1, 0, 2), packed[begin:end])


@pytest.mark.parametrize("page_rows", [0, 16])
def test_a_cache_gives_the_bits_without_one(random, page_rows):
    k, v, q = normal(random, 1, 2, 40, 8), normal(random, 1, 2, 40, 8), normal(random, 1, 4, 40, 8)
    cache = attn.KvCache(2, 8, 1 if page_rows == 0 else 8, page_rows=page_rows)
    sequence = cache.create()
    whole = attn.attention(q, k, v, mask="causal")
    for at in range(0, 40, 8):
        cache.append(sequence, k[0, :, at : at + 8], v[0, :, at : at + 8])
        part = attn.attention_cached(q[:, :, at : at + 8], cache, [sequence], mask="causal")
        assert np.array_equal(part, whole[:, :, at : at + 8])
    assert cache.length(sequence) == 40 and cache.first(sequence) == 0
    gathered, _ = cache.gather([sequence])
    assert np.array_equal(gathered, k)
    cache.release(sequence)
    assert not cache.alive(sequence)
    with pytest.raises(ValueError, match="sequence"):
        cache.length(sequence)


def test_a_full_cache_says_so(random):
    cache = attn.KvCache(1, 4, pages=1)
    sequence, x = cache.create(), normal(random, 1, 17, 4)
    with pytest.raises(attn.CacheFull):
        cache.append(sequence, x, x)
    assert cache.length(sequence) == 0 and cache.free_pages == 1


def test_an_append_that_raises_leaves_the_kind_of_the_arrays(random):
    torch = pytest.importorskip("torch")
    cache, x = attn.KvCache(1, 4, pages=1), normal(random, 1, 3, 4)
    sequence = cache.create()
    more = torch.zeros(1, 17, 4)
    for wrong, error in ((lambda: cache.append(sequence, more, more), attn.CacheFull),
                         (lambda: cache.append([sequence], more[None], more[None]), attn.CacheFull),
                         (lambda: cache.append(sequence, more[:, :, 1:], more), ValueError),
                         (lambda: cache.append("it", more, more), TypeError)):
        for before in (np.ndarray, torch.Tensor):
            cache.truncate(sequence, 0)
            cache.append(sequence, *[x if before is np.ndarray else torch.from_numpy(x)] * 2)
            if before is torch.Tensor:
                more = more.numpy()
            with pytest.raises(error):
                wrong()
            more = torch.as_tensor(more)
            assert [type(rows) for rows in cache.gather([sequence])] == [before] * 2


def test_dropout_repeats_with_its_seed(random):
    q = normal(random, 1, 2, 32, 8)
    once = attn.attention(q, q, q, dropout_p=0.5, dropout_seed=2**64 - 1)
    assert np.array_equal(once, attn.attention(q, q, q, dropout_p=0.5, dropout_seed=2**64 - 1))
    assert not np.array_equal(once, attn.attention(q, q, q, dropout_p=0.5, dropout_seed=1))
    attn.manual_seed(5)
    drawn = attn.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert not np.array_equal(drawn, attn.scaled_dot_product_attention(q, q, q, dropout_p=0.5))
    attn.manual_seed(5)
    assert np.array_equal(drawn, attn.scaled_dot_product_attention(q, q, q, dropout_p=0.5))


def test_the_number_of_threads_changes_nothing(random):
    q = normal(random, 3, 5, 130, 32)
    before, results = attn.num_threads(), []
    for threads in (1, 2, 3, 8):
        attn.set_num_threads(threads)
        assert attn.num_threads() == threads
        results.append(attn.attention(q, q, q, mask="causal").tobytes())
    attn.set_num_threads(before)
    assert len(set(results)) == 1


def test_nothing_hidden_leaks(random):
    q, k, v = normal(random, 1, 1, 4, 8), normal(random, 1, 1, 6, 8), normal(random, 1, 1, 6, 8)
    clean = attn.attention(q, k, v, key_lengths=np.array([3]))
    k[:, :, 3:], v[:, :, 3:] = np.nan, np.inf
    assert np.array_equal(attn.attention(q, k, v, key_lengths=np.array([3])), clean)
    nothing = attn.attention(q, k, v, mask="none", return_logsumexp=True)
    assert not nothing[0].any() and np.isneginf(nothing[1]).all()
