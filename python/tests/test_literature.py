# python/tests/test_literature.py: every recipe of docs/literature.md against its plain form in torch, and the page.
import json

import pytest

pytest.importorskip("torch")

import literature  # noqa: E402


@pytest.mark.parametrize("one", literature.all_rows(), ids=lambda one: one.name)
def test_recipes_are_their_plain_forms(one, one_thread):
    literature.check(one)


def named(name):
    return next(one for one in literature.all_rows() if one.name == name)


def test_names_are_there_once():
    names = [one.name for one in literature.all_rows()]
    assert len(names) == len(set(names)) >= 40
    for page in literature.NAMED_IN:
        text = (literature.PAGE.parent.parent / page).read_text(encoding="utf-8")
        assert literature.NUMBER.findall(text) == [str(len(names))], page


def test_the_page_is_what_the_recipes_make(one_thread):
    text = literature.PAGE.read_text(encoding="utf-8")
    assert literature.with_page(text, literature.page()) == text, "tools/literature writes it again"


def test_what_was_measured_is_on_the_page():
    run = literature.PAGE.parent.parent / "bench" / "results" / "amd-epyc-avx512-literature.json"
    rows = json.loads(run.read_text(encoding="utf-8"))[1:] if run.exists() else []
    assert not {row["line"] for row in rows} - {one.name for one in literature.all_rows()}


def test_a_recipe_that_is_wrong_makes_no_page(one_thread, monkeypatch):
    wrong = literature.all_rows()[0]
    monkeypatch.setattr(wrong, "plain", lambda q, k, v: 2 * literature.plainly(q, k, v))
    with pytest.raises(AssertionError, match="Scaled dot product, output"):
        literature.page()


@pytest.mark.parametrize("grid, size", [((24,), (5,)), ((-1, 4), (3, 1)), ((2, 3, 4), (1, 3, 3)),
                                        ((2, 2, 2, 3), (2, 1, 2, 3))])
def test_neighbourhoods_have_any_number_of_dims(grid, size, one_thread):
    literature.check(named("Neighbourhood of a pixel"), grid=grid, size=size)


@pytest.mark.parametrize("one", literature.all_rows(), ids=lambda one: one.name)
def test_recipes_take_other_sizes(one, one_thread):
    """Those of bench/peers/literature.py: one head group of many tokens, and the settings for them."""
    literature.check(one, literature.Sizes(1, 4, 72, 16))
