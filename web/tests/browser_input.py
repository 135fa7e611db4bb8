# web/tests/browser_input.py: texts, options, masks, files: what is given to the page, compared with the command.
import json
import pathlib
import shutil
import struct
import subprocess

from browser_checks import flat, near, test

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@test
def opens_with_the_default_sentence(page):
    page.open()
    assert page.json()["text"] == "Life is short, eat dessert first"
    page.same_as_command()
    assert page.report("failed") == ""
    assert page.run("document.querySelectorAll('#steps > .step').length") >= 6
    assert page.report("timings").get("first") > 0


@test
def every_option_gives_the_numbers_of_the_command(page):
    page.open()
    page.panel("score")
    for field, value in (("score", "additive"), ("score", "general"), ("score", "dot"), ("score", "scaled_dot"),
                         ("temperature", "0.5"), ("softcap", "2.5"), ("bias", "alibi"), ("sink", "-1.5"),
                         ("dropout_p", "0.25"), ("score_mod", "s - 0.5 * (i - j)")):
        page.set(field, value)
        page.same_as_command()
    assert page.json()["options"]["score_mod"] == "s - 0.5 * (i - j)"
    page.panel("sizes")
    for field, value in (("heads", "3"), ("dim", "6"), ("dk", "4"), ("dv", "2"), ("seed", "7"), ("positions", "rotary"),
                         ("positions", "sinusoidal")):
        page.set(field, value)
        page.same_as_command()
    page.panel("more")
    for field, value in (("output_projection", True), ("gradients", True), ("query", "2"), ("weights", "top_k(2)"),
                         ("cache", "int8"), ("packed", True)):
        page.set(field, value)
        page.same_as_command()
    options = page.json()["options"]
    assert options["output_projection"]
    page.open()
    page.panel("more")
    page.set("learned_query", True)
    page.same_as_command()
    assert len(page.step("weights")["values"]) == 1
    page.open("vocabulary=1000&output_projection&heads=2")
    page.same_as_command()
    assert (options["heads"], options["query"], options["cache"], options["packed"]) == (3, 2, "int8", True)


@test
def texts_second_text_batch_and_tokens(page):
    page.open()
    page.text("to be or not to be")
    assert page.step("tokens")["values"] == ["to", "be", "or", "not", "to", "be"]
    page.same_as_command()
    page.set("tokens", "characters")
    assert page.step("tokens")["values"][0] == "t"
    page.same_as_command()
    page.set("tokens", "words")
    page.button("+ another text")
    page.text("to be", 1)
    assert page.json()["text"] == ["to be or not to be", "to be"]
    page.same_as_command()
    page.set("sentence", "1")
    assert page.report("shown('weights')")[1][2] is None, "padding is not masked"
    page.click("#texts .remove", 1)
    page.button("+ second text")
    page.text("eat it first", 1)
    assert page.json()["to"] == "eat it first"
    page.same_as_command()
    page.panel("mask")
    page.set("causal_align", "bottom_right")
    assert page.json()["mask"] == "causal(bottom_right)"
    page.same_as_command()
    page.click("#texts .remove", 0)
    page.text("我喜欢吃苹果，他喜欢看书")
    assert "喜欢" in page.step("tokens")["values"], page.step("tokens")["values"]
    page.same_as_command()
    page.text("吾輩は猫である。")
    assert "吾輩" in page.step("tokens")["values"]
    page.same_as_command()


