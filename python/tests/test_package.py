# python/tests/test_package.py: the package as a whole: examples in docstrings, stubs, version, warnings, imports.
import doctest
import importlib
import inspect
import os
import pathlib
import pkgutil
import platform
import re
import subprocess
import sys
import threading
import types
import warnings

import numpy as np
import pytest
import stub_signatures

import attn

without_torch = [name for name in ("_functions", "_explain", "_tracing", "plot")]


def run(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environment})


def test_the_version_is_the_librarys():
    assert attn.__version__ == attn.info()["version"]
    version = pathlib.Path(__file__).resolve().parents[2] / "VERSION"
    assert attn.__version__ == version.read_text().strip()


def modules():
    for module in pkgutil.iter_modules(attn.__path__):
        if module.name not in ("torch", "integrations"):
            yield importlib.import_module(f"attn.{module.name}")
    yield attn


def test_every_example_in_a_docstring_runs():
    attempted = 0
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    tests = [test for module in modules() for test in finder.find(module)]
    for name in attn.__all__:  # classes of the extension, which the finder does not own
        thing = getattr(attn, name)
        if inspect.isclass(thing) and thing.__doc__:
            tests.append(doctest.DocTestParser().get_doctest(inspect.cleandoc(thing.__doc__), {}, name, None, None))
    for test in tests:
        result = runner.run(test)
        attempted += result.attempted
        assert result.failed == 0, test.name
    assert attempted >= 20


def test_everything_public_is_documented():
    for name in attn.__all__:
        thing = getattr(attn, name)
        if callable(thing) and name not in ("VerifyReport", "ExplainStep", "Plan", "KvSequence"):
            assert thing.__doc__ and len(thing.__doc__.strip()) > 20, name


def test_options_stand_in_the_order_of_the_extension():
    names = [n for n in inspect.signature(attn.attention).parameters
             if n not in ("q", "k", "v", "return_plan", "unknown")]
    assert tuple(names) == attn._core.attention_options


STUB = pathlib.Path(attn.__file__).with_name("_core.pyi")


def test_stubs_agree_with_the_extension(tmp_path):
    """By stubtest, and what it cannot see through (nanobind's metaclass, functions,
    static methods and constructors) by their own signatures."""
    pytest.importorskip("mypy", reason="not installed: mypy")
    covered = list(stub_signatures.of_extension(attn._core))
    # those that Python cannot construct too
    covered += [f"{name}.__init__" for name in covered if inspect.isclass(getattr(attn._core, name, None))]
    (tmp_path / "allowed").write_text("\n".join(rf"attn\._core\.{re.escape(name)}" for name in ["Align", *covered]))
    result = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "attn._core", "--ignore-missing-stub", "--ignore-disjoint-bases",
         "--allowlist", str(tmp_path / "allowed"), "--ignore-unused-allowlist"],
        capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert stub_signatures.differences(STUB.read_text(), attn._core) == []
    assert len(covered) > 150


WRONG = {  # in the stub: what it is exchanged for, the function that is told of
    "def where(condition: Any, a: Any, b: Any)": ("def where(condition: Any, b: Any, a: Any)", "where"),
    "def exp(x: Any) -> ScoreExpression: ...\n": ("", "exp"),
    "def version() -> str": ("def version() -> int", "version"),
    "quick: bool = False) -> VerifyReport": ("quick: bool = True) -> VerifyReport", "verify"),
    "def linear_into(input: Any, weight: Any, bias: Any, out: Any)": ("def linear_into(input: Any, weight: Any, bias: "
                                                                      "Any = None, out: Any = None)", "linear_into"),
    "def num_threads() -> int": ("def num_threads(*, all: bool = False) -> int", "num_threads"),
    "    @staticmethod\n    def window(left": ("    def window(self, left", "Mask.window"),
    "    def __init__(self, values: Any, name: str | None = None)": ("    def __init__(self, values: Any, label: "
                                                                     "str | None = None)", "ScoreTable.__init__"),
    "        *,\n        value_heads: int = 0": ("        value_heads: int = 0", "KvCache.__init__"),
    "class Weights:\n": ("class Weights:\n    def __init__(self) -> None: ...\n", "Weights.__init__"),
    "    @property\n    def passed(self) -> bool": ("    def passed(self) -> bool", "VerifyReport.passed"),
    "    @property\n    def cases(self) -> int": ("    @property\n    def cases(self) -> str", "VerifyReport.cases"),
    "    def evict(self, sequence: KvSequence, position: int) -> None: ...\n": ("", "KvCache.evict"),
    "def manual_seed(seed: int) -> None": ("def manual_sed(seed: int) -> None", "manual_sed"),
    "class Plan:": ("class Plans:", "Plans"),
}


