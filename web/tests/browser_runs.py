# web/tests/browser_runs.py: two runs beside each other, the drawing of what is on screen, models of GGUF files.
import importlib.machinery
import importlib.util
import json
import pathlib
import re
import shlex

import chromium
from browser_checks import flat, near, test

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VIEWS = "attn.page.steps.blocks.get('NAME')"


def both(page, name):
    """The values of both matrices of a step, the other run's first; of the second alone where one is shown."""
    page.cell(name, 0, 0)
    return page.run(f"{VIEWS.replace('NAME', name)}.views().map(view => view.data.values)")


def boxes(page, name):
    """[left, top, right, cut] of each matrix of a step on the screen; cut: whether it is wider than its room."""
    page.cell(name, 0, 0)
    return page.run(f"""{VIEWS.replace('NAME', name)}.views().map(({{element}}) => {{
      const {{left, top, right}} = element.getBoundingClientRect();
      return [left, top, right, element.scrollWidth > element.clientWidth];
    }})""")


@test
def two_heads_beside_each_other(page):
    page.open("heads=3&causal&head=2")
    page.panel("compare")
    page.set("compare", "head:0")
    page.set("shown", "both")
    for name in ("q", "scores", "weights", "context"):
        values = page.step(name)["values"]
        assert both(page, name) == [values[0], values[2]], name
    assert len(both(page, "x")) == 1 and len(both(page, "joined")) == 1, "a step without heads is there once"
    (left, top, right, cut), (second, its_top, end, its_cut) = boxes(page, "weights")
    assert top == its_top and right <= second and not cut and not its_cut, "not beside each other at full size"
    names = "[...document.querySelectorAll('[data-step=weights] .run')].map(e => e.firstChild.textContent)"
    assert page.run(names) == ["head 0", "head 2"], page.run(names)
    weights = page.step("weights")["values"]
    classes = page.run("""attn.page.steps.blocks.get('scores').views().map(({data}) => data.values.map((row, i) =>
      row.map((value, j) => data.classOf(value, i, j))))""")
    scores = page.step("scores")["values"]
    largest = max(abs(value) for value in flat(scores))
    strength = {abs(value): int("".join(filter(str.isdigit, each))) for head, shown in zip((0, 2), classes)
                for value, each in zip(flat(scores[head]), flat(shown))}
    ordered = [strength[value] for value in sorted(strength)]
    assert ordered == sorted(ordered) and largest, "a colour is one size in both"
    x, y = page.run("(({x, y}) => [x, y])(attn.page.steps.blocks.get('weights').beside.view.centre(3, 1))")
    page.page.move(x, y)
    page.settle()
    text = page.inspector()
    assert f"head 0: {weights[0][3][1]:.4f}"[:13] in text and "head 2: " in text, text
    marks = page.run("document.querySelectorAll('[data-step=weights] .mark.cell:not([hidden])').length")
    assert marks == 2, f"{marks} cells are marked"
    page.pin("weights", 4, 2)
    assert page.report("state.pin") == {"step": "weights", "row": 4, "column": 2}
    page.picture("side-by-side")
    hash_now = page.report("hash")
    assert "shown=both" in hash_now
    page.same_as_command()
    page.open(hash_now, width=400)
    assert both(page, "weights") == [weights[0], weights[2]]
    (_, top, _, _), (_, its_top, _, _) = boxes(page, "weights")
    assert its_top > top, "on a narrow page the second is below"
    page.open("heads=2&compare=head:1&shown=both&language=zh&text=" + "+".join(f"w{n}" for n in range(60)))
    values = page.step("weights")["values"]
    assert both(page, "weights") == [values[1], values[0]]
    (_, top, right, _), (second, its_top, _, _) = boxes(page, "weights")
    assert top == its_top and right <= second, "long texts: canvases beside each other"
    page.run("attn.page.redraw(state => { state.shown = 'difference'; })")
    assert len(both(page, "weights")) == 1, "the other run is left"


@test
def two_runs_beside_each_other(page):
    page.open("temperature=0.5&compare=before&shown=both&before=temperature%3D2")
    held = json.loads(page.command("explain", "--json", "Life is short, eat dessert first", "--temperature", "2"))
    weights = next(step for step in held["steps"] if step["name"] == "weights")["values"]
    assert both(page, "weights") == [weights, page.step("weights")["values"]]
    assert len(both(page, "scores")) == 1, "what did not change is there once"
    page.open("text=to+be&compare=before&shown=both&before=text%3Dto+be+or+not")
    shown = both(page, "weights")
    assert [len(rows) for rows in shown] == [4, 2], "runs of other lengths"
    labels = page.run("attn.page.steps.blocks.get('weights').beside.view.data.rows")
    assert labels == ["to", "be", "or", "not"], labels
    for row in (3, 0):
        x, y = page.run(f"(({{x, y}}) => [x, y])(attn.page.steps.blocks.get('weights').beside.view.centre({row}, 0))")
        page.page.click(x, y)
        page.settle()
        pin = page.report("state.pin")
        assert pin == (None if row == 3 else {"step": "weights", "row": 0, "column": 0}), pin
    page.open("off-keys=1&compare=before&shown=both&language=zh")
    shown = both(page, "weights")
    assert shown[0] == page.step("weights")["values"] and all(row[1] is None for row in shown[1])
    names = page.run("[...document.querySelectorAll('[data-step=weights] .run')].map(e => e.firstChild.textContent)")
    assert names == ["全部打开时", "关掉一部分后"], names


