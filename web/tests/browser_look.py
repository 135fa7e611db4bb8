# web/tests/browser_look.py: lessons, long texts, speed, widths, contrast, names for screen readers.
from browser_checks import test


@test
def long_texts_stay_usable(page):
    text = " ".join(f"w{n % 97}" for n in range(256))
    page.open(f"text={text.replace(' ', '+')}&causal", width=1280)
    page.cell("weights", 0, 0)
    assert page.run("document.querySelectorAll('[data-step=weights] canvas').length") == 1
    page.hover("weights", 200, 100)
    place = page.report("inspected")
    assert (place["row"], place["column"]) == (200, 100), place
    page.click("[data-step=weights] .zoom button", 1)
    page.click("[data-step=weights] .zoom button", 1)
    page.hover("weights", 250, 7)
    assert page.report("inspected")["column"] == 7
    page.same_as_command()
    page.picture("long")


@test
def the_first_result_is_soon_there(page):
    """From when the browser begins to load the page; the bound is generous, for a machine that does other work."""
    took = []
    for _ in range(3):
        page.open()
        took.append(page.report("timings")["first"])
    print(f"        first result: best {min(took):.0f} ms, worst {max(took):.0f} ms")
    assert min(took) < 3000, took


@test
def code_is_large_enough_to_read(page):
    """In pixels: of lessons for a projector, elsewhere for a screen."""
    sizes = """[...document.querySelectorAll('code, pre')].filter(e => e.offsetParent !== null)
      .map(e => parseFloat(getComputedStyle(e).fontSize))"""
    page.open()
    page.panel("code")
    page.pin("weights", 3, 1)
    found = page.run(sizes)
    assert len(found) > 3 and min(found) >= 12, found
    page.open(f"lesson={page.report('lesson')['lessons'][0]['id']}", width=1600)
    found = page.run(sizes.replace("'code, pre'", "'.lessoncode pre, .lessoncode code'"))
    assert found and min(found) >= 16, found


@test
def a_slider_is_followed(page):
    text = "+".join(f"w{n}" for n in range(32))
    page.open(f"text={text}&heads=4&causal")
    page.cell("weights", 0, 0)
    page.panel("score")
    own = []
    for n in range(12):
        page.set("temperature", str(round(0.5 + n / 10, 1)))
        own.append(page.report("timings")["own"])
    own.sort()
    print(f"        own work of a step at 32 tokens, 4 heads: best {own[0]:.1f} ms, median {own[len(own) // 2]:.1f} ms")
    assert page.json()["options"]["temperature"] == 1.6
    page.same_as_command()


@test
def drawings_are_of_what_is_shown(page):
    page.open("heads=2&causal&head=1")
    svg = page.run("attn.page.picture()")
    assert svg.startswith("<svg") and page.run("""new DOMParser().parseFromString(attn.page.picture(), 'image/svg+xml')
      .querySelector('parsererror') === null""")
    first = f"{page.step('weights')['values'][1][2][0]:.4f}"
    assert f">{first}<" in svg
    assert "<svg" in page.run("attn.page.engine.svg({text: 'a b', options: {}})")


@test
def lessons_from_first_to_last(page):
    for language in ("en", "zh"):
        page.open(f"text=x+y&language={language}")
        lessons = page.report("lesson")["lessons"]
        assert lessons
        page.click("#lessons")
        for number, lesson in enumerate(lessons):
            if number == 0:
                page.click(".lessonlist li button")
            for at in range(lesson["steps"]):
                state = page.report("lesson")
                assert (state["playing"], state["at"]) == (lesson["id"], at), state
                assert page.report("failed") == "", f"{lesson['id']} {at}: {page.report('failed')}"
                assert len(page.run("document.querySelector('.idea').innerText")) > 5
                page.same_as_command()
                assert page.json()["language"] == language
                hidden = page.run("""getComputedStyle(document.querySelector('.covered .body > *')).visibility""")
                assert hidden == "hidden" and not page.run(TOLD), f"{lesson['id']} {at}: {page.run(TOLD)} tell it"
                page.click(".choice")
                assert page.run("Boolean(document.querySelector('.why'))")
                assert not page.run("Boolean(document.querySelector('.covered'))")
                focus, shown = page.run("attn.page.lesson.step().focus"), page.report("inspected")
                if focus and focus["row"] is not None and focus["column"] is not None:
                    assert all(shown[mine] == focus.get(theirs, 0) for mine, theirs in
                               (("step", "step"), ("row", "row"), ("column", "column"), ("sentence", "batch"),
                                ("head", "head"))), f"{lesson['id']} {at}: {shown} is inspected, not {focus}"
                if at == lesson["steps"] - 1 and number == len(lessons) - 1:
                    own = page.report("json")
                    page.button("Try it yourself" if language == "en" else "自己试试")
                    assert page.report("json") == own and page.report("lesson")["playing"] is None
                    assert page.run("document.querySelector('.controls').offsetParent !== null")
                else:
                    page.click("#lesson button.main")


