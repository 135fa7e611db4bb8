# python/tests/test_transformers_recurrent.py: transformers' layers of the gated delta rule by attn: eager's results,
# padded and cached, generation, gradients.
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import attn.integrations.transformers as integration
from attn.torch import _recurrent
from error_rule import assert_as_close_as
import tiny_models
from test_transformers_models import truth_of

integration.register()
TYPES = ("qwen3_next", "qwen3_5_text")


def pair(model_type):
    """The same model by eager and by attn."""
    models = []
    for implementation in ("eager", "attn"):
        torch.manual_seed(1)
        models.append(tiny_models.build(model_type, implementation).eval())
    models[1].load_state_dict(models[0].state_dict())
    return models


@pytest.fixture
def calls(monkeypatch):
    """How often attn computed the rule and the convolution."""
    counted = {}

    def count(name):
        function = getattr(_recurrent, name)

        def counting(*args):
            counted[name] = counted.get(name, 0) + 1
            return function(*args)

        monkeypatch.setattr(_recurrent, name, counting)

    count("linear_attention")
    count("causal_conv1d")
    return counted


def logits(model, given):
    with torch.no_grad():
        return {"logits": model(**given).logits}


@pytest.mark.parametrize("padded", (False, True))
@pytest.mark.parametrize("model_type", TYPES)
def test_logits_are_eagers(model_type, padded, calls):
    eager, ours = pair(model_type)
    mask = torch.ones(2, 70, dtype=torch.long)
    if padded:
        mask[1, :9] = 0
    given = dict(input_ids=torch.randint(1, 97, (2, 70), generator=torch.Generator().manual_seed(2)),
                 attention_mask=mask)
    theirs = logits(eager, given)
    assert not calls
    mine = logits(ours, given)
    assert calls["linear_attention"] == calls["causal_conv1d"] > 0
    truth = truth_of(eager, given, logits)
    seen = mask.bool()
    assert_as_close_as(mine["logits"][seen], theirs["logits"][seen], truth["logits"][seen])


@pytest.mark.parametrize("model_type", TYPES)
def test_a_cache_goes_on_as_one_call(model_type, calls):
    _, ours = pair(model_type)
    ids = torch.randint(1, 97, (1, 20), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        whole = ours(ids, use_cache=False).logits
        first = ours(ids[:, :7], use_cache=True)
        cache, rows = first.past_key_values, [first.logits]
        for part in (ids[:, 7:8], ids[:, 8:9], ids[:, 9:15], ids[:, 15:]):
            rows.append(ours(part, past_key_values=cache, use_cache=True).logits)
    together = torch.cat(rows, 1)
    assert (together - whole).abs().max() <= 64 * torch.finfo(torch.float32).eps * whole.abs().max()


@pytest.mark.parametrize("model_type", TYPES)
def test_generation_is_eagers(model_type, calls):
    eager, ours = pair(model_type)
    ids = torch.randint(1, 97, (2, 11), generator=torch.Generator().manual_seed(2))
    settings = dict(max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0)
    mask = torch.ones_like(ids)
    expected = eager.generate(ids, attention_mask=mask, **settings)
    assert not calls
    assert torch.equal(ours.generate(ids, attention_mask=mask, **settings), expected)
    assert calls["linear_attention"] >= 12


def gradients(model, given):
    model.zero_grad()
    model(**given, labels=given["input_ids"]).loss.backward()
    return {name: x.grad for name, x in model.named_parameters() if x.grad is not None}


def test_gradients_are_eagers():
    eager, ours = pair("qwen3_next")
    given = dict(input_ids=torch.randint(1, 97, (2, 70), generator=torch.Generator().manual_seed(2)))
    truth = truth_of(eager, given, gradients)
    theirs, mine = gradients(eager, given), gradients(ours, given)
    assert theirs.keys() == mine.keys() == truth.keys()
    for name, true in truth.items():
        assert_as_close_as(mine[name], theirs[name], true, name)


def test_a_model_may_change_to_attn(calls):
    eager, _ = pair("qwen3_next")
    eager.set_attn_implementation("attn")
    with torch.no_grad():
        eager(torch.ones(1, 5, dtype=torch.long))
    assert calls["linear_attention"] > 0
