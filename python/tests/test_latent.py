# python/tests/test_latent.py: latent attention: against plain operations in float64, torch's gradients, a cache to the
# bit, mistakes.
import numpy as np
import pytest

import attn

torch = pytest.importorskip("torch")

from error_rule import assert_as_close_as  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

FORMS = ("expanded", "absorbed")
NAMES = ("q_nope", "q_rope", "latent", "k_rope", "w_uk", "w_uv")


def operands(batch=2, heads=3, rows=40, keys=70, nope=16, rope=8, latent=24, value=12, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    sizes = [(batch, heads, rows, nope), (batch, heads, rows, rope), (batch, keys, latent), (batch, keys, rope),
             (heads, nope, latent), (heads, value, latent)]
    made = [torch.randn(size, generator=generator) for size in sizes]
    return [*(x.to(dtype) for x in made[:4]), *((x / latent**0.5).to(dtype) for x in made[4:])]


def formula(q_nope, q_rope, latent, k_rope, w_uk, w_uv, form="expanded", scale=None):
    """Both orders of the products in torch's operations; the last row is at the last key."""
    rows, keys = q_nope.shape[2], latent.shape[1]
    scale = (q_nope.shape[-1] + q_rope.shape[-1]) ** -0.5 if scale is None else scale
    mask = torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)
    if form == "expanded":
        k = torch.cat((torch.einsum("btc,hdc->bhtd", latent, w_uk),
                       k_rope[:, None].expand(-1, q_nope.shape[1], -1, -1)), -1)
        q, v = torch.cat((q_nope, q_rope), -1), torch.einsum("btc,hdc->bhtd", latent, w_uv)
    else:
        q = torch.cat((torch.einsum("bhtd,hdc->bhtc", q_nope, w_uk), q_rope), -1)
        k, v = torch.cat((latent, k_rope), -1)[:, None], latent[:, None]
    weights = (q @ k.transpose(-1, -2) * scale).masked_fill(~mask, -torch.inf).softmax(-1)
    output = weights @ v
    return output if form == "expanded" else torch.einsum("bhtc,hdc->bhtd", output, w_uv)


MASK = "causal(bottom_right)"


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("form", FORMS)
def test_is_its_formula(form, dtype):
    given = operands(dtype=dtype)
    truth = formula(*(x.double() for x in given))
    ours = attn.latent_attention(*given, form=form, mask=MASK)
    if dtype is torch.float64:
        assert torch.allclose(ours, truth, rtol=0, atol=64 * torch.finfo(dtype).eps * truth.abs().max().item())
    else:
        assert_as_close_as(ours, formula(*given, form=form), truth)
    if dtype is torch.float32:
        arrays = attn.latent_attention(*(x.numpy() for x in given), form=form, mask=MASK)
        assert isinstance(arrays, np.ndarray) and np.array_equal(arrays, ours.numpy())


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_torchs(form):
    def gradients(function, given, **options):
        inputs = [x.detach().clone().requires_grad_() for x in given]
        output = function(*inputs, **options)
        weights = torch.linspace(-1, 1, output.numel()).reshape(output.shape).to(output.dtype)
        return torch.autograd.grad((output * weights).sum(), inputs)

    given = operands()
    truth = gradients(formula, [x.double() for x in given])
    theirs, ours = gradients(formula, given, form=form), gradients(attn.latent_attention, given, form=form, mask=MASK)
    for name, mine, other, true in zip(NAMES, ours, theirs, truth):
        assert_as_close_as(mine, other, true, name)


@pytest.mark.parametrize("form", FORMS)
def test_second_derivatives(form):
    given = [x.requires_grad_() for x in operands(1, 2, 3, 4, 3, 2, 4, 2, torch.float64)]
    call = lambda *x: attn.latent_attention(*x, form=form, mask=MASK)  # noqa: E731
    assert torch.autograd.gradcheck(call, given)
    assert torch.autograd.gradgradcheck(call, given)


