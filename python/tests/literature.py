# python/tests/literature.py: mechanisms of the literature, each as a recipe beside its plain form in torch; the page
# docs/literature.md is made of those whose recipe passes.
import dataclasses
import importlib
import inspect
import math
import pathlib
import re
import textwrap
from collections.abc import Callable
from typing import Any

import torch

from error_rule import assert_as_close_as

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "literature.md"
BEGIN, END = "<!-- made by tools/literature -->", "<!-- end -->"
ROWS: list["Row"] = []


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Those of the tests; bench/peers/literature.py has longer ones."""

    B: int = 2
    H: int = 4
    T: int = 24
    D: int = 16


Shape = tuple[int, ...] | Callable[[Sizes], tuple[int, ...]]


@dataclasses.dataclass
class Row:
    """ours: the recipe, whose text the page shows; plain: the same with whole matrices. Their arguments without a
    default are tensors, [B, H, T, D] where shapes says nothing else; those with one are settings, for many tokens
    those of large. A recipe takes its sizes from its tensors."""

    group: str
    name: str
    formula: str
    source: str
    cpp: str
    plain: Callable[..., torch.Tensor]
    picture: Callable[[], str] | None
    large: dict[str, Any]
    shapes: dict[str, Shape]
    ours: Callable[..., torch.Tensor] = None  # type: ignore[assignment]

    @property
    def operands(self) -> list[str]:
        parameters = inspect.signature(self.ours).parameters.values()
        return [one.name for one in parameters if one.default is inspect.Parameter.empty]

    def draw(self, sizes: Sizes, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Random operands; those that are matrices as a model begins with them, so that no softmax has one key
        alone."""
        values = {}
        for name in self.operands:
            shape = self.shapes.get(name, (sizes.B, sizes.H, sizes.T, sizes.D))
            shape = shape(sizes) if callable(shape) else shape
            x = torch.randn(shape, generator=generator)
            values[name] = x / math.sqrt(shape[-1]) if len(shape) in (2, 3) else x
        return values

    @property
    def code(self) -> str:
        lines = inspect.getsource(self.ours).splitlines()
        return "\n".join(lines[next(n for n, line in enumerate(lines) if line.startswith("def ")):])


def row(group: str, name: str, formula: str, source: str, cpp: str, plain: Callable[..., torch.Tensor],
        picture: Any = None, large: dict[str, Any] | None = None, **shapes: Shape) -> Any:
    def add(ours: Any) -> Any:
        ROWS.append(Row(group, name, formula, source, cpp, plain, picture, large or {}, shapes, ours))
        return ours

    return add


def all_rows() -> list[Row]:
    for module in ("scores", "relative", "masks", "chosen", "linear", "models"):
        importlib.import_module(f"literature_{module}")
    return ROWS


# --- plain forms ------------------------------------------------------------------------------------------------------


def scaled(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


def weights_of(scores: torch.Tensor, seen: torch.Tensor | None = None) -> torch.Tensor:
    """The softmax over the keys that are seen; 0 for a row that sees none."""
    if seen is None:
        return scores.softmax(-1)
    if seen.any(-1).all():
        return scores.masked_fill(~seen, -math.inf).softmax(-1)
    return scores.masked_fill(~seen, -1e30).softmax(-1) * seen


def plainly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor | None = None) -> torch.Tensor:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return weights_of(scaled(q, k), seen) @ v