@test
def masks_by_clicking(page):
    page.open()
    page.panel("mask")
    page.set("causal", True)
    assert page.json()["mask"] == "causal"
    page.set("window_left", "2")
    page.same_as_command()
    assert page.json()["mask"] == "causal & window(2, -1)"
    empty = "document.querySelector('[data-field=window_right] input').value"
    assert page.run(empty) == "", "a side without a limit is an empty field"
    page.set("window_right", "0")
    page.same_as_command()
    assert page.json()["mask"] == "causal & window(2, 0)"
    for wrong in ("1.5", "-1"):
        page.set("window_right", wrong)
        assert page.json()["mask"] == "causal & window(2, 0)", f"{wrong} is not a number of keys"
    page.set("window_right", "")
    assert page.json()["mask"] == "causal & window(2, -1)"
    page.set("prefix", "2")
    page.same_as_command()
    page.set("keys", "5")
    page.same_as_command()
    page.button("Nothing masked")
    assert page.json()["mask"] == ""
    page.click(".cut", 1)
    page.click(".cut", 3)
    page.same_as_command()
    assert page.run("document.querySelectorAll('.cut[aria-pressed=true]').length") == 2
    ids = [0, 0, 1, 1, 2, 2]
    assert page.report("code.mask.cpp") == "attn::Mask::documents(attn::tensor<std::int64_t>({0, 0, 1, 1, 2, 2}, {6}))"
    weights = page.report("shown('weights')")
    assert all((weights[i][j] is not None) == (ids[i] == ids[j]) for i in range(6) for j in range(6))
    page.set("causal", True)
    page.same_as_command()
    page.button("Nothing masked")
    page.set("mask_text", "window(1, 1) | prefix(1)")
    page.same_as_command()
    page.set("mask_text", "windw(1, 1)")
    assert "windw" in page.report("failed"), page.report("failed")
    page.set("mask_text", "")
    assert page.report("failed") == ""


@test
def pairs_are_painted(page):
    page.open(height=1500)
    page.panel("mask")
    page.button("Paint pairs")
    page.pin("scores", 2, 1)
    page.pin("scores", 0, 4)
    weights = page.report("shown('weights')")
    masked = [(i, j) for i in range(6) for j in range(6) if weights[i][j] is None]
    assert masked == [(0, 4), (2, 1)], masked
    page.same_as_command()
    page.pin("mask", 2, 1)
    assert page.report("shown('weights')")[2][1] is not None
    assert "Mask::block" in page.report("code.mask.cpp")
    page.set("causal", True)
    page.pin("mask", 0, 5)
    weights = page.report("shown('weights')")
    assert weights[0][5] is not None and weights[0][3] is None
    page.same_as_command()
    page.cell("mask", 3, 2)
    page.page.drag([page.cell("mask", 3, 2)] + [tuple(page.report(f"centre('mask', {3 + n}, {n})").values())
                                               for n in (0, 1, 2)])
    page.settle()
    weights = page.report("shown('weights')")
    assert [weights[i][j] for i, j in ((3, 2), (3, 0), (4, 1), (5, 2))] == [None] * 4, (page.report('hash'), weights)
    page.same_as_command()
    page.open(page.report("hash"))
    assert page.report("shown('weights')") == weights


@test
def a_painted_mask_with_a_name_is_offered_by_it(page):
    four = [(i, j) for i in range(4) for j in range(4)]
    offered = "(e => e && e.offsetParent !== null ? e.textContent : '')(document.querySelector('.named'))"
    for name, sees, state in (
            ("causal", lambda i, j: j <= i, "causal"),
            ("window(1, 1)", lambda i, j: abs(i - j) <= 1, "window=1,1"),
            ("window(1, -1)", lambda i, j: i - j <= 1, "window=1,-1"),
            ("window(2, 0)", lambda i, j: 0 <= i - j <= 2, "window=2,0"),
            ("prefix(2)", lambda i, j: j < 2, "keys=2")):
        hide = ",".join(f"{i}.{j}" for i, j in four if not sees(i, j))
        page.open(f"text=to+be+or+not&hide={hide}")
        weights = page.report("shown('weights')")
        page.panel("mask")
        assert page.run(offered) == f"This is {name}: use the name", (name, page.run(offered))
        page.click(".named")
        assert page.report("hash") == f"text=to+be+or+not&{state}", page.report("hash")
        assert page.report("shown('weights')") == weights
        assert page.run(offered) == ""
        page.same_as_command()
    page.open("text=to+be+or+not&hide=3.1,1.0")
    page.panel("mask")
    assert page.run(offered) == ""
    page.open("text=to+be+or+not&to=be+it&hide=0.1")
    page.panel("mask")
    assert page.run(offered) == "This is causal(top_left): use the name"
    page.open("text=to+be+or+not&causal&hide=3.0", width=400, height=800)
    page.panel("mask")
    page.button("Paint pairs")
    assert page.run(offered) == "This is window(2, 0): use the name"
    page.click(".named")
    assert page.report("hash") == "text=to+be+or+not&window=2,0"