@pytest.mark.parametrize("right", WRONG, ids=lambda x: WRONG[x][1])
def test_a_wrong_stub_is_noticed(right):
    wrong, name = WRONG[right]
    assert STUB.read_text().count(right) == 1
    found = stub_signatures.differences(STUB.read_text().replace(right, wrong), attn._core)
    assert any(line.startswith(f"{name}:") for line in found), found


def test_the_package_type_checks(tmp_path):
    pytest.importorskip("mypy", reason="not installed: mypy")
    (tmp_path / "use.py").write_text(
        "import attn\nimport numpy as np\nx = np.zeros((1, 1, 2, 4), np.float32)\n"
        "y: np.ndarray = attn.scaled_dot_product_attention(x, x, x, is_causal=True)\n"
        'm: attn.Mask = attn.Mask.causal() & ~attn.Mask.window(1, 0, "top_left")\n'
        "z = attn.attention(x, x, x, mask=m, bias=attn.Bias.alibi(1))\n"
        'e = attn.explain(["a b", "c"], heads=2, cut_words=str.split, mask=m)\n'
        'steps: list[attn.ExplainStep] = [e["weights"], e[0], *e, *e[1:3]]\n'
        'print(e.texts, e.text(width=80), len(e), "mask" in e, e.plot("weights"))\n'
        'model = attn.LanguageModel.load("model", dtype="bfloat16")\n'
        'said: attn.GeneratedText = model.generate("a", tokens=3, stop=["b"], model_cache=attn.ModelCache(model))\n'
        'print("".join(piece.upper() for piece in model.stream("a", seed=1)), said.text, model.config["model_type"])\n'
        'chat = attn.Chat(model, format="chatml", draft=model)\n'
        'print(chat.say("a", print).tokens, chat.stream("b").result.finish, chat.computed)\n'
        'encoder = attn.TextEncoder.load("encoder", dtype="float32")\n'
        'v: np.ndarray = encoder.embed(["a", "b"], prompt_name="query", batch_tokens=512)\n'
        'print(v, encoder.scores([("a", "b")]), encoder.dim, encoder.prompts["query"], encoder.tokenizer)\n'
    )
    result = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"),
                             "use.py"], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    (tmp_path / "use.py").write_text('import attn\nattn.Mask.window("a")\n')
    result = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "use.py"],
                            capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 1, "py.typed is not found"


@pytest.mark.parametrize("module",
                         ["attn", "attn.mpi", "attn.plot", "attn.torch", "attn.integrations.transformers",
                          "attn.integrations.flash_attn", "attn.integrations.jax", "attn.integrations.onnx"])
def test_what_is_called_has_types(module):
    """py.typed says so; a program that is checked strictly may not call a function without them."""
    for needed in {"attn.torch": ["torch"], "attn.integrations.transformers": ["torch", "transformers"],
                   "attn.integrations.flash_attn": ["torch"], "attn.integrations.jax": ["jax"],
                   "attn.integrations.onnx": ["onnx"]}.get(module, []):
        pytest.importorskip(needed)
    if module == "attn.integrations.jax" and attn._core._xla_handlers() is None:
        pytest.skip("not installed: jaxlib where attn was built")
    module = importlib.import_module(module)
    names = {"attn.integrations.transformers": ["register"],
             "attn.integrations.onnx": ["attention", "flex_attention", "rotary_embedding"],
             "attn.plot": ["heat_map"]}.get(module.__name__, getattr(module, "__all__", []))
    found = [vars(module)[name] for name in names]
    methods = [x for kind in found if isinstance(kind, type) for x in vars(kind).values()]
    package = pathlib.Path(attn.__file__).parent  # others are written by dataclasses
    functions = [x for x in (*found, *methods)
                 if isinstance(x, types.FunctionType)
                 and pathlib.Path(x.__code__.co_filename).is_relative_to(package)
                 and not x.__name__.startswith(("_check", "_project", "_masks", "_is"))]
    assert functions
    for function in functions:
        signature = inspect.signature(function)
        untyped = [name for name, x in signature.parameters.items() if name != "self" and x.annotation is x.empty]
        assert not untyped and signature.return_annotation is not signature.empty, (function, untyped)


