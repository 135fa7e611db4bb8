# python/tests/wrong_calls.py: everything that the package shows, called with whatever comes:
# python wrong_calls.py SEED FIRST COUNT.
"""Each call is drawn from the seed and its number, which stands in the file PLACE names in the environment while it
runs, so that a crash can be repeated alone."""

import faulthandler
import functools
import importlib
import inspect
import os
import re
import resource
import sys
import tempfile
import unicodedata
from typing import NamedTuple

import numpy as np
import text_encoders

import attn

MODULES = ["attn", "attn.torch", "attn.torch.functional", "attn.plot", "attn.integrations.transformers",
           "attn.integrations.flash_attn", "attn.integrations.onnx"]
LONGEST = 1100  # characters of a text
X = np.zeros((2, 3, 4, 8), np.float32)
# Every token ends a text, so that a wrong number of tokens takes no time.
CONFIG = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_layer": 1, "n_head": 1, "n_embd": 8,
          "eos_token_id": list(range(256))}
PARTS = ["ScoreExpression", "ScoreTable", "Mask", "Bias", "Score.additive"]  # which a call makes of its arguments
# Subclasses of torch's modules, which torch constructs.
TORCH_MODULES = ["MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer",
                 "TransformerEncoder", "TransformerEncoderLayer"]
# Something to call the methods of.
NUMBERS = text_encoders.ENCODERS.parent / "numbers"
OBJECTS = {
    "AttnBackend": lambda: sys.modules["attn.integrations.onnx"].AttnBackend,
    "Bias": lambda: attn.Bias.alibi(3),
    "RelativeIndex": lambda: attn.RelativeIndex.distance(2, 3),
    "Chat": lambda: attn.Chat(small(), format={"user_begin": "Q", "answer_begin": "A"}),
    "EncoderDecoder": lambda: attn.EncoderDecoder.load(NUMBERS),
    "ExplainStep": lambda: attn.explain("a b c")["weights"],
    "Explanation": lambda: attn.explain(["a b", "c"]),
    "GeneratedText": lambda: small().generate([1]),
    "KvCache": lambda: attn.KvCache(1, 4, 2),
    "KvSequence": lambda: attn.KvCache(1, 4, 2).create(),
    "LanguageModel": lambda: small(),
    "Mask": lambda: attn.Mask.causal() & attn.Mask.attend(np.ones((4, 4), bool)),
    "ModelCache": lambda: attn.ModelCache(small()),
    "MultiheadAttention": lambda: sys.modules["attn.torch"].MultiheadAttention(8, 2, batch_first=True),
    "Plan": lambda: attn.attention(X, X, X, return_plan=True)[1],
    "Transformer": lambda: transformer(),
    "TransformerDecoder": lambda: transformer().decoder,
    "TransformerDecoderLayer": lambda: transformer().decoder.layers[0],
    "TransformerEncoder": lambda: transformer().encoder,
    "TransformerEncoderLayer": lambda: transformer().encoder.layers[0],
    "Score": lambda: attn.Score.general(np.zeros((8, 8), np.float32)),
    "ScoreExpression": lambda: attn.ScoreExpression("s * 2"),
    "ScoreTable": lambda: attn.ScoreTable(np.zeros(3, np.float32)),
    "TextStream": lambda: small().stream("abc"),
    "TextEncoder": lambda: encoder(),
    "Tokenizer": lambda: small().tokenizer,
    "TranslatedText": lambda: attn.EncoderDecoder.load(NUMBERS).generate("one"),
    "VerifyReport": lambda: attn.verify("attention f32 Tq=2"),
    "Weights": lambda: attn.Weights.top_k(2),
}
METHODS = {"ScoreTable": ["__getitem__"], "Explanation": ["__getitem__", "__contains__"],
           **dict.fromkeys(TORCH_MODULES, ["forward"]), "AttnBackend": ["run_model"],
           "LanguageModel": ["logits", "log_probabilities", "save"]}
# What errors may name too: the function that several share, and functions of the caller that do not take what they get.
ALSO = dict.fromkeys(["LanguageModel", "Chat"], ["generate", "ModelCache", "int()", "len()", "Hostile()", "Mask",
                                                 "<lambda>()"])
