# web/tests/browser_axe.py: axe-core's rules of accessibility, which are WCAG's and more, on the page in many states.
import pathlib

from browser_checks import NotInstalled, test

AXE = pathlib.Path(__file__).resolve().parent.parent.parent / "build/npm/node_modules/axe-core/axe.min.js"
PANELS = ("score", "mask", "sizes", "more", "compare", "code", "files")
FINDINGS = """axe.run().then(({passes, violations}) => ({rules: passes.length, found: violations
  .filter(({impact}) => impact === 'serious' || impact === 'critical')
  .flatMap(({id, nodes}) => nodes.map(({html, failureSummary: why}) => `${id}: ${html.slice(0, 99)} ${why}`))}))"""


def accessible(page, state):
    """Nothing serious is wrong with what is shown. The test brings axe along: the page itself loads nothing."""
    if not AXE.is_file():
        raise NotInstalled("axe-core (./setup --page)")
    if not page.run("Boolean(window.axe)"):
        page.run(AXE.read_text() + ";0")
    said = page.run(FINDINGS)
    assert said["rules"] >= 20, f"{state}: only {said['rules']} rules had something to look at"
    assert not said["found"], f"{state}: {len(said['found'])} findings\n" + "\n".join(said["found"][:5])


@test
def accessible_in_every_state(page):
    for dark in (False, True):
        for language in ("en", "zh"):
            for width in (360, 1280):
                page.open(f"heads=2&causal&gradients&language={language}", width=width, dark=dark)
                state = f"{'dark' if dark else 'light'}, {language}, {width} px"
                accessible(page, state)
                page.pin("weights", 2, 1)
                accessible(page, f"{state}, an open inspector")


@test
def accessible_panels(page):
    page.open("heads=2&causal")
    for panel in PANELS:
        page.panel(panel)
        accessible(page, panel)
    page.open("text=" + "+".join(f"w{n}" for n in range(64)), width=360)
    accessible(page, "a canvas")
    page.text(",")
    accessible(page, "a mistake, over the numbers before it")
    page.open("gradients&dim=4")
    page.pin("weights", 1, 2)
    page.button("Key “short” off")
    assert page.run("Boolean(document.querySelector('[data-mode=stale]'))")
    accessible(page, "a key off, and numbers that do not know it")


@test
def accessible_lessons(page):
    for dark, language, width in ((False, "en", 1280), (True, "zh", 360)):
        page.open(f"language={language}", width=width, dark=dark)
        page.click("#lessons")
        accessible(page, "the list of lessons")
        page.click(".lessonlist li button")
        asked = 0
        for at in range(page.report("lesson")["lessons"][0]["steps"] - 1):
            accessible(page, f"step {at} of a lesson")
            if page.run("Boolean(document.querySelector('.question'))"):
                asked += 1
                page.click(".choice")
                accessible(page, f"step {at} of a lesson, answered")
            page.click("#lesson button.main")
        assert asked, "the lesson asks nothing"


@test
def what_is_not_accessible_is_found(page):
    """That these tests can fail: what is wrong is added."""
    page.open()
    accessible(page, "as it is")
    for wrong, rule in (("<button></button>", "button-name"), ("<p style='color: #999; background: #fff'>faint</p>",
                                                               "color-contrast")):
        page.run(f"document.querySelector('main').insertAdjacentHTML('afterbegin', {wrong!r})")
        try:
            accessible(page, wrong)
        except AssertionError as error:
            assert rule in str(error), error
        else:
            raise AssertionError(f"axe says nothing to {wrong}")
        page.run("document.querySelector('main').firstElementChild.remove()")