def trained(page, seed):
    """The folder of a small model."""
    folder, text = page.folder / f"gguf{seed}", page.folder / "gguf.txt"
    text.write_text("the cat sat on the mat and the dog sat on the cat " * 60)
    page.command("train", str(text), "--out", str(folder), "--size", "nano", "--steps", "6", "--context", "32",
                 "--tokens", "bpe", "--vocab", "270", "--seed", str(seed))
    return folder


@test
def a_gguf_file_is_a_model(page):
    files = []
    for seed, kind in ((1, "F32"), (2, "Q8_0")):
        files.append(page.folder / f"small {kind}.gguf")
        page.command("convert", str(trained(page, seed)), str(files[-1]), "--type", kind)
    page.open("text=the+cat+sat")
    page.files(files[0])

    def same(file, layer, head):
        line = page.report("code.command")
        words = shlex.split(line)
        assert words[:4] == ["attn", "explain", "--model", file.name], line
        printed = page.command("explain", "--json", "--model", str(file), *words[4:])
        assert page.report("json").strip() == printed.strip(), line
        assert line.endswith(f"--layer {layer} --head {head}"), line

    assert page.report("failed") == "", page.report("failed")
    same(files[0], 0, 0)
    page.set("layer", "3")
    page.set("model_head", "2")
    same(files[0], 3, 2)
    first = page.step("weights")["values"]
    for file in files:
        page.files(file)
        page.set("prompt", "the ")
        page.set("new_tokens", "40")
        page.button("Generate")
        page.page.wait("!attn.page.filesPanel.run.disabled")
        written = page.run("attn.page.filesPanel.output.textContent")
        printed = page.command("generate", str(file), "--prompt", "the ", "--tokens", "40", "--temperature", "0.8",
                               "--seed", "1")
        assert written.strip() == printed.strip(), (written, printed)
    # two checkpoints beside each other
    page.files(files[0])
    page.set("layer", "3")
    page.set("model_head", "2")
    page.panel("compare")
    page.button("Hold this state")
    page.set("shown", "both")
    page.files(files[1])
    page.set("layer", "3")
    page.set("model_head", "2")
    same(files[1], 3, 2)
    assert both(page, "weights") == [first, page.step("weights")["values"]], "two checkpoints"
    page.files(*files)
    assert "One model at a time" in page.report("failed"), page.report("failed")
    broken = page.folder / "broken.gguf"
    broken.write_bytes(files[0].read_bytes()[:2000])
    page.files(broken)
    assert "broken.gguf" in page.report("failed"), page.report("failed")
    page.text("the cat")
    assert page.report("failed") == "", page.report("failed")


def pictures():
    """The checks of tests/pictures/run, as a module."""
    loader = importlib.machinery.SourceFileLoader("pictures", str(ROOT / "tests/pictures/run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("pictures", loader))
    loader.exec_module(module)
    return module


@test
def drawings_lose_no_text(page):
    drawn, module = {}, pictures()
    states = ("causal&heads=2&output_projection&query=2", "text=an+extraordinarily+incomprehensible+sentence&gradients",
              "heads=3&compare=head:1&shown=both", "temperature=0.3&compare=before&before=heads%3D1",
              "off-keys=1&weights=column_sums", "score=additive&positions=sinusoidal&dim=12",
              "text=人生苦短，先吃甜点，再说其他的事情&bias=alibi&sink=1")
    for at, state in enumerate(states):
        for language in (("en", "zh") if at < 2 else ("en",) if at % 2 else ("zh",)):
            page.open(f"{state}&language={language}")
            drawn[f"{language} {state}"] = page.run("attn.page.picture()")
            labels = page.run("""attn.page.explanation.steps.flatMap(step =>
              [step.columns ?? [], step.rows ?? []].flat(9))""")
            for label in map(str, labels):
                assert f">{label}<" in drawn[f"{language} {state}"], f"{language} {state}: {label} is cut"
            assert drawn[f"{language} {state}"].count("…") == 0, f"{language} {state}: a text is cut"
    page.open("heads=2")
    page.panel("mask")
    page.set("causal", True)  # a step that comes later has its place in the drawing too
    titles = re.findall(r'font-weight="600">([^<]*)<', page.run("attn.page.picture()"))
    steps = [step.get("title") or step["name"] for step in page.json()["steps"]]
    assert [title for title in titles if title in steps] == [step for step in steps if step in titles], titles
    assert "mask" in titles
    if not isinstance(page.browser, chromium.Browser):
        return
    found = module.measure(page.browser, drawn, False)
    for name, measured in zip(drawn, found["pictures"]):
        faults = module.drawing_faults(measured)
        assert not faults, (name, faults[:6])
