# web/tests/browser_exact.py: what is given to the page is what it shows: no option, mask, matrix or word is replaced.
import json
import pathlib
import re
import shlex
import shutil
import struct
import subprocess

from browser_checks import flat, near, test

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAMES = ("config.json", "model.safetensors", "tokenizer.json")


def write_matrices(file, **shapes):
    header, data = {}, b""
    for name, shape in shapes.items():
        size = 1
        for dim in shape:
            size *= dim
        packed = struct.pack(f"<{size}f", *(((n * 5 + len(name)) % 13 - 6) / 4 for n in range(size)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def compiles(page):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return
    file = page.folder / "code.cpp"
    file.write_text(page.report("code.cpp"))
    done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'include'}", str(file)],
                          capture_output=True, text=True)
    assert done.returncode == 0, f"{file.read_text()}\n{done.stderr[:2000]}"


def drawing(page):
    """What "Save the library's drawing" saves."""
    page.run("""(() => {
      window.saved = null;
      const make = URL.createObjectURL;
      URL.createObjectURL = blob => (blob.text().then(text => { window.saved = text; }), make.call(URL, blob));
      HTMLAnchorElement.prototype.click = () => {};
    })()""")
    page.run("attn.page.saveSvg()")
    page.page.wait("window.saved !== null")
    return page.run("window.saved")


def model(page):
    text, folder = page.folder / "text.txt", page.folder / "small"
    if not folder.exists():
        text.write_text("the cat sat on the mat\n" * 200)
        page.command("train", str(text), "--out", str(folder), "--size", "nano", "--steps", "2", "--context", "32")
    return folder


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
def a_mask_stays_what_it_is(page):
    cross = ("to be or not", "--to", "be it")
    cases = [("window(1, 0, bottom_right)", cross), ("window(1, 0, top_left)", cross),
             ("causal(bottom_right) & window(2, 0, top_left)", cross), ("causal(bottom_right)", cross),
             ("causal(bottom_right) & window(2, 0, bottom_right)", cross),
             *((mask, ("to be or not to be",)) for mask in (
                 "all | prefix(3)", "prefix(5) | prefix(3)", "prefix(0)", "all", "none", "causal & window(2, 0)",
                 "window(2, 0) & causal | prefix(2)", "prefix(2)", "all & causal", "~(window(1, 0)) | prefix(2)"))]
    url = page.url
    file = page.folder / "mask.html"
    for mask, texts in cases:
        page.url = url
        page.command("explain", *texts, "--mask", mask, "--html", str(file))
        page.url = file.as_uri()
        page.open()
        printed = json.loads(page.command("explain", *texts, "--mask", mask, "--json"))
        steps = {step["name"]: step["values"] for step in printed["steps"]}
        assert page.report("failed") == "", (mask, page.report("failed"))
        assert page.step("weights")["values"] == steps["weights"], (mask, page.report("state.mask"))
        page.same_as_command()
    page.open("text=to+be+or+not+to+be&mask=causal+%26+window(2,+0)")
    assert page.report("state.mask.text") == "causal & window(2, 0)"


@test
def painted_pairs_of_a_mask_with_brackets(page):
    page.open("mask=~(window(1,+0))+|+prefix(2)&hide=5.3,3.1")
    page.same_as_command()
    weights = page.report("shown('weights')")
    base = {(i, j) for i in range(6) for j in range(6) if not 0 <= i - j <= 1 or j < 2}
    seen = {(i, j) for i in range(6) for j in range(6) if weights[i][j] is not None}
    assert seen == base - {(5, 3), (3, 1)}, seen
    assert re.search(r"= \(attn::Mask::parse\(.*\)\) & attn::Mask::block", page.report("code.cpp"))
    assert "= (attn.Mask.parse(" in page.report("code.python")
    compiles(page)
    page.open("learned_query&hide=0.1")
    assert page.report("shown('weights')")[0][1] is None and "{1, 6})" in page.report("code.mask.cpp")


