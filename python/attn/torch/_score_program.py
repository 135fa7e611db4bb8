# python/attn/torch/_score_program.py: records a score function as lines of text and tensors,
# for calls that torch traces or transforms.
"""A tensor that the function indexes becomes an argument of the operator, with a gradient of its own. The function is
called once, with symbols that torch.compile can trace. Its operations are recorded, one on each line, and the operator
builds the library's expression from the lines."""

import functools
import operator
import sys

import numpy
import torch
from torch.overrides import TorchFunctionMode

from attn import _core, _score
from attn._tracing import called
from attn.torch import _call, _compiler

_LINE, _FIELD = "\n", "\t"
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_UNARY = ("neg", "pos", "invert", "abs")
_FUNCTIONS = ("where", "exp", "tanh", "minimum", "maximum")

# The functions that build the library's expressions, by their name in a line.
_MAKERS = {
    **{name: getattr(operator, name) for name in (*_ARITHMETIC, *_COMPARISONS, *_UNARY)},
    **{name: getattr(_core, name) for name in _FUNCTIONS},
    "table": lambda table, *index: table[index],
}

# torch's names of operators between a tensor and a symbol: (name, whether the operands are swapped).
_OF_TORCH = {
    **{name: (name, False) for name in (*_ARITHMETIC, *_COMPARISONS)},
    **{f"__{name.strip('_')}__": (name, False) for name in (*_ARITHMETIC, *_COMPARISONS)},
    **{f"__r{name.strip('_')}__": (name, True) for name in _ARITHMETIC},
    **{"div": ("truediv", False), "true_divide": ("truediv", False), "__rdiv__": ("truediv", True),
       "rsub": ("sub", True)},
    **{"floor_divide": ("floordiv", False), "remainder": ("mod", False), "bitwise_and": ("and_", False),
       "bitwise_or": ("or_", False)},
}

# --- symbols ----------------------------------------------------------------------------------------------------------


class Symbol:
    """A value of a score function while it is traced: the operation and its operands,
    and the number of its line when that has been written."""

    def __init__(self, name, *operands, place=None):
        self.name, self.operands, self.place = name, operands, place

    def __bool__(self):
        raise TypeError(
            "ScoreExpression: a condition is neither true nor false while it is traced; use attn.where(condition, a, "
            "b) instead of if, and, or, not"
        )

    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return _between(function, args, kwargs)


class Table:
    """An array that the function indexes."""

    __iter__ = None  # without it Python would iterate over indices for ever

    def __init__(self, array):
        self.array = array.array if isinstance(array, Table) else array

    def __getitem__(self, index):
        return _lookup(self.array, index)

    @property
    def shape(self):
        return self.array.shape

    __torch_function__ = Symbol.__torch_function__


Symbol.__name__, Table.__name__ = "ScoreExpression", "ScoreTable"  # error texts then name the library's own classes


def _lookup(array, index):
    index = index if isinstance(index, tuple) else (index,)
    return made("table", torch.as_tensor(array), *index)


def _operand(x):
    """Converts an operand of an operation; returns NotImplemented for an unknown type."""
    if isinstance(x, (Symbol, _core.ScoreExpression)):
        return x
    if isinstance(x, Table):
        x = x.array
    if isinstance(x, (torch.Tensor, numpy.ndarray)):
        return _lookup(x, ()) if x.ndim == 0 else NotImplemented
    if isinstance(x, (bool, str)):
        return NotImplemented
    if isinstance(x, (int, float, torch.SymInt, torch.SymFloat)):
        return x
    if hasattr(x, "__index__"):
        return operator.index(x)
    return float(x) if hasattr(x, "__float__") else NotImplemented


def made(name, *operands):
    """Returns the symbol for the result of an operation; raises a TypeError for an operand of an unknown type."""
    first = operands[:1] if name == "table" else ()
    taken = [*first]
    for x in operands[len(first) :]:
        y = _operand(x)
        if y is NotImplemented:
            shown = "ScoreTable" if isinstance(x, (Table, torch.Tensor, numpy.ndarray)) else type(x).__name__
            raise TypeError(f"{name}: a {shown} is given; an expression or a number is needed (an array: "
                            "attn.ScoreTable(x)[index])")
        taken.append(y)
    return Symbol(name, *taken)


def _operator_of(name, mirrored):
    def apply(self, other):
        if _operand(other) is NotImplemented:
            return NotImplemented
        return made(name, other, self) if mirrored else made(name, self, other)

    return apply


def _unary_of(name):
    def apply(self):
        return made(name, self)

    return apply


