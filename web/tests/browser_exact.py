# web/tests/browser_exact.py: what is given to the page is what it shows: no option, mask, matrix or word is replaced.
from browser_checks import flat, near, test


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


@test
def what_parts_off_change_is_new_or_marked(page):
    state = "heads=2&sink=1&cache=int8&weights=top_k(2)&gradients"
    page.open(f"{state}&off-keys=1")
    for head in (0, 1):
        page.run(f"attn.page.redraw(state => {{ state.head = {head}; }})")
        weights, sink = page.report("shown('weights')"), page.report("shown('sink')")
        assert all(near(sum(w or 0 for w in row) + taken, 1) for row, (taken,) in zip(weights, sink))
        assert not near(sink[0][0], page.step("sink")["values"][head][0][0])
    modes = {name: page.report(f"mode('{name}')") for name in
             ("sink", "context_int8", "top_k", "context", "d_q", "d_k", "v_int8", "scores")}
    assert modes == {"sink": "off", "context": "off", "context_int8": "stale", "top_k": "stale", "d_q": "stale",
                     "d_k": "stale", "v_int8": "plain", "scores": "plain"}, modes
    page.open(f"{state}&off-heads=0")
    assert page.report("mode('context_int8')") == "stale"
    assert flat(page.report("shown('sink')")) == flat(page.step("sink")["values"][0])
