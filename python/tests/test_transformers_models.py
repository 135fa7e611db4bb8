# python/tests/test_transformers_models.py: model types of transformers give eager's results or an error.
import copy
import os
import pathlib
import random
import re

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import attn.integrations.transformers as integration
from error_rule import assert_as_close_as
import tiny_models
import transformers_types
from conftest import SEED

integration.register()

# Their eager function returns weights from before the sinks took their part: not those of its output.
SINKS_LEFT_OUT = ("granite_swa", "granitemoe_swa")
FULL = os.environ.get("ATTN_TEST_FULL") == "1"
KNOWN = sorted(transformers_types.SERVED + transformers_types.UNTOUCHED + transformers_types.REFUSED)
# One of each way in which an implementation's name once led astray, and 30 that the seed draws.
ALWAYS = {
    "bloom",
    "falcon",
    "splinter",
    "got_ocr2",
    "axk2",
    "inkling2_text",
    "minimax_m3_vl_text",
    "clip_text_model",
    "encoder-decoder",
    "opt",
}
SLOW = {"kimi_linear"}  # twenty seconds
TYPES = (
    KNOWN
    if FULL
    else sorted(ALWAYS | set(random.Random(SEED).sample([name for name in KNOWN if name not in SLOW], 30)))
)


def results(model, given):
    """The floating outputs, of padding too."""
    with torch.no_grad():
        found = model(**given, return_dict=True)
    return {
        name: x for name, x in found.items() if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dim() > 0
    }


class Wide(torch.overrides.TorchFunctionMode):
    """float64 wherever a model's code says float32: for its softmax, its norms, its positions."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args, kwargs = (
            [torch.float64 if x is torch.float32 else x for x in args],
            {k: torch.float64 if x is torch.float32 else x for k, x in (kwargs or {}).items()},
        )
        return func(*args, **kwargs)


def truth_of(model, given, function=results):
    """What eager gives in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        with Wide():
            return function(
                copy.deepcopy(model).double(),
                {name: x.double() if x.is_floating_point() else x for name, x in given.items()},
            )
    finally:
        torch.set_default_dtype(torch.float32)


def assert_same(what, ours, theirs, truth):
    assert ours.keys() == theirs.keys() == truth.keys(), what
    for name in ours:
        assert_as_close_as(ours[name], theirs[name], truth[name], f"{what}, {name}")


def assert_same_outputs(what, ours, theirs, given, function=None):
    """By the error rule; where few tokens miss it by luck (a token's outputs share an error),
    32 batches as one tensor."""
    function = function or results

    def found(inputs):
        return function(ours, inputs), function(theirs, inputs), truth_of(theirs, inputs, function)

    try:
        assert_same(what, *found(given))
    except AssertionError as error:
        if "from the truth" not in str(error) or "input_ids" not in given:
            raise
        ids, generator = given["input_ids"], torch.Generator().manual_seed(2)
        others = (torch.randint(1, 80, ids.shape, generator=generator) for _ in range(32))
        batches = zip(*(found({**given, "input_ids": torch.where(ids < 81, other, ids)}) for other in others))
        assert_same(
            what, *({name: torch.cat([outputs[name] for outputs in each]) for name in each[0]} for each in batches)
        )


def moves(model, given, change, kept):
    """How far the outputs of `kept` tokens move, relative to the largest, when `change` makes other ids."""
    other = {**given, "input_ids": change(given["input_ids"].clone())}
    with torch.no_grad():
        before, after = (model(**x, return_dict=True)[0] for x in (given, other))
    if before.shape[:2] != given["input_ids"].shape:
        return None
    return ((before - after)[kept].abs().max() / before.abs().max()).item()


def later(ids):
    ids[:, -1] = (ids[:, -1] + 7) % 80 + 1
    return ids


def leaks(ours, theirs, given):
    """Where tokens move with what they may not see, while under eager they do not."""
    if "input_ids" not in given:
        return
    rows = torch.ones_like(given["input_ids"], dtype=torch.bool)
    rows[:, -1] = False
    changes = {"a later token": (later, rows)}
    if "attention_mask" in given and not given["attention_mask"].all():
        real = given["attention_mask"].bool()
        changes = {"padding": (lambda ids: torch.where(real, ids, (ids + 7) % 80 + 1), real)}
    for name, (change, kept) in changes.items():
        found = moves(theirs, given, change, kept)
        if found is not None and found <= 1e-5:
            assert moves(ours, given, change, kept) <= 1e-5, f"{name} is seen"


def generated(model, given):
    with torch.no_grad():
        found = model.generate(
            **given,
            max_new_tokens=3,
            min_new_tokens=3,
            do_sample=False,
            use_cache=True,
            output_logits=True,
            return_dict_in_generate=True,
        )
    return {f"logits {i}": x for i, x in enumerate(found.logits)}


def weights(model, given):
    with torch.no_grad():
        found = model(**given, output_attentions=True, return_dict=True)
    kinds = {name: found[name] for name in found if "attentions" in name and found[name] is not None}
    return {f"{name} {i}": x for name, each in kinds.items() for i, x in enumerate(each) if isinstance(x, torch.Tensor)}


def works(function, model, given):
    """Whether transformers itself can: some models generate only with more than these inputs."""
    try:
        function(model, given)
        return True
    except Exception:
        return False


@pytest.mark.parametrize("model_type", TYPES)
def test_eagers_results_or_an_error_that_names_the_model(model_type, one_thread):
    theirs = tiny_models.build(model_type)
    name = type(theirs).__name__
    given = tiny_models.inputs(theirs)
    plain = results(theirs, given)
    if model_type in transformers_types.REFUSED:
        with pytest.raises(ValueError, match=f'^attn: {name} computes .* load it with attn_implementation="eager"'):
            tiny_models.build(model_type, "attn")
        try:
            theirs.set_attn_implementation("attn")
        except ValueError as error:
            assert name in str(error)
        again = results(theirs, given)
        assert all(torch.equal(again[k], plain[k]) for k in plain)
        return

    ours = tiny_models.build(model_type, "attn")
    for side in ("none", "left", "right") if "attention_mask" in given else ("none",):
        given = tiny_models.inputs(theirs, side)
        assert_same_outputs(f"padded: {side}", ours, theirs, given)
        leaks(ours, theirs, given)
    given = tiny_models.inputs(theirs, "left")
    changed = tiny_models.build(model_type)
    changed.set_attn_implementation("attn")
    assert_same_outputs("set_attn_implementation", changed, theirs, given)
    for function in (generated, weights):
        asked = model_type not in SINKS_LEFT_OUT if function is weights else theirs.can_generate()
        if asked and works(function, theirs, given):
            assert_same_outputs(function.__name__, ours, theirs, given, function)


def test_the_list():
    """What is served stays served."""
    assert len(set(transformers_types.SERVED)) == len(transformers_types.SERVED) >= 85
    assert not set(transformers_types.SERVED) & set(transformers_types.REFUSED)


def test_the_page_names_the_same_types():
    """docs/pytorch.md has the counts, and every refused type by name."""
    page = (pathlib.Path(__file__).parents[2] / "docs/pytorch.md").read_text()
    rows = {words: (int(count), what) for words, count, what in
            re.findall(r"^\| ([a-z ,]+): (\d+) \| (.*) \|$", page, re.MULTILINE)}
    assert rows["computed by attn"][0] == len(transformers_types.SERVED)
    count, names = rows["refused"]
    assert names.split(", ") == sorted(transformers_types.REFUSED) and count == len(transformers_types.REFUSED)
    assert sum(count for count, _ in rows.values()) == len(KNOWN)