@test
def code_that_does_not_run_is_not_copied(page):
    buttons = """[...document.querySelectorAll('#panel .codebox button')].filter(e => e.offsetParent !== null)
      .map(e => [e.disabled, e.title])"""
    page.open("text=to+be+or+not")
    page.panel("mask")
    assert page.run(buttons) == [[True, "no mask"]], page.run(buttons)
    page.set("mask_text", "causal & window(2")
    failed = page.report("failed")
    why = f"The page could not run this code: {failed}"
    assert "window" in failed and page.run(buttons) == [[True, why]], page.run(buttons)
    page.panel("code")
    assert page.run(buttons) == [[True, why]] * 3, page.run(buttons)
    page.panel("mask")
    page.set("mask_text", "causal & window(2, 0)")
    assert page.report("failed") == "" and page.run(buttons) == [[False, ""]], page.run(buttons)
    page.panel("files")
    page.run("attn.page.filesPanel.take([])")
    page.panel("code")
    assert page.report("failed") and page.run(buttons) == [[False, ""]] * 3, "the code is right, only the files are not"


@test
def what_is_painted_on_is_in_view(page):
    covered = """(() => {
      const view = attn.page.steps.viewOf('weights'), box = view.element.getBoundingClientRect(), found = [];
      for (let i = 0; i < 6; ++i) for (let j = 0; j < 6; ++j) {
        const {x, y} = view.centre(i, j);
        if (x < box.right && !view.element.contains(document.elementFromPoint(x, y))) found.push([i, j]);
      }
      return found;
    })()"""
    for width, height in ((1366, 700), (1600, 900), (1000, 700), (400, 800)):
        page.open("text=to+be+or+not+to+be", width=width, height=height)
        page.panel("mask")
        page.button("Paint pairs")
        assert page.run(covered) == [], (width, page.run(covered))
        assert page.run("document.activeElement.dataset.say") == "paint", "the button keeps the focus"
        for row, column in ((0, 1), (5, 2)):
            place = page.report(f"centre('weights', {row}, {column})")
            page.page.click(place["x"], place["y"])
            page.settle()
            assert page.report("shown('weights')")[row][column] is None, (width, row, column)
            assert page.run(covered) == [], (width, page.run(covered))
        page.picture(f"painting-{width}")
        assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.button("Paint pairs")
        assert page.run("document.getElementById('panel').parentElement.className") == "controls"


@test
def the_state_is_in_the_address(page):
    state = ("text=to+be+or+not&heads=2&temperature=0.5&score_mod=s+-+0.5+*+(i+-+j)&causal&window=2,-1&hide=2.1&head=1"
             "&chosen=0,2&pin=weights,2,0")
    page.open(state)
    page.same_as_command()
    assert page.report("hash") == state, page.report("hash")
    before = page.report("json")
    page.page.reload()
    page.page.wait("Boolean(window.attn && attn.report().runs)")
    page.settle()
    assert page.report("json") == before and page.report("hash") == state
    page.run("location.hash = '#text=a+b+c'")
    page.page.wait("attn.report().hash === 'text=a+b+c'")
    page.settle()
    assert page.json()["text"] == "a b c"
    page.open("text=%E4%BA%BA%E7%94%9F&heads=x&nonsense=1&window=a&head=9&pin=nowhere,1,1")
    assert page.json()["text"] == "人生" and page.report("failed") == ""


@test
def own_matrices_are_dropped(page):
    page.open()
    shapes = {"w_query": [3, 2], "w_key": [3, 2], "w_value": [3, 5]}
    header, data = {}, b""
    for name, shape in shapes.items():
        numbers = [((n * 7 + len(name)) % 11 - 5) / 4 for n in range(shape[0] * shape[1])]
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    whole = struct.pack("<Q", len(text)) + text + data
    file = page.folder / "matrices.safetensors"
    file.write_bytes(whole)
    page.files(file)
    assert page.report("failed") == "", page.report("failed")
    printed = page.command("explain", "--json", "Life is short, eat dessert first", "--weights", str(file))
    assert page.report("json").strip() == printed.strip()
    broken = page.folder / "broken.safetensors"
    broken.write_bytes(b"123")
    page.files(broken)
    assert "safetensors" in page.report("failed")
    page.button("Back to random matrices")
    page.same_as_command()