@test
def own_matrices_are_everywhere(page):
    file = page.folder / "own.safetensors"
    write_matrices(file, w_query=[3, 2], w_key=[3, 2], w_value=[3, 5], query_vector=[3])
    text = "Life is short, eat dessert first"
    page.open("dim=5&dk=3")
    page.files(file)
    assert page.report("failed") == "", page.report("failed")
    page.panel("score")
    page.set("temperature", "2")
    own = ("--weights", str(file), "--temperature", "2")
    line = page.report("code.command")
    assert line.endswith("--weights FILE"), line
    words = shlex.split(line.replace("FILE", str(file)))
    assert page.command("explain", "--json", *words[2:]).strip() == page.report("json").strip()
    assert ".w_query = file.at(\"w_query\")" in page.report("code.cpp")
    assert "w_query=file[\"w_query\"]" in page.report("code.python")
    compile(page.report("code.python"), "code.py", "exec")
    compiles(page)
    assert drawing(page).strip() == page.command("explain", text, *own, "--svg", "-").strip()
    page.panel("compare")
    page.button("Compare with before the last change")
    before = page.command("explain", "--json", text, "--weights", str(file))
    assert page.run("attn.page.comparison.reference.text").strip() == before.strip()
    page.panel("files")
    page.button("Back to random matrices")
    page.panel("more")
    assert "weights" not in page.report("code.command")
    assert page.run("attn.page.comparison.reference.step('v').shape[1]") == 4, "the reference has random matrices again"


@test
def the_page_says_where_its_numbers_are_from(page):
    said = "document.getElementById('source').innerText"
    page.open("text=the+cat+sat")
    assert "random, untrained weights (seed 123)" in page.run(said), page.run(said)
    page.panel("sizes")
    page.set("seed", "7")
    assert "random, untrained weights (seed 7)" in page.run(said), page.run(said)
    file = page.folder / "own.safetensors"
    write_matrices(file, w_query=[4, 2], w_key=[4, 2], w_value=[4, 5])
    page.files(file)
    assert "your own w_query, w_key, w_value" in page.run(said), page.run(said)
    page.files(*(model(page) / name for name in NAMES))
    assert "the model: layer 0, head 0" in page.run(said) and "random" not in page.run(said), page.run(said)
    page.set("layer", "1")
    assert "layer 1" in page.run(said), page.run(said)
    page.panel("files")
    page.button("Back to random matrices")
    page.click("#language")
    assert "未经训练的权重（随机种子 7）" in page.run(said), page.run(said)


@test
def a_query_vector_says_where_it_is_from(page):
    page.open("learned_query", height=2000)
    page.hover("learned_query", 0, 0)
    source = page.step("learned_query")["source"]
    assert source and source in page.inspector(), page.inspector()
    file = page.folder / "own.safetensors"
    write_matrices(file, w_query=[3, 2], w_key=[3, 2], w_value=[3, 5], query_vector=[3])
    page.files(file)
    page.panel("files")
    page.hover("learned_query", 0, 1)
    own = page.step("learned_query")["source"]
    assert own != source and own in page.inspector() and "random" not in page.inspector(), page.inspector()


@test
def a_model_is_in_its_code_and_in_what_is_compared(page):
    folder = model(page)
    page.open("text=the+cat+sat&heads=2")
    page.panel("compare")
    page.button("Hold this state")
    assert page.report("state.before") != "held"
    page.files(*(folder / name for name in NAMES))
    page.set("layer", "1")
    page.set("model_head", "1")
    page.run("attn.page.change(state => { state.options.gradients = true; }, 'gradients')")
    page.settle()
    line = page.report("code.command")
    assert "--model FOLDER" in line and "--layer 1 --head 1" in line, line
    words = shlex.split(line.replace("FOLDER", str(folder)))
    assert page.command("explain", "--json", *words[2:]).strip() == page.report("json").strip()
    compiles(page)
    first = page.command("explain", "--json", "--model", str(folder), "the cat sat")
    assert page.run("attn.page.comparison.reference.text").strip() == first.strip(), "compared with random matrices"
    shown = """[...document.querySelectorAll('#panel button, #panel .codebox')].filter(e => e.offsetParent !== null)
      .map(e => e.dataset.say || e.dataset.code)"""
    page.panel("code")
    found = page.run(shown)
    assert "save_view" in found and "save_svg" not in found and "cpp" in found and "python" not in found, found
    page.panel("compare")
    found = page.run(shown)
    assert "hold" in found and "hold_last" not in found, found
    page.panel("files")
    page.button("Back to random matrices")
    page.same_as_command()
    page.panel("code")
    found = page.run(shown)
    assert "save_svg" in found and "python" in found, found