ALSO["gated_delta_rule"] = ["linear_attention"]
# Arguments of right calls, where they are no arrays.
RIGHT = {
    "LanguageModel": (CONFIG,), "LanguageModel.generate": ([1, 2],), "LanguageModel.stream": ("abc",),
    "LanguageModel.logits": ([1, 2],), "LanguageModel.log_probabilities": ([1, 2], [2, 3]),
    "LanguageModel.save": ("saved",), "LanguageModel.load": ("saved",), "Chat.say": ("Hi",),
    "Tokenizer.train": ("a b",), "Tokenizer.load": ("saved",), "Tokenizer.save": ("saved",), "Tokenizer.encode": ("a",),
    "Tokenizer.decode": ([1, 2],), "Tokenizer.bytes": (1,), "Tokenizer.find": ("a",), "ModelCache.truncate": (0, 0),
    "ModelCache.length": (0,), "ModelCache.reorder": ([0],), "TextEncoder.load": (text_encoders.ENCODERS / "bert",),
    "TextEncoder.embed": (["a b", "c"],), "TextEncoder.scores": ([("a b", "c")],),
    "EncoderDecoder.load": (NUMBERS,), "EncoderDecoder.generate": ("one",), "EncoderDecoder.encode": ("one",),
    "EncoderDecoder.logits": ("one", [2]), "EncoderDecoder.log_probabilities": ("one", [2]),
    "EncoderDecoder.encode_ids": ("one",), "EncoderDecoder.decode": ([1],),
}  # fmt: skip


def node():
    import onnx

    return onnx.helper.make_node("Attention", ["q", "k", "v"], ["y"])


def model():
    import onnx

    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, X.shape) for name in "qkvy"]
    return onnx.helper.make_model(onnx.helper.make_graph([node()], "attention", values[:3], values[3:]),
                                  opset_imports=[onnx.helper.make_opsetid("", 24)])


@functools.cache
def transformer():
    return sys.modules["attn.torch"].Transformer(8, 2, 1, 1, 8, batch_first=True)


def small():
    return attn.LanguageModel(CONFIG, seed=1, tokenizer=attn.Tokenizer.train("a b", "bpe", 256))


@functools.cache
def encoder():
    with tempfile.TemporaryDirectory() as folder:
        return attn.TextEncoder.load(text_encoders.write(folder, "bert"))


class Hostile:
    """Answers everything wrongly."""

    shape = ndim = dtype = "no"

    def __dlpack__(self, **options):
        return attn.Mask.attend(self)

    def __index__(self):
        raise RuntimeError("no index")

    def __float__(self):
        raise RuntimeError("no float")

    def __repr__(self):
        return "\x1b[31m\n" * 1000