def test_options_and_their_gradients():
    given, sinks = operands(dtype=torch.float64), torch.randn(3, dtype=torch.float64).requires_grad_()
    results = {}
    for form in FORMS:
        output, weights, logsumexp = attn.latent_attention(*given, form=form, mask=MASK, sinks=sinks, weights="full",
                                                           scale=0.2, return_logsumexp=True)
        (grad,) = torch.autograd.grad(output.square().sum() + logsumexp.sum(), sinks)
        results[form] = (output, weights, logsumexp, grad)
        assert weights.shape == (2, 3, 40, 70)
    for one, other in zip(*results.values()):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_what_was_changed_in_place_has_no_gradient():
    given = [x.requires_grad_() for x in operands()]
    base = given[2] * 1
    output = attn.latent_attention(*given[:2], base, *given[3:])
    base.mul_(2)
    with pytest.raises(RuntimeError, match="in place|modified by an inplace operation"):
        output.sum().backward()


@pytest.mark.parametrize("wrap", (torch.from_numpy, np.asarray))
@pytest.mark.parametrize("option", ("key_lengths", "mask", "bias", "weight_mod"))
def test_options_that_were_changed_in_place_are_named(option, wrap):
    given = [x.requires_grad_() for x in operands()]
    shape = {"key_lengths": (2,), "mask": (40, 70), "bias": (40, 70), "weight_mod": (70,)}[option]
    array = wrap(np.ones(shape, {"key_lengths": np.int64, "mask": bool}.get(option, np.float32)))
    options = {"key_lengths": lambda x: x, "mask": attn.Mask.attend, "bias": attn.Bias.dense,
               "weight_mod": lambda x: lambda w, b, h, i, j: w * attn.ScoreTable(x)[j]}
    output = attn.latent_attention(*given, **{option: options[option](array)})
    array[0] = 0
    with pytest.raises(RuntimeError, match=f"^latent_attention: .*{option}.* was changed in place after the call"):
        output.sum().backward()


def made_cache(given, page_rows=16, dtype="float32"):
    latent, rope = given[2].shape[-1], given[3].shape[-1]
    return attn.KvCache(1, latent + rope, 40, value_dim=latent, page_rows=page_rows, dtype=dtype, values_in_keys=True)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float16"))
@pytest.mark.parametrize("form", FORMS)
def test_a_cache_has_the_bits_of_one_call(form, dtype):
    given = operands(rows=70, dtype=getattr(torch, dtype))
    whole = attn.latent_attention(*given, form=form, mask="causal")
    cache = made_cache(given, dtype=dtype)
    sequences = [cache.create(), cache.create()]
    first = 0
    for rows in (33, 1, 1, 15, 1, 19):
        part = slice(first, first + rows)
        attn.append_latent(cache, sequences, given[2][:, part], given[3][:, part])
        step = attn.latent_attention_cached(given[0][:, :, part], given[1][:, :, part], *given[4:], cache, sequences,
                                            form=form, mask="causal")
        assert torch.equal(step, whole[:, :, part])
        first += rows
    keys, values = cache.gather(sequences)
    assert torch.equal(values[:, 0], given[2]) and torch.equal(keys[:, 0, :, 24:], given[3])
    assert "values_in_keys=True" in repr(cache)


def test_a_cache_has_no_gradient():
    given = operands()
    cache = made_cache(given)
    sequences = [cache.create(), cache.create()]
    attn.append_latent(cache, sequences, given[2], given[3])
    plain = attn.KvCache(3, 16, 40)
    others = [plain.create(), plain.create()]
    plain.append(others, given[0], given[0])
    q_nope, q_rope, latent, k_rope, w_uk, w_uv = given
    latent, k_rope = latent[:, :1], k_rope[:, :1]
    sinks = torch.zeros(3)
    calls = {
        "latent_attention_cached: w_uv": (w_uv, lambda x: attn.latent_attention_cached(q_nope, q_rope, w_uk, x, cache,
                                                                                       sequences)),
        "latent_attention_cached: q_rope": (q_rope, lambda x: attn.latent_attention_cached(q_nope, x, w_uk, w_uv, cache,
                                                                                           sequences)),
        "latent_attention_cached: sinks": (sinks, lambda x: attn.latent_attention_cached(*given[:2], w_uk, w_uv, cache,
                                                                                         sequences, sinks=x)),
        "append_latent: k_rope": (k_rope, lambda x: attn.append_latent(cache, sequences, latent, x)),
        "append_latent: latent": (latent, lambda x: attn.append_latent(cache, sequences, x, k_rope)),
        "attention_cached: q": (q_nope, lambda x: attn.attention_cached(x, plain, others)),
        "attention_cached: the array of bias": (torch.ones(3), lambda x: attn.attention_cached(
            q_nope, plain, others, bias=attn.Bias.alibi(x))),
    }
    for text, (x, call) in calls.items():
        learned, length = x.clone().requires_grad_(), cache.length(sequences[0])
        with pytest.raises(TypeError, match=f"^{text} wants a gradient, which a cache does not keep; give x.detach"):
            call(learned)
        with forward_ad.dual_level(), pytest.raises(TypeError, match=f"^{text} has a tangent or belongs to torch.func"):
            call(forward_ad.make_dual(x, x))
        for run in (torch.func.grad(call), torch.func.vmap(call)):
            if "array of bias" not in text:  # a Bias itself takes no tensor of torch.func
                with pytest.raises(TypeError, match=f"^{text} (wants a grad|has a tangent or belongs to torch.func)"):
                    run(x)
        assert cache.length(sequences[0]) == length
        call(learned.detach())
        with torch.no_grad():
            call(learned)


