# python/tests/test_explain_page.py: the page of an explanation, written, opened and shown in a notebook.
import concurrent.futures
import html
import json
import os
import sys
import threading
import types

import numpy as np
import pytest

import attn


def start_of(page):
    """What a page begins with."""
    begin = page.index('id="attn-start">') + len('id="attn-start">')
    return json.loads(page[begin:page.index("</script>", begin)])


def test_the_page_begins_with_text_and_options():
    explanation = attn.explain("</script>我叫张三", mask="causal", heads=2)
    page = explanation.html()
    assert page.startswith("<!doctype html>") and page.count('id="attn-start"') == 1
    start = start_of(page)
    assert start == {"text": "</script>我叫张三", "to": None, "options": explanation.options}
    assert start["options"]["mask"] == "causal" and start["options"]["heads"] == 2
    batch = start_of(attn.explain(["a b", "c"], to="<!-- d", tokens="words", cut_words=lambda text: list(text)).html())
    assert batch["text"] == ["a b", "c"] and batch["to"] == "<!-- d"
    assert batch["cut"] == {"a b": ["a", " ", "b"], "c": ["c"], "<!-- d": list("<!-- d")}


def test_the_page_of_own_matrices():
    with pytest.raises(ValueError, match="Explanation.html: the page draws its own matrices"):
        attn.explain("a b", embedding=np.eye(3, dtype=np.float32)).html()


LIFE = np.arange(3)


@pytest.mark.parametrize("options, text", [
    ({"mask": attn.Mask.attend(np.tril(np.ones((3, 3), bool)))}, r'"attend\(bool \[3, 3\]\)"; one of causal, '),
    ({"mask": attn.Mask.block(np.triu(np.ones((3, 3), bool), 1))}, r'"block\(bool \[3, 3\]\)"'),
    ({"mask": attn.Mask.causal() & ~attn.Mask.documents(LIFE)}, r'"causal & ~documents\(i64 \[3\]\)"'),
    ({"score_mod": lambda s, b, h, i, j: s + LIFE[j]}, "score_mod as text, without the tensors that yours looks up"),
    ({"score_mod": attn.ScoreExpression("s + t[j]", {"t": LIFE.astype(np.float32)})}, "score_mod as text"),
])
def test_the_page_of_own_tensors(options, text, monkeypatch):
    monkeypatch.setattr("webbrowser.open", None)
    explanation = attn.explain("Life is short", **options)
    for made in (explanation.html, explanation.show):
        with pytest.raises(ValueError, match=f"^Explanation.html: the page takes .*{text}"):
            made()


def test_the_page_of_a_mask_and_a_score_function_as_text():
    explanation = attn.explain("Life is short", mask=attn.Mask.causal() & attn.Mask.window(2, 0),
                               weights=attn.Weights.rows([0, 1]), score_mod=lambda s, b, h, i, j: s - 0.5 * (i - j))
    assert start_of(explanation.html())["options"] == explanation.options


def test_show_writes_a_file_and_opens_it(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    explanation = attn.explain("Life is short")
    path = explanation.show()
    try:
        assert opened == ["file://" + path] and path.endswith(".html")
        assert os.name == "nt" or os.stat(path).st_mode & 0o777 == 0o600
        with open(path, encoding="utf-8") as file:
            assert file.read() == explanation.html()
    finally:
        os.remove(path)
    assert explanation.show(tmp_path / "life.html") == str(tmp_path / "life.html")
    (tmp_path / "life.html").write_text("the earlier one")
    explanation.show(os.fsencode(tmp_path / "life.html"))
    assert (tmp_path / "life.html").read_text(encoding="utf-8") == explanation.html()
    with pytest.raises(FileNotFoundError, match="Explanation.show: No such file"):
        explanation.show(tmp_path / "nowhere" / "life.html")
    with pytest.raises(OSError, match="Explanation.show: "):
        explanation.show(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["life.html"]


def test_calls_that_show_one_path_do_not_meet(tmp_path, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda _: None)
    path, together, replace = tmp_path / "page.html", threading.Barrier(2), os.replace

    def replace_together(source, target):  # both have written their file before the first moves it
        together.wait(20)
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_together)
    explanations = [attn.explain(text) for text in ("a b", "c d")]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda each: each.show(path), explanations)) == [str(path)] * 2
    assert path.read_text(encoding="utf-8") in [each.html() for each in explanations]
    monkeypatch.setattr(os, "replace", replace)
    left = tmp_path / f"page.html.{os.getpid()}.tmp"  # of a process that was killed
    left.write_text("of another")
    longest = tmp_path / ("a" * 250 + ".html")
    for each in (path, longest):
        explanations[0].show(each)
        assert each.read_text(encoding="utf-8") == explanations[0].html()
    assert left.read_text() == "of another"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([longest.name, "page.html", left.name])


def test_show_opens_a_path_with_signs_that_addresses_quote(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    attn.explain("a b").show(tmp_path / "100% #1 猫?.html")
    assert opened == [tmp_path.as_uri() + "/100%25%20%231%20%E7%8C%AB%3F.html"]


def test_a_page_has_the_permissions_of_a_new_file_or_of_the_earlier_one(tmp_path, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda _: None)
    explanation, path = attn.explain("a b"), tmp_path / "page.html"
    before = os.umask(0o027)
    try:
        explanation.show(path)
        assert path.stat().st_mode & 0o777 == 0o640
        for mode in (0o600, 0o664):
            path.chmod(mode)
            explanation.show(path)
            assert path.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


@pytest.mark.parametrize("options", [{"text": "a \ud83d"}, {"text": ["a", "b \udcff"]}, {"text": "a", "to": "\ud83d"}])
def test_a_text_with_half_of_a_surrogate_pair_is_refused(options):
    with pytest.raises(ValueError, match="^explain: (a |)(text|to) holds half of a surrogate pair, "):
        attn.explain(**options)


@pytest.mark.parametrize("path", [None, "life.html"])
def test_a_page_that_cannot_be_written_leaves_nothing(path, tmp_path, monkeypatch):
    from attn import _page

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = path and str(tmp_path / path)

    def stop(*_):
        raise KeyboardInterrupt

    for place, name in [(_page, "open")] + ([(os, "replace")] if path else []):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, stop, raising=False)
            with pytest.raises(KeyboardInterrupt):
                _page.write("a page", path)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong, text", [
    ({"path": 3}, "path is a int; it must be a str"), ({"path": 1.5}, "path is a float; it must be a str"),
    ({"path": ""}, "it must name a file"), ({"path": "a\0b"}, "it must name a file"),
    ({"path": "\ud83d.html"}, "half of a surrogate pair names no file"),
    ({"height": "800"}, "height is a str"), ({"height": True}, "height is a bool"), ({"height": 0}, "height is 0; "),
])
def test_show_says_what_is_wrong(wrong, text, monkeypatch):
    monkeypatch.setattr("webbrowser.open", None)
    with pytest.raises((TypeError, ValueError), match=f"Explanation.show: .*{text}"):
        attn.explain("Life is short").show(**wrong)


def test_show_in_a_notebook(monkeypatch):
    class Shell:
        kernel = None

    shown = []
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = Shell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML = str
    ipython.display.display = shown.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    explanation = attn.explain('say "<b>"')
    assert explanation.show(height=500) is None
    [frame] = shown
    assert frame.startswith("<iframe srcdoc=") and 'height="500"' in frame
    page = html.unescape(frame[len('<iframe srcdoc="'):frame.index('" title=')])
    assert page == explanation.html() and '"' not in frame[len('<iframe srcdoc="'):frame.index('" title=')]
