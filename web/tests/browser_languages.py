# web/tests/browser_languages.py: the page in Chinese and in English: its words, and the lines of errors.
import re
import subprocess

from browser_checks import test
from browser_page import ENVIRONMENT


@test
def both_languages(page):
    page.open("causal")
    page.button("中文")
    assert page.json()["language"] == "zh" and page.run("document.documentElement.lang") == "zh-CN"
    page.same_as_command()
    for panel in ("score", "mask", "sizes", "more", "compare", "code", "files"):
        page.panel(panel)
        shown = page.run("""[...document.querySelectorAll('#bar, #panel label, #panel button, #panel option')]
          .filter(e => e.offsetParent !== null).map(e => e.innerText).join('\\n')""")
        left = re.findall(r"\b(?:Score|Mask|Sizes|Compare|Code|Files|Heads|Seed|Window|Copy|Save|Hold)\b", shown)
        assert not left, f"{panel}: {left}"
    page.hover("weights", 3, 1)
    assert "键" in page.inspector()
    page.button("English")
    assert page.json()["language"] == "en"
    page.same_as_command()
    keys = page.run("attn.missingWords()")
    assert keys == [], f"not in both languages: {keys}"


@test
def errors_are_said_in_both_languages(page):
    """The page says in Chinese what the command says in Chinese; what the page alone says has a form too."""
    for state, option in (("heads=0", ("--heads", "0")), ("mask=cuasal", ("--mask", "cuasal")),
                          ("mask=window(a)", ("--mask", "window(a)")), ("temperature=0", ("--temperature", "0")),
                          ("positions=rotary&dk=3", ("--positions", "rotary", "--dk", "3")),
                          ("weights=top_k(99)", ("--return-weights", "top_k(99)")), ("query=99", ("--query", "99")),
                          ("score_mod=foo(s)", ("--score-mod", "foo(s)")), ("dropout_p=2", ("--dropout", "2"))):
        page.open(f"language=zh&text=to+be+or&{state}")
        page.page.wait("attn.report().failed !== ''")
        said = page.report("failed")
        assert not re.search(r"[A-Za-z]+ [a-z]+ [a-z]+", said), said  # names and the user's words alone
        done = subprocess.run([str(page.attn), "explain", "to be or", *option, "--lang", "zh"], env=ENVIRONMENT,
                              capture_output=True, text=True)
        same = said[said.index("“"):] if "::parse" in said else said  # there the command names its option
        assert done.stderr.strip().endswith(same), f"{state}: {said}; the command: {done.stderr}"
        page.button("English")
        assert not re.search("[一-龥]", page.report("failed")), page.report("failed")
    page.open("language=zh&text=to+be+or&score=foo&seed=-1")
    assert re.search("[一-龥]", page.report("failed")) and "needed" not in page.report("failed"), page.report("failed")
    for name, content in (("junk.safetensors", b"x" * 100), ("junk.gguf", b"x" * 100), ("cut.gguf", b"GGUF\3\0\0\0"),
                          ("config.json", b"{")):
        file = page.folder / name
        file.write_bytes(content)
        page.open("language=zh")
        page.files(str(file))
        said = page.report("failed").replace("model/", "")
        assert re.search("[一-龥]", said) and not re.search(r"[a-z]+ [a-z]+", said), said
