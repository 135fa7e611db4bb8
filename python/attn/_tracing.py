# python/attn/_tracing.py: turns a Python score function into the library's expression, by calling it once with symbols.
"""A score function may index arrays (`slope[h]`): its captured variables, globals or defaults. While the function is
traced, tables replace these arrays, so that symbols can index NumPy's and torch's arrays alike."""

import inspect
import itertools
import linecache
import os
import re
import types

from attn import _core
from attn._score import ScoreTable

ScoreExpression = _core.ScoreExpression
_SYMBOLS = (
    "the function is called once, with symbols, never with numbers: it is made of + - * / // %, comparisons, abs, "
    "attn.exp, attn.tanh, attn.where, "
    "attn.minimum, attn.maximum, and arrays, "
    "as attn.ScoreTable(x)[index] where it reaches them by an attribute or a container"
)

# What to write instead of functions, methods and operators that accept no symbols; used in error messages.
_INSTEAD = {
    "where": "attn.where(condition, a, b)",
    "exp": "attn.exp(x)",
    "tanh": "attn.tanh(x)",
    "sigmoid": "1 / (1 + attn.exp(-x))",
    **dict.fromkeys(("abs", "absolute", "fabs"), "abs(x)"),
    **dict.fromkeys(("maximum", "max", "fmax", "amax"), "attn.maximum(a, b)"),
    **dict.fromkeys(("minimum", "min", "fmin", "amin"), "attn.minimum(a, b)"),
    **dict.fromkeys(("clamp", "clip"), "attn.minimum(attn.maximum(x, least), most)"),
    "relu": "attn.maximum(x, 0)",
    "logical_and": "a & b",
    "logical_or": "a | b",
    "logical_not": "~a",
    **dict.fromkeys(("pow", "square", "float_power"), "x * x, or attn.exp(x * math.log(a)) for a ** x"),
    **dict.fromkeys(("floor_divide", "divmod", "rshift"), "a // b"),
    **dict.fromkeys(("remainder", "fmod"), "a % b"),
    "xor": "(a | b) & ~(a & b)",
    **dict.fromkeys(("float", "int", "to", "long", "double", "type"),
                    "the symbol alone: whole numbers become numbers by themselves"),
}
_OPERATORS = {"**": "pow", "^": "xor", ">>": "rshift"}
_OWN = os.path.dirname(__file__) + os.sep


def _as_table(name, value):
    """Returns a table for an array (ScoreTable refuses a rank above 4), everything else unchanged."""
    if hasattr(value, "__dlpack__") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return ScoreTable(value, name if name.isidentifier() else "table")
    return value


def _with_tables(function, as_table):
    """Returns the function with its arrays replaced by tables, if its parts can be read."""
    if inspect.ismethod(function):
        return types.MethodType(_with_tables(function.__func__, as_table), function.__self__)
    if not isinstance(function, types.FunctionType):
        return function
    code = function.__code__
    names = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    changed = {name: table for name, value in names.items() if (table := as_table(name, value)) is not value}
    cells = []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells.append(types.CellType(as_table(name, cell.cell_contents)))
        except ValueError:  # a variable without a value yet
            cells.append(cell)
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ and tuple(
        as_table(name, value)
        for name, value in zip(positional[-len(function.__defaults__) :], function.__defaults__, strict=True)
    )
    traced = types.FunctionType(code, {**function.__globals__, **changed}, function.__name__, defaults,
                                tuple(cells) or None)
    traced.__kwdefaults__ = function.__kwdefaults__ and {name: as_table(name, value)
                                                         for name, value in function.__kwdefaults__.items()}
    return traced


def _written(error):
    """Returns the source text of the expression that raised; "" if it is unknown."""
    last = step = error.__traceback__
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(_OWN):
            last = step
        step = step.tb_next
    code = last.tb_frame.f_code
    # the position is unknown before Python 3.11, and if the arguments do not fit the function
    if not hasattr(code, "co_positions") or code.co_filename.startswith(_OWN):
        return ""
    line, end_line, begin, end = next(itertools.islice(code.co_positions(), last.tb_lasti // 2, None), (None,) * 4)
    if line is None or line != end_line or begin is None or end is None:
        return ""
    return linecache.getline(code.co_filename, line).encode()[begin:end].decode(errors="replace")


def _told(error):
    """Returns the error text: what the function wrote, and what to write instead."""
    first, written = next(iter(str(error).splitlines()), type(error).__name__), _written(error)
    if "ScoreTable" in first and "indices" not in first:
        return (f"{written or first} takes no table, which an array is that the function names; "
                "only look it up, table[index], and compute with it outside")
    found = (re.search(r"has no attribute '(\w+)'", first) or re.match(r"[\w.]*?(\w+)\(", written)
             or re.match(r"[\w.]*?(\w+)\(\)", first))
    operator = re.search(r"unsupported operand type\(s\) for (\S+?):? ", first)
    name = _OPERATORS.get(operator[1], "") if operator else found[1] if found else ""
    if name in _INSTEAD:
        return f"{written or name} takes no symbol; write {_INSTEAD[name]}"
    return f"{written + ': ' if written else ''}{first}; {_SYMBOLS}"


def called(function, symbols, as_table):
    """Calls the function with symbols, and with tables in place of its arrays."""
    try:
        return _with_tables(function, as_table)(*symbols)
    except (TypeError, IndexError, AttributeError) as error:
        if str(error).startswith("ScoreExpression"):
            raise
        raise TypeError(f"ScoreExpression: {_told(error)}") from error


def trace(function, tables=None):
    """Returns the expression of a function of (s, b, h, i, j), or of a text with tables by name;
    returns an expression unchanged."""
    if isinstance(function, ScoreExpression):
        return function
    if isinstance(function, str):
        return _core._parse_expression(function, tables)
    if not callable(function):
        raise TypeError(f"ScoreExpression: a {type(function).__name__} is given; "
                        "a function of (s, b, h, i, j) or a text is needed")
    return _core._operand(called(function, _core._symbols(), _as_table))