def pairs(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The indices i and j of all pairs of as many rows and keys as q [.., T, D] has."""
    return torch.arange(q.shape[-2])[:, None], torch.arange(q.shape[-2])


# --- the comparison ---------------------------------------------------------------------------------------------------


def results(function: Callable[..., torch.Tensor], values: dict[str, torch.Tensor], dtype: torch.dtype = torch.float32,
            settings: dict[str, Any] | None = None) -> list:
    """The output and the gradients of the operands, None for those that have none."""
    inputs = {name: x.to(dtype).detach().requires_grad_() for name, x in values.items()}
    output = function(**inputs, **(settings or {}))
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(2))
    grads = torch.autograd.grad(output, list(inputs.values()), direction.to(dtype), allow_unused=True)
    return [output.detach(), *grads]


def check(one: Row, sizes: Sizes = Sizes(), **settings: Any) -> None:
    """Output and all gradients by the error rule, against the plain form in float64; AssertionError. Some draws count
    as one tensor, and more of them where the few have failed, because the plain error of a gradient of a few numbers is
    small by chance (docs/numerics.md section 7)."""
    try:
        _check(one, sizes, settings, 4)
    except AssertionError:
        _check(one, sizes, settings, 64)


def _check(one: Row, sizes: Sizes, settings: dict[str, Any], count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    draws = []
    for _ in range(count):
        values = one.draw(sizes, generator)
        draws.append([results(one.ours, values, torch.float32, settings),
                      results(one.plain, values, torch.float32, settings),
                      results(one.plain, values, torch.float64, settings)])
    for n, label in enumerate(("output", *one.operands)):
        kinds = [[draw[kind][n] for draw in draws] for kind in range(3)]
        missing = [[x is None for x in kind] for kind in kinds]
        assert missing[0] == missing[1], (one.name, label)
        if not any(missing[0]):
            assert_as_close_as(*(torch.stack(kind) for kind in kinds), f"{one.name}, {label}")


# --- the page ---------------------------------------------------------------------------------------------------------


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _section(one: Row) -> str:
    text = f"### {one.name}\n\n`{one.formula}` ({one.source})\n\n```python\n{one.code}\n```\n\nC++: `{one.cpp}`\n"
    if one.picture is not None:
        text += f"\n```text\n{one.picture().rstrip()}\n```\n"
    return text


def _program(rows: list[Row], given: str) -> str:
    lines = "".join(f"\n    {one.cpp}," for one in rows)
    end = f'\n  }};\n  std::cout << results.size() << " calls\\n";\n}}\n```\n\n```text\n{len(rows)} calls\n```\n'
    return ("## The calls in C++ as one program\n\n<!-- compile -->\n"
            f"```cpp\n{given}  const std::vector<Tensor> results{{{lines}{end}")


GIVEN = textwrap.dedent("""\
    #include <attn/attn.h>
    #include <iostream>

    using namespace attn;

    int main() {
      const Tensor q = randn({2, 4, 24, 16}), k = randn({2, 4, 24, 16}), v = randn({2, 4, 24, 16});
      const Tensor q_b = randn({2, 4, 24, 16}), k_b = randn({2, 4, 24, 16});
      const Tensor k1 = randn({2, 1, 24, 16}), v1 = randn({2, 1, 24, 16});  // one head, two heads
      const Tensor k2 = randn({2, 2, 24, 16}), v2 = randn({2, 2, 24, 16});
      const Tensor w = randn({16, 16}), a_q = randn({8, 16}), a_k = randn({8, 16}), a = randn({8});
      const Tensor r_near = randn({9, 16}), r_far = randn({4, 47, 16}), u = randn({4, 1, 16}), u_r = randn({4, 1, 16});
      const Tensor r_k = randn({4, 16, 16}), r_q = randn({4, 16, 16}), r_y = randn({7, 16}), r_x = randn({11, 16});
      const Tensor few = randn({2, 4, 6, 16}), one = randn({2, 1, 1, 16}), e = randn({8, 24});
      const Tensor slopes = rand({4}), table = randn({32, 4}), by_distance = randn({4, 47}), logits = zeros({4});
      const Tensor gate = rand({2, 4, 24, 16}), log_n = log(arange(1, 25)).unsqueeze(-1), decay = randn({2, 4, 24});
      const Tensor ids = arange(0, 24, 1, Dtype::i64);        // the document of each token
      const Tensor y = arange(0, 4, 1, Dtype::i64).unsqueeze(1).expand({4, 6}).reshape({24});  // the row of each pixel
      const Tensor x = arange(0, 6, 1, Dtype::i64).unsqueeze(0).expand({4, 6}).reshape({24});  // and its column
      const Tensor global = zeros({1, 24}, Dtype::boolean);   // global tokens
      const Tensor chosen = zeros({1, 4, 24, 3}, Dtype::i64);  // of each row and head: blocks of keys
      const Tensor blocks = zeros({1, 1, 6, 3}, Dtype::i64);   // of each block of rows
      const ScoreTable bias(by_distance, "bias"), c(decay, "c");
    """)


def page() -> str:
    """The generated part of the page. A row whose recipe does not pass raises an AssertionError."""
    rows = all_rows()
    for one in rows:
        check(one)
    groups = list(dict.fromkeys(one.group for one in rows))
    text = "| mechanism | formula | source |\n|---|---|---|\n"
    for one in rows:
        formula = one.formula.replace("|", "\\|")
        text += f"| [{one.name}](#{_anchor(one.name)}) | `{formula}` | {one.source} |\n"
    for group in groups:
        text += f"\n## {group}\n\n" + "\n".join(_section(one) for one in rows if one.group == group)
    return f"{BEGIN}\n{text}\n{_program(rows, GIVEN)}{END}"


NUMBER = re.compile(r"\d+(?= mechanisms| 种机制)")
NAMED_IN = ("README.md", "README.zh.md", "docs/README.md", "CHANGELOG.md")  # the pages that say how many there are


def with_page(text: str, made: str) -> str:
    """The text of the page with the generated part replaced."""
    before, rest = text.split(BEGIN, 1)
    return before + made + rest.split(END, 1)[1]
