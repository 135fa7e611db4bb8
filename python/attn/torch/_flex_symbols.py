# python/attn/torch/_flex_symbols.py: the values that score_mod and mask_mod of flex_attention get while traced.
"""A symbol holds an expression of attn. An integer that is linear in the row i and the key j also has its coefficients
(Line). A condition also has a mask of attn that covers it (Cover)."""

import threading
from typing import Any, NamedTuple

import torch

import attn
from attn import _core

_WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


reading = threading.local()  # .tensors: what the function that is traced in this thread has indexed


class Untraceable(Exception):
    """Names the operation that has no form as an expression."""


class Line(NamedTuple):
    """A whole number row * i + key * j + rest."""

    row: int
    key: int
    rest: int

    def plus(self, other: "Line", sign: int = 1) -> "Line":
        return Line(*(a + sign * b for a, b in zip(self, other)))

    def times(self, n: int) -> "Line":
        return Line(*(a * n for a in self))


class Cover(NamedTuple):
    """A mask that shows all pairs for which a condition holds; exact: and no other ones."""

    mask: Any
    exact: bool


class Symbol:
    """whole: a whole number. condition: true or false. line: its Line. looked: (tensor, "i" or "j") for tensor[i] or
    tensor[j]. cover: its Cover."""

    __slots__ = ("condition", "cover", "line", "looked", "value", "whole")
    __hash__ = object.__hash__
    shape = torch.Size(())

    def __init__(self, value: Any, whole: bool = False, condition: bool = False, line: Line | None = None,
                 cover: Cover | None = None) -> None:
        self.value, self.whole, self.condition, self.line, self.cover = value, whole, condition, line, cover
        self.looked: Any = None

    @property
    def dtype(self) -> torch.dtype:
        return torch.bool if self.condition else torch.int32 if self.whole else torch.float32

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def __bool__(self) -> bool:
        raise Untraceable("if, and, or, not on a traced value")

    def __index__(self) -> int:
        raise Untraceable("a traced value as a number of Python")

    __int__ = __float__ = __index__

    apply: Any = None  # of _flex_trace: applies an operation by its name

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return Symbol.apply(function.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: Symbol.apply(name, (self, *args), kwargs)


class Partial:
    """A tensor of which some dims are indexed: bias[h], before [i, j]."""

    def __init__(self, tensor: torch.Tensor, index: tuple) -> None:
        self.tensor, self.index = tensor, index

    def __getitem__(self, index: Any) -> Any:
        return lookup(self.tensor, (*self.index, *(index if isinstance(index, tuple) else (index,))))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Untraceable(f"{function.__name__} of a tensor with dims")


def symbol(x: Any) -> Symbol:
    """Reads an operand: a symbol, a number, a tensor without dims."""
    if isinstance(x, Symbol):
        return x
    if isinstance(x, torch.Tensor):
        if x.dim() == 0:
            return lookup(x, ())
        raise Untraceable(f"a tensor of shape {list(x.shape)} as an operand")
    if isinstance(x, bool):
        return constant(x)
    if isinstance(x, int):
        return Symbol(x, whole=True, line=Line(0, 0, x))
    if isinstance(x, float):
        return Symbol(x)
    raise Untraceable(f"an operand of type {type(x).__name__}")


def constant(x: bool) -> Symbol:
    return Symbol(x, condition=True, cover=Cover(attn.Mask.all() if x else attn.Mask.none(), True))


def lookup(tensor: torch.Tensor, index: Any) -> Any:
    """tensor[index] for symbols and numbers; a bool tensor gives a condition."""
    index = index if isinstance(index, tuple) else (index,)
    if tensor.device.type != "cpu":
        raise ValueError(f"flex_attention: a tensor that the function reads is on {tensor.device}; attn computes on "
                         "the CPU")
    if tensor.dim() > 4 or len(index) > tensor.dim():
        raise Untraceable(f"a tensor of shape {list(tensor.shape)} indexed by {len(index)} values")
    if len(index) < tensor.dim():
        return Partial(tensor, index)
    read = [symbol(x) for x in index]
    if not all(x.whole for x in read):
        raise Untraceable("an index that is no whole number")
    places = tuple(x.value for x in read)
    reading.tensors.append(tensor)
    if tensor.dtype is torch.bool:
        return Symbol(_core.ScoreTable(tensor.to(torch.int32))[places] == 1, condition=True)
    if tensor.dtype in _WHOLE:
        found = Symbol(_core.ScoreTable(tensor.long())[places], whole=True)
        if len(read) == 1 and read[0].line in (Line(1, 0, 0), Line(0, 1, 0)):
            found.looked = tensor, "i" if read[0].line.row else "j"
        return found
    if not tensor.is_floating_point():
        raise Untraceable(f"a tensor of {tensor.dtype} that is indexed")
    return Symbol(_core.ScoreTable(tensor)[places])


def symbols() -> tuple[Symbol, ...]:
    """s, b, h, i, j."""
    s, b, h, i, j = _core._symbols()
    return (Symbol(s), Symbol(b, whole=True), Symbol(h, whole=True), Symbol(i, whole=True, line=Line(1, 0, 0)),
            Symbol(j, whole=True, line=Line(0, 1, 0)))


# --- masks of conditions ----------------------------------------------------------------------------------------------


def _at_most(line: Line) -> Any:
    """The mask of the pairs for which line <= 0, or None: a distance of i and j, or a bound of j."""
    window, n = attn.Mask.window, line.rest
    if line[:2] == (1, -1):  # i - j + n <= 0: keys from i + n
        return window(-n, -1, "top_left") if n <= 0 else ~window(-1, n - 1, "top_left")
    if line[:2] == (-1, 1):  # keys up to i - n
        if n > 0:
            return ~window(n - 1, -1, "top_left")
        return attn.Mask.causal("top_left") if n == 0 else window(-1, -n, "top_left")
    if line[:2] == (0, 1):  # keys up to -n
        return attn.Mask.prefix(max(1 - n, 0))
    if line[:2] == (0, -1):  # keys from n
        return ~attn.Mask.prefix(max(n, 0))
    return None


def cover_of(name: str, a: Symbol, b: Symbol) -> Cover | None:
    """The mask of a comparison."""
    if name == "eq" and a.looked and b.looked and a.looked[0] is b.looked[0] and a.looked[1] != b.looked[1]:
        return Cover(attn.Mask.documents(a.looked[0]), True)
    if a.line is None or b.line is None:
        return None
    line = a.line.plus(b.line, -1)
    if name in ("gt", "ge"):
        line = line.times(-1)
    if name in ("lt", "gt"):
        line = Line(line.row, line.key, line.rest + 1)
    if name in ("le", "lt", "ge", "gt"):
        mask = _at_most(line)
    elif name == "eq":
        both = _at_most(line), _at_most(line.times(-1))
        mask = None if None in both else both[0] & both[1]
    else:
        mask = None
    return None if mask is None else Cover(mask, True)


def cover_of_both(a: Cover | None, b: Cover | None) -> Cover | None:
    if a is None or b is None:
        known = a or b
        return None if known is None else Cover(known.mask, False)
    return Cover(a.mask & b.mask, a.exact and b.exact)


def cover_of_either(a: Cover | None, b: Cover | None) -> Cover | None:
    return None if a is None or b is None else Cover(a.mask | b.mask, a.exact and b.exact)


def cover_of_not(a: Cover | None) -> Cover | None:
    return Cover(~a.mask, True) if a is not None and a.exact else None