# What tells the answer of a lesson's step before it is given: matrices in view, and the answer's own words outside of
# the question.
TOLD = """(() => {
  const {question: {check, choices, answer}} = attn.page.lesson.step(), language = document.documentElement.lang;
  const seen = [...document.querySelectorAll('.block, .heads')].filter(e => !e.closest('[hidden]') &&
    getComputedStyle(e).visibility !== 'hidden');
  const found = seen.filter(e => e.dataset.step === check.step || e.matches('.heads') && check.step === 'weights' ||
    check.kind === 'masked' && e.querySelector('td.hid')).map(e => e.dataset.step ?? 'heads');
  const right = choices[answer][language.startsWith('zh') ? 'zh' : 'en'];
  const text = [...document.querySelectorAll('.idea, .lessoncode, .step h2, .step .formula, .step .note, #inspector')]
    .map(e => e.innerText).join(' ');
  return found.concat(/[.[]/.test(right) && text.includes(right) ? [right] : []);
})()"""


@test
def masked_cells_look_the_same_everywhere(page):
    signs = {"causal": "·", "window": "○", "mask": "▫"}
    page.open("text=a+b+c+d+e+f&mask=causal+%26+window(2,+0)+%26+~prefix(1)&query=4")
    hidden = page.step("weights")["hidden"]
    cells = "[...document.querySelectorAll('[data-step=NAME] tbody tr')].map(e => [...e.querySelectorAll('td')]" \
        ".map(e => [e.textContent, getComputedStyle(e).backgroundColor]))"
    grounds = set()
    for name in ("mask", "weights"):
        page.cell(name, 0, 0)
        for row, reasons in zip(page.run(cells.replace("NAME", name)), hidden):
            for (text, ground), reason in zip(row, reasons):
                if reason:
                    assert text == signs[reason], (name, text, reason)
                    grounds.add(ground)
    assert len(grounds) == 1, grounds
    for row, column in ((4, 0), (4, 1), (4, 5), (1, 0)):
        page.hover("weights", row, column)
        assert signs[hidden[row][column]] in page.inspector().split("\n")[1:4], (page.inspector(), row, column)
    page.hover("weights", 4, 2)
    shown = page.run("[...document.querySelectorAll('.softmax tbody tr')].map(e => e.querySelector('td').textContent)")
    row = [signs.get(reason) for reason in hidden[4]]
    assert [text for text, reason in zip(shown, row) if reason] == [sign for sign in row if sign], (shown, row)
    page.cell("query_scores", 0, 0)
    query = page.run(cells.replace("NAME", "query_scores"))
    assert [cells[0][0] for cells, sign in zip(query, row) if sign] == [sign for sign in row if sign], query
    assert {cells[0][1] for cells, sign in zip(query, row) if sign} == grounds
    drawn = page.run("attn.page.picture()")
    assert all(f">{sign}</text>" in drawn for sign in signs.values())
    page.open("text=" + "+".join(f"w{n}" for n in range(40)) + "&causal")
    page.cell("weights", 0, 0)
    pixel = page.run("[...attn.page.steps.viewOf('weights').small.getContext('2d').getImageData(5, 0, 1, 1).data]")
    assert pixel[3] == 255 and f"rgb({pixel[0]}, {pixel[1]}, {pixel[2]})" in grounds, (pixel, grounds)


@test
def columns_that_are_not_tokens_have_their_whole_name(page):
    for width in (1280, 400):
        for state in ("query=2&causal", "query=1&score=additive&language=zh", "query=0&dk=12", "weights=column_sums"):
            page.open(state, width=width)
            cut = page.run("""[...document.querySelectorAll('.block:not(.chosen)')].flatMap(block => {
              attn.page.steps.viewOf(block.dataset.step);
              const {kind} = attn.page.explanation.step(block.dataset.step);
              return kind === 'pairs' || kind === 'weights' ? [] : [...block.querySelectorAll('thead th')];
            }).filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)""")
            assert not cut, (state, cut)


@test
def narrow_and_wide_light_and_dark(page):
    for width in (360, 900, 1600):
        for dark in (False, True):
            page.open("causal&heads=2&pin=weights,2,1", width=width, height=900, dark=dark)
            assert page.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
            overflow = page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert overflow <= 0, f"{width}: {overflow} px too wide"
            faint = page.run(CONTRAST)
            assert not faint, f"{width} {'dark' if dark else 'light'}: too faint: {faint[:5]}"
            page.picture(f"{width}-{'dark' if dark else 'light'}")
    page.click("#theme")
    assert page.run("document.documentElement.dataset.theme") == "light"
    unnamed = page.run("""[...document.querySelectorAll('button, input, select, [role]')].filter(e =>
      e.offsetParent !== null && !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
      .map(e => e.outerHTML.slice(0, 80))""")
    assert not unnamed, unnamed
    other = page.run("""[...document.querySelectorAll('button[aria-label]')].filter(e => e.textContent.trim().length > 1
      && !e.getAttribute('aria-label').includes(e.textContent.trim())).map(e => e.outerHTML.slice(0, 80))""")
    assert not other, f"the label is not what is shown: {other}"


CONTRAST = """(() => {
  const channel = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const numbers = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = rgb => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const ground = element => {
    for (; element; element = element.parentElement) {
      const colour = numbers(getComputedStyle(element).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || element.offsetParent === null || element.closest(':disabled, script, style, option')) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push([element.className || element.tagName, element.textContent.slice(0, 20), contrast]);
  }
  return found;
})()"""