def test_a_notice_is_a_warning_once():
    code = """
import warnings, numpy as np, attn
x = np.zeros((1, 1, 1024, 64), np.float32)
far = lambda s, b, h, i, j: s + 0.5 * ((i - j) * 2**25)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        attn.attention(x, x, x, score=far)
print(len(caught), caught[0].category.__name__ if caught else "", caught[0].message if caught else "")
"""
    result = run(code)
    assert result.returncode == 0, result.stderr
    vectors = [target for target in attn.info()["targets"] if target != "scalar"]
    if vectors:
        assert result.stdout.startswith("1 RuntimeWarning attention: a large call"), result.stdout
        failing = run(code.replace('"always"', '"error"'))
        assert failing.returncode == 0 and "RuntimeWarning" in failing.stderr


def test_free_memory_is_given_back_when_asked():
    code = """
import numpy as np, attn
x = np.ones((1, 8, 4096, 64), np.float32)
attn.attention(x, x, x)
given = attn.release_free_memory()
print(given, attn.release_free_memory())
"""
    result = run(code)
    assert result.returncode == 0, result.stderr
    given, again = map(int, result.stdout.split())
    assert given >= 0 and again == 0, (given, again)


def test_freed_memory_is_kept_when_asked():
    code = """
import resource, numpy as np, attn
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def touched():
    before = faults()
    for _ in range(8):
        np.ones(2**23)
    return faults() - before
first = touched()
attn.keep_freed_memory()
touched()
print(first, touched())
"""
    result = run(code)
    assert result.returncode == 0, result.stderr
    first, kept = map(int, result.stdout.split())
    if platform.libc_ver()[0] == "glibc":
        assert kept < first / 4, (first, kept)


def test_import_touches_neither_numpy_nor_torch():
    result = run("import sys, attn; print(*(name for name in ('numpy', 'torch', 'matplotlib', "
                 "'ml_dtypes') if name in sys.modules))")
    assert result.returncode == 0 and result.stdout.strip() == "", result.stdout + result.stderr


def test_info_and_trace():
    about = attn.info()
    assert (about["target"] in about["targets"] and about["threads"] >= 1
            and about["numerics_version"] == attn.numerics_version)
    result = run("import attn, numpy as np; attn.set_trace(True); x = np.ones((1, 1, 2, 4), np.float32); "
                 "attn.attention(x, x, x); attn.set_trace(False); attn.attention(x, x, x)")
    assert result.stderr.count("attention f32 B=1 Hq=1") == 1, result.stderr


def test_verify_runs_a_case():
    report = attn.verify("attention f32 B=2 Hq=3 Tq=17 Tk=33 D=8 mask=causal(bottom_right)")
    assert report and report.passed and report.cases >= 1 and "digest" in str(report)
    with pytest.raises(ValueError):
        attn.verify("no such case")


def test_warnings_are_not_raised_by_the_package():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in list(modules()):
            importlib.reload(module) if module.__name__ == "attn.plot" else None


FIRST_CALLS = """
import sys, threading
import numpy as np
import attn
sys.setswitchinterval(1e-6)
x, start, done = np.ones((1, 2, 3, 4), np.float32), threading.Barrier(8), []
def work():
    start.wait()
    done.append(attn.attention(x, x, x).shape)
threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert len(done) == 8, "the first calls wait for each other"
"""


def test_the_first_calls_may_come_from_several_threads():
    """They import what they need, and imports hand the GIL on."""
    for _ in range(3):
        subprocess.run([sys.executable, "-c", FIRST_CALLS], check=True, timeout=120, cwd="/")