def test_the_seed_of_dropout_is_of_torchs_generator():
    given = operands()
    latent, plain = made_cache(given), attn.KvCache(3, 16, 40)
    sequences, others = [latent.create(), latent.create()], [plain.create(), plain.create()]
    attn.append_latent(latent, sequences, given[2], given[3])
    plain.append(others, given[0], given[0])
    q = given[0]
    for call in (lambda p: attn.latent_attention_cached(*given[:2], *given[4:], latent, sequences, dropout_p=p),
                 lambda p: attn.attention_cached(q, plain, others, dropout_p=p),
                 lambda p: attn.attention_jvp(q, q, q, q, dropout_p=p)[1]):
        torch.manual_seed(1)
        first = call(0.5)
        other = call(0.5)
        torch.manual_seed(1)
        assert torch.equal(call(0.5), first) and not torch.equal(other, first)
        before = torch.get_rng_state()
        call(0.0)
        assert torch.equal(torch.get_rng_state(), before)


def test_mistakes_are_one_line_each():
    given = operands()
    cache = made_cache(given)
    sequence = cache.create()

    def refused(error, call, text):
        with pytest.raises(error) as caught:
            call()
        assert str(caught.value) == text

    refused(ValueError, lambda: attn.latent_attention(*given[:5], given[5][:, :, :5]),
            "latent_attention: w_uv has shape [3, 12, 5]; it must be [H, Dv, C], here [3, ?, 24]")
    refused(TypeError, lambda: attn.latent_attention(*given[:5], given[5].double()),
            "latent_attention: w_uv is f64; it must be f32 as q_nope")
    refused(ValueError, lambda: attn.latent_attention(*given, form="absorb"),
            'latent_attention: form is "absorb"; it must be one of "expanded", "absorbed"')
    refused(ValueError, lambda: attn.latent_attention(*given, score="dot"),
            "latent_attention: a score is given; latent attention has the scaled dot product, with a scale")
    refused(ValueError, lambda: attn.latent_attention(*given, out=torch.zeros(2, 3, 40, 12)),
            "latent_attention: out is given; the output of latent attention is always new")
    refused(TypeError, lambda: attn.latent_attention(*given[:2], None, *given[3:]),
            "latent_attention: latent is None; a torch tensor is needed, as the others are")
    refused(TypeError, lambda: attn.latent_attention_cached(*given[:2], *given[4:], None, [sequence]),
            "latent_attention_cached: cache is a NoneType; an attn.KvCache is needed")
    refused(ValueError, lambda: cache.append(sequence, torch.zeros(1, 2, 32), torch.zeros(1, 2, 24)),
            "append: v is given; with values_in_keys a value is a part of its key: give k alone")
    refused(ValueError, lambda: attn.KvCache(1, 32, 4, storage="int8", values_in_keys=True),
            "KvCache: storage is int8 with values_in_keys; such rows are stored in their dtype")
    for function, call in (("latent_attention", lambda **x: attn.latent_attention(*given, **x)),
                           ("latent_attention_cached", lambda **x: attn.latent_attention_cached(
                               *given[:2], *given[4:], cache, [sequence], **x))):
        for name, meant in (("is_causal", 'mask="causal"'), ("masks", "mask")):
            refused(TypeError, lambda: call(**{name: True}),  # noqa: B023
                    f"{function}: there is no option {name}; write {meant}")
        with pytest.raises(TypeError) as caught:
            call(zzz=1)
        shown = str(caught.value).partition("; there are ")[2].split(", ")
        assert "mask" in shown and not {"score", "out"} & {*shown}