for _name in (*_ARITHMETIC, *_COMPARISONS):
    setattr(Symbol, f"__{_name.strip('_')}__", _operator_of(_name, False))
for _name in _ARITHMETIC:
    setattr(Symbol, f"__r{_name.strip('_')}__", _operator_of(_name, True))
for _name in _UNARY:
    setattr(Symbol, f"__{_name}__", _unary_of(_name))
_compiler.symbol = Symbol


def traced(*values):
    """Returns whether one of the values belongs to a score function that is being traced here. A tensor does if the
    call is traced or transformed. While torch compiles a graph, every value does."""
    for x in values:
        if isinstance(x, (Symbol, Table)) or (isinstance(x, torch.Tensor) and not _call.is_direct()):
            return True
    return torch.compiler.is_dynamo_compiling()


_score.by_torch = sys.modules[__name__]


def _between(function, args, kwargs):
    """Implements a torch operation on tensors that was given a symbol too."""
    if not kwargs:
        if function.__name__ in ("__getitem__", "getitem"):
            return _lookup(*args)
        if function.__name__ in _OF_TORCH:
            name, mirrored = _OF_TORCH[function.__name__]
            return made(name, args[1], args[0]) if mirrored else made(name, args[0], args[1])
    raise TypeError(f"{function.__name__}() takes no symbols")


class _Lookups(TorchFunctionMode):
    """Handles the indexing of a tensor with a tuple of symbols. In a graph, torch would call the tensor's own method,
    which does not know symbols."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        for x in args:
            for y in x if isinstance(x, (tuple, list)) else (x,):
                if isinstance(y, (Symbol, Table)):
                    return _between(function, args, kwargs)
        return function(*args, **(kwargs or {}))


# --- lines ------------------------------------------------------------------------------------------------------------


def _as_table(name, x):
    return Table(x) if hasattr(x, "__dlpack__") and hasattr(x, "dtype") and hasattr(x, "shape") else x


def of_function(function, first):
    """Returns (text, tensors) of a function of (s, b, h, i, j);
    the text refers to the tensors by index, counted from `first`."""
    symbols = [Symbol(name, place=n) for n, name in enumerate("sbhij")]
    if torch.compiler.is_dynamo_compiling():
        _compiler.prepare()
        with _Lookups():
            result = made("pos", function(*symbols))
    else:
        result = made("pos", called(function, symbols, _as_table))
    lines, tensors, pending = [], [], [result]
    while pending:
        symbol = pending[-1]
        waiting = [x for x in symbol.operands if isinstance(x, Symbol) and x.place is None]
        if waiting:
            pending.extend(waiting)
            continue
        pending.pop()
        if symbol.place is None:
            lines.append(_FIELD.join([symbol.name, *(_field(x, tensors, first) for x in symbol.operands)]))
            symbol.place = len(symbols) + len(lines) - 1
    return _LINE.join(lines), tensors


def _field(x, tensors, first):
    if isinstance(x, Symbol):
        return f"r{x.place}"
    if isinstance(x, _core.ScoreExpression):
        if not (notation := _notation(x)):
            raise TypeError("ScoreExpression: an expression that looks up arrays was made outside of the function; "
                            "look them up inside of it")
        return f"m{notation}"
    if not isinstance(x, torch.Tensor):
        x = _call.plain_number(x)
        return f"i{x}" if isinstance(x, int) else f"f{x}"
    for n, known in enumerate(tensors):
        if known is x:
            return f"t{first + n}"
    tensors.append(x)
    return f"t{first + len(tensors) - 1}"


def _notation(x):
    """Returns the text of an expression without arrays, else None."""
    return "" if x.arrays else str(x)


_notation._dynamo_marked_constant = True

_READ = {"i": int, "f": float, "m": _core._parse_expression}


def _value(field, values, tables):
    kind, rest = field[0], field[1:]
    return values[int(rest)] if kind == "r" else tables(int(rest)) if kind == "t" else _READ[kind](rest)


def expression(text, tensors):
    """Builds the library's expression from the lines."""
    return _made_of(text, tensors) if "table" in text else _alone(text)


def _made_of(text, tensors):
    values = list(_core._symbols())
    # one table for each tensor, so that the tensor gets one gradient
    tables = functools.cache(lambda n: _core.ScoreTable(tensors[n]))
    for line in text.split(_LINE):
        name, *fields = line.split(_FIELD)
        values.append(_MAKERS[name](*(_value(x, values, tables) for x in fields)))
    return _core._operand(values[-1])


@functools.lru_cache
def _alone(text):
    return _made_of(text, ())