def names_of(function):
    """The names of the parameters, as the function or the extension tells them."""
    if hasattr(function, "__nb_signature__"):
        return [name for name in re.findall(r"(\w+):", function.__nb_signature__[0][0]) if name != "self"]
    try:
        return [x.name for x in inspect.signature(function).parameters.values()
                if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
    except (TypeError, ValueError):
        return []


class Target(NamedTuple):
    """What is called: names that an error may tell, the function, names of its parameters,
    arguments that it may take."""

    names: list
    call: object
    parameters: list
    good: tuple = (X, X, X)


def arguments_for(path, name):
    """The first arguments of a right call."""
    if path == "attn.integrations.onnx" and name not in ("attention", "flex_attention", "rotary_embedding"):
        return ("CPU",) if name == "supports_device" else (model(), [X, X, X])
    if not path.startswith(("attn.torch", "attn.integrations.transformers", "attn.integrations.flash_attn")):
        return X, X, X
    import torch

    x = torch.zeros(2, 3, 4, 8)
    return (torch.nn.Identity(), x, x, x, None) if "transformers" in path else (x, x, x)


def targets():
    """A Target for each function, class and method."""
    found = []
    for path in MODULES:
        try:
            module = importlib.import_module(path)
        except ImportError:
            continue
        public = getattr(module, "__all__", None) or [name for name, x in vars(module).items()
                                                      if inspect.isfunction(x) and x.__module__ == path]
        for name in public:
            x = getattr(module, name)
            if not callable(x) or name == "CacheFull":
                continue
            good, own = arguments_for(path, name), ["attn:"] if "integrations" in path else []
            if path == "attn.integrations.onnx":
                own += ["CausalConvWithState", "FlexAttention", "LinearAttention", "RotaryEmbedding"]
            if name == "attention" and path == "attn":
                found += [Target([name, *PARTS], x, [*attn._core.attention_options, "return_plan"])] * 5
            if not inspect.isclass(x):
                call = x if name != "patch" else lambda *given, patch=x, **options: patch(*given, **options).undo()
                options = list(attn._core.attention_options) * (name in ("additive_attention", "attention_cached"))
                found.append(Target([name, *own, *ALSO.get(name, []), *PARTS * (path == "attn")], call,
                                    names_of(x) + options, good))
                continue
            own = own + ALSO.get(name, [])
            if name not in (*TORCH_MODULES, "Explanation", "AttnBackend"):
                found.append(Target([name, *own], x, names_of(x.__init__), RIGHT.get(name, good)))
            one = OBJECTS[name]()  # a class without an example: add it
            methods = METHODS.get(name, []) + [method for method in vars(x)
                                               if not method.startswith("_") and name not in TORCH_MODULES]
            calls = [(method, call) for method in methods if callable(call := getattr(one, method))]
            found += [Target([name, method, *own, *["ScoreExpression"] * (name == "ScoreTable")], call, names_of(call),
                             RIGHT.get(f"{name}.{method}", good)) for method, call in calls]
    expression = attn.ScoreExpression("s")
    number = lambda x: 1 if isinstance(x, (str, bytes, bytearray)) else x  # noqa: E731: of a text it is Python's own %
    operators = (lambda x=None: expression + x, lambda x=None: number(x) % expression,
                 lambda x=None: attn.Mask.all() & x, lambda x=None: attn.Bias() + x, lambda x=None: expression < x)
    found += [Target(["ScoreExpression", "operand", "Mask", "Bias", "ScoreTable", "'<'", "lambda"], f, ["x"])
              for f in operators]
    return found


def values(random):
    shape = tuple(int(n) for n in random.integers(0, 5, size=int(random.integers(0, 6))))
    dtype = random.choice(["float32", "float64", "float16", "bool", "int64", "int32", "uint8", "int8", "uint64",
                           "complex64", ">f4", "S3", "O"])
    some = [
        None, True, False, 0, 1, 2, 7, -1, -7, -(2**31), 2**31, 2**40, 2**63, -(2**70), 10**400, 0.0, 0.5, -3.5, 1e300,
        float("nan"), float("inf"), -float("inf"), 3 + 4j, "", "causal", "full", "dot", "top_left", "float32",
        "top_k(2)", "rows(0, -9)", "window(2, 0)", "zh", "alibi", "causal & (", "\x1b[31mred\x1b[0m", "two\nlines",
        "x" * 100_000, "\u202e\x00", "\ud800", "~" * 900, "(" * 190, b"bytes", bytearray(3), [], [1, 2], [0, 2, 4],
        [2.5], [True], [[1], [2, 3]], ["a", "b"], [None], (), (1, 2), range(4), range(-3, 0), range(2**70), {},
        {"a": 1}, {1: "a"}, set(), frozenset([1]), object(), Hostile(), Hostile, int, len, lambda *given: None,
        Ellipsis, NotImplemented, slice(3), iter([1]), (n for n in [1]), lambda s, b, h, i, j: s * 2, lambda: 1,
        lambda *a: "x" * 10_000, np.float32(3), np.int8(3), np.bool_(True), np.datetime64("2020"), np.array("x"),
        memoryview(b"abcd"), np.zeros(shape, dtype), np.full(shape, np.nan, np.float32),
        np.full(shape, np.inf, np.float64), np.zeros((1,) * 12, np.float32), X, X[..., ::-1], X[:, :, :2], X[0],
        X[0, 0], X.astype(np.float64), np.broadcast_to(np.float32(1), (2, 3, 4, 8)), np.zeros((0, 3, 4, 8), np.float32),
        np.ones((2, 4), np.int64), np.ones((4, 4), bool), np.array([0, 2, 4]), np.array([-1, 2**62]),
        np.rec.array([(1.0, 2)]), np.ma.masked_array(np.zeros(3), mask=True), attn, attn.Mask,
        *(make() for name, make in OBJECTS.items()
          if name not in ("AttnBackend", "VerifyReport", *TORCH_MODULES)), attn.Mask("window(1, 0)"),
          attn.Mask.__new__(attn.Mask), attn.Weights.rows([0, 9]), attn.Bias(),
    ]  # fmt: skip
    if "torch" in sys.modules:
        import torch

        some += [
            torch.zeros(2, 3, 4, 8), torch.zeros(2, 3, 4, 8, requires_grad=True), torch.zeros(shape),
            torch.ones(shape, dtype=torch.int8), torch.zeros(shape, dtype=torch.bfloat16),
            torch.zeros(3, 4).to_sparse(), torch.zeros(shape, device="meta"), torch.zeros(shape, dtype=torch.complex64),
            torch.nested.nested_tensor([torch.zeros(2, 3)]), torch.tensor([0, 2, 4]), torch.float32,
            torch.nn.Linear(2, 2), torch.zeros(2, 4, 8), torch.zeros(2, 4, dtype=torch.bool),
            torch.tensor(0.5, requires_grad=True),
        ]  # fmt: skip
    return some


def call_of(random, all_targets):
    """(names, function, arguments, keywords)"""
    names, function, parameters, right = all_targets[int(random.integers(len(all_targets)))]
    some = values(random)
    pick = lambda: some[int(random.integers(len(some)))]  # noqa: E731
    good = random.random() < 0.5
    arguments = [right[n] if good and n < len(right) else pick()
                 for n in range(int(random.integers(0, len(parameters) + 2)))]
    keywords = {name: pick() for name in parameters[len(arguments) :] if random.random() < 0.2}
    if random.random() < 0.1:
        keywords[["nothing", "is_causal", "mask", "window", "x" * 1000][int(random.integers(5))]] = pick()
    if function is attn.verify and not (arguments and isinstance(arguments[0], str)):
        arguments = ["no such line"]  # without a line all cases of the table
    return names, function, arguments, keywords


def wrong_text(text, names):
    """What is wrong with the text of an error; "" where nothing is."""
    first, *picture = text.split("\n")
    if any(re.search(r"[^■· ]", line.replace("top_left", "").replace("bottom_right", "")) for line in picture):
        return "more than one line"  # a mask without an alignment shows its two pictures
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in first):
        return "control characters"
    if len(text) > LONGEST:
        return f"{len(text)} characters"
    # what they call, and a line of the table
    known = [*names, "heat_map"] if "plot" in names else [*names, "case:"] if "verify" in names else names
    return "" if any(name.lower() in first.lower() for name in known) else "names no function"


