# python/attn/_tracing.py: a Python function of a score, called once with symbols, as the library's expression.
"""The arrays that the function looks up (`slope[h]`) are captured variables, globals or defaults of it: while it is traced they stand as
tables, so that both NumPy's and torch's can be indexed with symbols."""

import inspect
import types

from attn import _core

ScoreExpression = _core.ScoreExpression
_SYMBOLS = (
    "the function is called once, with symbols, never with numbers: it is made of + - * / // %, comparisons, abs, attn.exp, attn.tanh, attn.where, "
    "attn.minimum, attn.maximum, and arrays, as attn.ScoreTable(x)[index] where it reaches them by an attribute or a container"
)


def _as_table(name, value):
    """A table for an array of rank 0 to 4, everything else as it is."""
    if hasattr(value, "__dlpack__") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return _core.ScoreTable(value, name if name.isidentifier() else "table")
    return value


def _with_tables(function):
    """The function with arrays replaced by tables, where it can be taken apart."""
    if inspect.ismethod(function):
        return types.MethodType(_with_tables(function.__func__), function.__self__)
    if not isinstance(function, types.FunctionType):
        return function
    code = function.__code__
    names = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    changed = {name: table for name, value in names.items() if (table := _as_table(name, value)) is not value}
    cells = []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells.append(types.CellType(_as_table(name, cell.cell_contents)))
        except ValueError:  # not bound yet
            cells.append(cell)
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ and tuple(
        _as_table(name, value) for name, value in zip(positional[-len(function.__defaults__) :], function.__defaults__, strict=True)
    )
    traced = types.FunctionType(code, {**function.__globals__, **changed}, function.__name__, defaults, tuple(cells) or None)
    traced.__kwdefaults__ = function.__kwdefaults__ and {name: _as_table(name, value) for name, value in function.__kwdefaults__.items()}
    return traced


def trace(function, tables=None):
    """The expression of a function of (s, b, h, i, j), or of a text with tables by name; one that is an expression already, as such."""
    if isinstance(function, ScoreExpression):
        return function
    if isinstance(function, str):
        return _core._parse_expression(function, tables)
    if not callable(function):
        raise TypeError(f"ScoreExpression: a {type(function).__name__} is given; a function of (s, b, h, i, j) or a text is needed")
    try:
        result = _with_tables(function)(*_core._symbols())
    except (TypeError, IndexError, AttributeError) as error:
        if str(error).startswith("ScoreExpression"):
            raise
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise TypeError(f"ScoreExpression: {first}; {_SYMBOLS}") from error
    return _core._operand(result)