@test
def a_model_shows_its_heads_and_writes(page):
    text = page.folder / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the log\n" * 200)
    folders = [page.folder / f"model{n}" for n in (0, 1)]
    for folder, seed in zip(folders, ("1", "2")):
        page.command("train", str(text), "--out", str(folder), "--size", "nano", "--steps", "6", "--context", "32",
                     "--seed", seed)
    names = ("config.json", "model.safetensors", "tokenizer.json")
    page.open("text=the+cat+sat")
    page.files(*(folders[0] / name for name in names))
    assert page.report("failed") == "", page.report("failed")

    def same(folder, layer, head):
        printed = page.command("explain", "--json", "--model", str(folder), "the cat sat", "--layer", str(layer),
                               "--head", str(head))
        assert page.report("json").strip() == printed.strip(), f"layer {layer}, head {head}"

    same(folders[0], 0, 0)
    page.set("layer", "2")
    page.set("model_head", "3")
    same(folders[0], 2, 3)
    first = page.step("weights")["values"]
    page.set("prompt", "the ")
    page.set("new_tokens", "30")
    page.button("Generate")
    page.page.wait("!attn.page.filesPanel.run.disabled")
    written = page.run("attn.page.filesPanel.output.textContent")
    printed = page.command("generate", str(folders[0]), "--prompt", "the ", "--tokens", "30", "--temperature", "0.8",
                           "--seed", "1")
    assert written.strip() == printed.strip(), (written, printed)
    page.panel("compare")
    page.button("Hold this state")
    page.files(*(folders[1] / name for name in names))
    page.set("layer", "2")
    page.set("model_head", "3")
    same(folders[1], 2, 3)
    second, shown = page.step("weights")["values"], page.report("shown('weights')")
    assert all(near(c, (a or 0) - (b or 0)) for a, b, c in zip(flat(second), flat(first), flat(shown)) if a is not None)
    page.button("Back to random matrices")
    page.same_as_command()


@test
def mistakes_are_said_in_the_librarys_words(page):
    page.open()
    page.text(",")
    assert "no token" in page.report("failed"), page.report("failed")
    page.text("Life is short")
    assert page.report("failed") == ""
    page.same_as_command()


@test
def the_command_writes_the_page_with_its_state(page):
    file = page.folder / "written.html"
    page.command("explain", "to be </script> or", "--heads", "2", "--mask", "causal | prefix(2)", "--lang", "zh",
                 "--html", str(file))
    page.url = file.as_uri()
    page.open()
    assert page.json()["text"] == "to be </script> or"
    assert page.json()["options"]["mask"] == "causal | prefix(2)" and page.report("state.mask.prefix") == 2
    page.same_as_command()
    page.panel("sizes")
    page.set("heads", "3")
    page.same_as_command()


@test
def the_code_compiles_and_runs(page):
    """The C++ of states with every kind of option against the public headers; the command line is run by all tests."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return
    states = ("score=additive&softcap=2&bias=alibi_symmetric&sink=-1&dropout_p=0.1&score_mod=s+-+0.5+*+(i+-+j)&heads=2"
              "&positions=rotary&tokens=characters&cache=int8&weights=top_k(2)&packed&gradients&query=1&language=zh",
              "documents=2,4&hide=2.1&show=0.5&causal&weights=rows(0,2)&vocabulary=1000&output_projection",
              "text=a+b+c&to=d+e&causal=bottom_right&window=1,0&prefix=1")
    for state in states:
        page.open(state)
        page.same_as_command()
        file = page.folder / "code.cpp"
        file.write_text(page.report("code.cpp"))
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'include'}", str(file)],
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{file.read_text()}\n{done.stderr[:2000]}"
        compile(page.report("code.python"), "code.py", "exec")
