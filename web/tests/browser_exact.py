# web/tests/browser_exact.py: what is given to the page is what it shows: no option, mask, matrix or word is replaced.
from browser_checks import test


@test
def a_batch_of_one_text(page):
    page.open("text=a+b&batch&heads=2&causal")
    page.same_as_command()
    ids = page.run("[...document.querySelectorAll('#steps .id')].map(e => e.innerText)")
    assert ids == [str(n) for n in page.step("ids")["values"][0]], ids
    assert page.report("shown('weights')") == page.step("weights")["values"][0][0]
    assert page.report("shown('weights')")[0][1] is None
    page.hover("weights", 0, 1)
    assert "comes after" in page.inspector(), page.inspector()
    file = page.folder / "batch.html"
    page.command("explain", "--batch", "to be or", "--packed", "--html", str(file))
    page.url = file.as_uri()
    page.open()
    page.same_as_command()
    assert page.report("shown('context')") == page.step("context")["values"][0]
    assert page.report("shown('packed')") == [[1]]