def main(seed, first, count):
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    place = open(os.environ.get("PLACE", os.devnull), "w")
    all_targets, refused, called = targets(), 0, set()
    for number in range(first, first + count):
        names, function, arguments, keywords = call_of(np.random.default_rng([seed, number]), all_targets)
        place.seek(0)
        place.write(f"{number:10}")
        place.flush()
        called.add(".".join(names))
        try:
            with np.errstate(all="ignore"):
                function(*arguments, **keywords)
            continue
        except (TypeError, ValueError, OSError, attn.CacheFull) as error:
            told = f"{type(error).__name__}: {ascii(str(error))}"
            wrong = wrong_text(str(error),
                               [*names, type(error).__name__] if isinstance(error, attn.CacheFull) else names)
        except MemoryError:
            wrong = told = ""
        except (IndexError, KeyError) as error:
            wrong, told = "" if names[-1] == "__getitem__" else "another exception", repr(error)
        except Exception as error:  # what an object of the caller raised
            wrong, told = "" if str(error) in ("no index", "no float") else "another exception", ascii(error)
        refused += 1
        if wrong:
            given = ", ".join([*map(type_and_text, arguments),
                               *(f"{name[:20]}={type_and_text(x)}" for name, x in keywords.items())])
            print(f"python wrong_calls.py {seed} {number} 1: {wrong}\n  {'.'.join(names)}({given})\n  {told[:600]}")
    attn.set_trace(False)
    attn.set_num_threads(1)
    assert not attn.attention(X, X, X).any()
    print(f"seed {seed}: {count} calls of {len(called)} functions, {refused} refused")


def type_and_text(x):
    try:
        return f"{type(x).__name__} {ascii(x)[:40]}"
    except Exception as error:  # of what was never constructed
        return f"{type(x).__name__} {error}"[:80]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