@test
def a_model_that_cannot_be_read_is_gone(page):
    folder = model(page)
    page.open("text=the+cat+sat")
    page.files(*(folder / name for name in NAMES))
    assert page.report("failed") == "", page.report("failed")
    broken = page.folder / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    page.files(broken / "config.json")
    assert page.report("failed") != ""
    page.page.wait("attn.page.filesPanel.modelPart.hidden")
    page.text("the cat")
    assert page.report("failed") == "", page.report("failed")
    page.same_as_command()
    page.run("attn.page.filesPanel.take([{name: 'x', arrayBuffer: () => Promise.reject(new Error('it is gone'))}])")
    assert page.report("failed") == "it is gone"


@test
def words_are_cut_as_the_command_cut_them(page):
    text, mine = "我喜欢吃苹果", ["我喜", "欢吃", "苹果"]
    file = page.folder / "cut.html"
    page.command("explain", text, "--tokens", "words", "--html", str(file))
    written = re.sub(r'"cut": \{.*?\]\}', lambda _: '"cut": ' + json.dumps({text: mine}, ensure_ascii=False),
                     file.read_text(encoding="utf-8"), count=1)
    file.write_text(written, encoding="utf-8")
    page.url = file.as_uri()
    page.open()
    assert page.step("tokens")["values"] == mine, page.step("tokens")["values"]
    assert "我喜" in drawing(page)
    python, cpp = page.report("code.python"), page.report("code.cpp")
    assert '"我喜", "欢吃", "苹果"' in python and "cut_words=words.get" in python, python
    assert '"我喜", "欢吃", "苹果"' in cpp and ".cut_words = " in cpp, cpp
    compile(python, "code.py", "exec")
    compiles(page)
    page.text("他是谁 and I")
    assert "他是谁 and I" in page.report("code.python")
    page.set("tokens", "characters")
    assert "cut_words" not in page.report("code.python")


@test
def a_learned_query_is_one_row(page):
    page.open("learned_query")
    page.button("+ second text")
    assert page.report("failed") == "" and page.report("state.options.learned_query") is False
    page.same_as_command()
    page.open("learned_query&to=eat+it")
    assert page.report("failed") == "" and "learned_query" not in page.report("hash")
    page.open("query=4")
    page.panel("more")
    offered = "[...document.querySelectorAll('[data-field=query] option')].map(e => e.value)"
    assert page.run(offered) == ["", "0", "1", "2", "3", "4", "5"]
    page.set("learned_query", True)
    assert page.report("failed") == "" and page.report("state.options.query") is None
    assert page.run(offered) == ["", "0"]
    page.set("query", "0")
    page.same_as_command()
    page.set("learned_query", False)
    assert page.report("state.options.query") is None
    page.set("query", "4")
    page.text("eat it first")
    assert page.report("failed") == "" and page.report("state.options.query") is None, page.report("failed")
    page.same_as_command()


@test
def numbers_that_are_empty_or_too_large(page):
    page.open("query=&seed=&heads=&sink=&temperature=&score=&window=,&prefix=&off-keys=,")
    assert page.report("hash") == "" and page.report("failed") == "", page.report("hash")
    page.same_as_command()
    page.open("seed=9007199254740991")
    page.same_as_command()
    page.open("seed=9007199254740993")
    assert "9007199254740991" in page.report("failed"), page.report("failed")
    file = page.folder / "seed.html"
    page.command("explain", "a b", "--seed", "123456789012345678", "--html", str(file))
    page.url = file.as_uri()
    page.open()
    assert "9007199254740991" in page.report("failed"), page.report("failed")
    page.panel("sizes")
    page.set("seed", "7")
    page.same_as_command()


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
