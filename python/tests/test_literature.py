# python/tests/test_literature.py: every recipe of docs/literature.md beside its plain form in torch, and the page.
import pytest

pytest.importorskip("torch")

import literature  # noqa: E402


@pytest.mark.parametrize("one", literature.all_rows(), ids=lambda one: one.name)
def test_recipes_are_their_plain_forms(one, one_thread):
    literature.check(one)


def test_names_are_there_once():
    names = [one.name for one in literature.all_rows()]
    assert len(names) == len(set(names))
    for page in ("README.md", "README.zh.md", "docs/README.md", "CHANGELOG.md"):
        text = (literature.PAGE.parent.parent / page).read_text(encoding="utf-8")
        assert f"{len(names)} mechanisms" in text or f"{len(names)} 种机制" in text, page


def test_the_page_is_what_the_recipes_make(one_thread):
    text = literature.PAGE.read_text(encoding="utf-8")
    assert literature.with_page(text, literature.page()) == text, "tools/literature writes it again"


def test_a_recipe_that_is_wrong_makes_no_page(one_thread, monkeypatch):
    wrong = literature.all_rows()[0]
    monkeypatch.setattr(wrong, "plain", lambda q, k, v: 2 * literature.plainly(q, k, v))
    with pytest.raises(AssertionError, match="Scaled dot product, output"):
        literature.page()
