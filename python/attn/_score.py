# python/attn/_score.py: defines the tables and functions from which score functions are written.
"""Each function calls the extension. If torch traces or transforms a call, attn.torch records the score function
instead (attn.torch._score_program)."""

from typing import Any

from attn import _core

by_torch: Any = None  # attn.torch._score_program, once it is imported


def _traced(*values: Any) -> Any:
    """Returns attn.torch._score_program if the values belong to a function that it is tracing, else None."""
    if by_torch is None:
        for x in values:
            if hasattr(x, "__torch_function__"):
                import attn.torch  # noqa: F401
    return by_torch if by_torch is not None and by_torch.traced(*values) else None


def _applied(name: str, *values: Any) -> Any:
    by = _traced(*values)
    return getattr(_core, name)(*values) if by is None else by.made(name, *values)


class ScoreTable(_core.ScoreTable):
    __doc__ = _core.ScoreTable.__doc__
    __module__ = "attn"

    def __new__(cls, values: Any, name: str | None = None) -> Any:
        by = _traced(values)
        return super().__new__(cls) if by is None else by.Table(values)

    def __init__(self, values: Any, name: str | None = None) -> None:
        super().__init__(values, name)
        self._array = values.__reduce__()[1][0] if isinstance(values, _core.ScoreTable) else values

    def __getitem__(self, index: Any) -> Any:
        by = _traced(self._array, *(index if isinstance(index, tuple) else (index,)))
        return super().__getitem__(index) if by is None else by.Table(self._array)[index]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self._array.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return ScoreTable, (self._array, self.name)


def where(condition: Any, a: Any, b: Any) -> Any:
    """For score functions: a where the condition is true, else b."""
    return _applied("where", condition, a, b)


def exp(x: Any) -> Any:
    """For score functions: e to the power of x."""
    return _applied("exp", x)


def tanh(x: Any) -> Any:
    """For score functions: the hyperbolic tangent of x."""
    return _applied("tanh", x)


def minimum(a: Any, b: Any) -> Any:
    """For score functions: the smaller of a and b."""
    return _applied("minimum", a, b)


def maximum(a: Any, b: Any) -> Any:
    """For score functions: the larger of a and b."""
    return _applied("maximum", a, b)
