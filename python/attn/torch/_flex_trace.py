# python/attn/torch/_flex_trace.py: traces score_mod and mask_mod of flex_attention, which are written with torch's
# functions, into attn's score expressions.
"""The function is called once with symbols. torch's functions, tensor methods and the indexing of tensors by symbols
become the operations of attn.ScoreExpression. An operation that expressions do not have raises Untraceable."""

import math
import operator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import attn
from attn.torch._flex_symbols import (Partial, Symbol, Untraceable, constant, cover_of, cover_of_both, cover_of_either,
                                      cover_of_not, lookup, reading, symbol)


def _number(x: Symbol) -> Any:
    """The operand of an arithmetic operation: a condition counts as 0 and 1."""
    if not x.condition:
        return x.value
    return int(x.value) if isinstance(x.value, bool) else attn.where(x.value, 1, 0)


def _line(of: Any, a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    if of in (operator.add, operator.sub):
        return a.plus(b, 1 if of is operator.add else -1)
    if of is operator.mul and (a.row, a.key) == (0, 0):
        return b.times(a.rest)
    return a.times(b.rest) if of is operator.mul and (b.row, b.key) == (0, 0) else None


def _arithmetic(of: Any) -> Any:
    def apply(a: Any, b: Any) -> Symbol:
        a, b = symbol(a), symbol(b)
        whole = (a.whole or a.condition) and (b.whole or b.condition) and of is not operator.truediv
        return Symbol(of(_number(a), _number(b)), whole=whole, line=_line(of, a.line, b.line))

    return apply


def _division(of: Any) -> Any:
    """// and %, which expressions have for whole numbers."""
    def apply(a: Any, b: Any, rounding_mode: Any = None) -> Symbol:
        a, b = symbol(a), symbol(b)
        if not (a.whole and b.whole):
            raise Untraceable("// or % of numbers that are not whole")
        return Symbol(of(a.value, b.value), whole=True)

    return apply


def _divided(a: Any, b: Any, rounding_mode: Any = None) -> Symbol:
    if rounding_mode is None:
        return _arithmetic(operator.truediv)(a, b)
    if rounding_mode == "floor":
        return _division(operator.floordiv)(a, b)
    raise Untraceable(f"div with rounding_mode={rounding_mode!r}")


def _comparison(of: Any) -> Any:
    def apply(a: Any, b: Any) -> Symbol:
        a, b = symbol(a), symbol(b)
        x, y = _number(a), _number(b)
        if isinstance(x, (int, float)) and isinstance(y, (int, float)):
            return constant(of(x, y))
        return Symbol(of(x, y), condition=True, cover=cover_of(of.__name__, a, b))

    return apply


def _condition(x: Any) -> Symbol:
    x = symbol(x)
    return x if x.condition else _comparison(operator.ne)(x, 0)


def _logical(of: Any, bits: bool) -> Any:
    cover = cover_of_both if of is operator.and_ else cover_of_either

    def apply(a: Any, b: Any) -> Symbol:
        if bits and not (symbol(a).condition and symbol(b).condition):
            raise Untraceable("& or | of whole numbers")
        a, b = _condition(a), _condition(b)
        for known, other in ((a, b), (b, a)):
            if isinstance(known.value, bool):
                return other if known.value is (of is operator.and_) else known
        return Symbol(of(a.value, b.value), condition=True, cover=cover(a.cover, b.cover))

    return apply


def _not(x: Any) -> Symbol:
    x = _condition(x)
    if isinstance(x.value, bool):
        return constant(not x.value)
    return Symbol(~x.value, condition=True, cover=cover_of_not(x.cover))


def _invert(x: Any) -> Symbol:
    if not symbol(x).condition:
        raise Untraceable("~ of a whole number")
    return _not(x)


def _differ(a: Any, b: Any, bits: bool = False) -> Symbol:
    if bits and not (symbol(a).condition and symbol(b).condition):
        raise Untraceable("bitwise_xor of whole numbers")
    both, either = _logical(operator.and_, False)(a, b), _logical(operator.or_, False)(a, b)
    return _logical(operator.and_, False)(either, _not(both))


def _where(condition: Any, a: Any, b: Any) -> Symbol:
    c, a, b = _condition(condition), symbol(a), symbol(b)
    if isinstance(c.value, bool):
        return a if c.value else b
    if a.condition and b.condition:
        both, either = _logical(operator.and_, False), _logical(operator.or_, False)
        return either(both(c, a), both(_not(c), b))
    return Symbol(attn.where(c.value, _number(a), _number(b)),
                  whole=(a.whole or a.condition) and (b.whole or b.condition))


def _masked_fill(x: Any, condition: Any, value: Any) -> Symbol:
    return _where(condition, value, x)


def _extreme(of: Any) -> Any:
    def apply(a: Any, b: Any = None) -> Symbol:
        a, b = symbol(a), symbol(b)
        return Symbol(of(_number(a), _number(b)), whole=a.whole and b.whole)

    return apply


def _clamped(x: Any, min: Any = None, max: Any = None) -> Symbol:  # noqa: A002: torch's names
    """At a bound the gradient of a number goes to x, as in torch; minimum and maximum keep an index in its range."""
    x = symbol(x)
    for bound, beyond, extreme in ((min, operator.lt, attn.maximum), (max, operator.gt, attn.minimum)):
        if bound is not None:
            x = _extreme(extreme)(x, bound) if x.whole else _where(_comparison(beyond)(x, bound), bound, x)
    return x


def _relu(x: Any) -> Symbol:
    return _where(_comparison(operator.gt)(x, 0), x, 0)


def real(x: Any) -> Any:
    """The expression of a symbol or a number; a condition counts as 0 and 1."""
    return _number(symbol(x))


def _abs(x: Any) -> Symbol:
    x = symbol(x)
    return Symbol(abs(_number(x)), whole=x.whole)


def _negative(x: Any) -> Symbol:
    x = symbol(x)
    return Symbol(-_number(x), whole=x.whole, line=None if x.line is None else x.line.times(-1))


def _square(x: Any) -> Symbol:
    return _arithmetic(operator.mul)(x, x)


def _power(a: Any, b: Any) -> Symbol:
    if isinstance(b, (Symbol, torch.Tensor)):
        if isinstance(a, int) and symbol(b).whole:
            raise Untraceable("a whole power, which torch computes in whole numbers")
        if isinstance(a, (int, float)) and a > 0:
            return Symbol(attn.exp(real(b) * math.log(a)))
        raise Untraceable("a power whose exponent is traced")
    if b == 2:
        return _square(a)
    if b == 3:
        return _arithmetic(operator.mul)(_square(a), a)
    if b == -1 and not symbol(a).whole:
        return _divided(1.0, a)
    raise Untraceable(f"a power with exponent {b}")


def _converted(x: Any, *kinds: Any, **_: Any) -> Symbol:
    """to(dtype): a whole number or condition becomes a number, never the other way round."""
    x = symbol(x)
    for kind in kinds:
        if isinstance(kind, Symbol):
            kind = kind.dtype
        if isinstance(kind, torch.dtype):
            if kind is torch.bool:
                return _condition(x)
            if kind.is_floating_point and kind not in (torch.float32, torch.float64) and not (x.whole or x.condition):
                raise Untraceable(f"a conversion to {kind}")
            if not kind.is_floating_point and not (x.whole or x.condition):
                raise Untraceable(f"a conversion to {kind}")
            if kind.is_floating_point:
                return Symbol(_number(x))
            return x if x.whole else Symbol(_number(x), whole=True)
    return x


def _to(x: Any, *args: Any, dtype: Any = None, **_: Any) -> Symbol:
    return _converted(x, *args, *(() if dtype is None else (dtype,)))


def _kind(dtype: torch.dtype) -> Any:
    return lambda x, **_: _converted(x, dtype)


def _ones(value: Any) -> Any:
    """new_ones(()), ones_like: a constant of the symbol's kind."""
    def apply(x: Any, *args: Any, dtype: Any = None, size: Any = (), **_: Any) -> Symbol:
        size = args[0] if args else size
        dtype = symbol(x).dtype if dtype is None else dtype
        if not isinstance(size, (tuple, list, torch.Size)) or len(size):
            raise Untraceable("a new tensor with dims")
        return symbol(bool(value) if dtype is torch.bool else float(value) if dtype.is_floating_point else value)

    return apply


def _same(x: Any, **_: Any) -> Symbol:
    return symbol(x)


def _reversed(of: Any) -> Any:
    return lambda a, b: of(b, a)


_ADD, _SUB, _MUL = (_arithmetic(x) for x in (operator.add, operator.sub, operator.mul))
_FLOOR, _MOD = _division(operator.floordiv), _division(operator.mod)


def _with_alpha(of: Any) -> Any:
    return lambda a, b, alpha=1: of(a, b if alpha == 1 else _MUL(b, alpha))


_BINARY = {"add": _with_alpha(_ADD), "sub": _with_alpha(_SUB), "mul": _MUL, "truediv": _divided, "floordiv": _FLOOR,
           "mod": _MOD, "pow": _power, "and": _logical(operator.and_, True), "or": _logical(operator.or_, True),
           "xor": lambda a, b: _differ(a, b, bits=True)}
_FUNCTIONS = {
    **_BINARY,
    **{f"__{name}__": of for name, of in _BINARY.items()},
    **{f"__r{name}__": _reversed(of) for name, of in _BINARY.items()},
    **{name: _comparison(getattr(operator, name)) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{f"__{name}__": _comparison(getattr(operator, name)) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "less": _comparison(operator.lt), "less_equal": _comparison(operator.le), "greater": _comparison(operator.gt),
    "greater_equal": _comparison(operator.ge), "not_equal": _comparison(operator.ne),
    "subtract": _with_alpha(_SUB), "rsub": _with_alpha(_reversed(_SUB)), "multiply": _MUL,
    "div": _divided, "divide": _divided, "true_divide": _divided, "__rdiv__": _reversed(_divided),
    "floor_divide": _FLOOR, "remainder": _MOD, "logical_and": _logical(operator.and_, False),
    "logical_or": _logical(operator.or_, False), "bitwise_and": _BINARY["and"], "bitwise_or": _BINARY["or"],
    "bitwise_xor": _BINARY["xor"],
    "logical_not": _not, "bitwise_not": _invert, "invert": _invert, "__invert__": _invert, "logical_xor": _differ,
    "where": _where, "masked_fill": _masked_fill, "minimum": _extreme(attn.minimum), "min": _extreme(attn.minimum),
    "maximum": _extreme(attn.maximum), "max": _extreme(attn.maximum), "fmin": _extreme(attn.minimum),
    "fmax": _extreme(attn.maximum), "clamp": _clamped, "clip": _clamped,
    "clamp_min": lambda x, min: _clamped(x, min), "clamp_max": lambda x, max: _clamped(x, None, max),
    "relu": _relu, "abs": _abs, "absolute": _abs, "__abs__": _abs, "neg": _negative,
    "negative": _negative, "__neg__": _negative, "__pos__": _same, "square": _square,
    "exp": lambda x: Symbol(attn.exp(real(x))), "tanh": lambda x: Symbol(attn.tanh(real(x))),
    "exp2": lambda x: Symbol(attn.exp(real(x) * math.log(2))),
    "sigmoid": lambda x: Symbol(1 / (1 + attn.exp(-real(x)))),
    "to": _to, "type_as": _converted, "float": _kind(torch.float32), "double": _kind(torch.float64),
    "int": _kind(torch.int32), "long": _kind(torch.int64), "bool": _kind(torch.bool),
    "new_ones": _ones(1), "new_zeros": _ones(0), "ones_like": _ones(1), "zeros_like": _ones(0),
    "clone": _same, "detach": _same, "contiguous": _same, "dim": lambda x: 0,
}  # fmt: skip


def _apply(name: str, args: Any, kwargs: Any) -> Any:
    if name in ("__getitem__", "getitem"):
        return lookup(*args)
    function = _FUNCTIONS.get(name)
    if function is None:
        raise Untraceable(name)
    try:
        return function(*args, **kwargs)
    except (TypeError, OverflowError) as error:
        raise Untraceable(f"{name} ({next(iter(str(error).splitlines()), '')})") from error


def _operator_of(name: str) -> Any:
    return lambda self, *others: _apply(name, (self, *others), {})


for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"):
    setattr(Symbol, f"__{_name}__", _operator_of(f"__{_name}__"))
# the last ones are no operations of expressions, and say so
for _name in (*_BINARY, "lshift", "rshift", "matmul", "divmod"):
    setattr(Symbol, f"__{_name}__", _operator_of(f"__{_name}__"))
    setattr(Symbol, f"__r{_name}__", _operator_of(f"__r{_name}__"))


class _Indexing(TorchFunctionMode):
    """Handles what torch's own methods would do with symbols: a tensor indexed by them."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for x in args:
            for y in x if isinstance(x, (tuple, list)) else (x,):
                if isinstance(y, (Symbol, Partial)):
                    return _apply(function.__name__, args, kwargs or {})
        return function(*args, **(kwargs or {}))


Symbol.apply = staticmethod(_apply)


def traced(function: Any, *symbols: Symbol) -> Symbol:
    """Calls the function with symbols; reading.tensors are then the tensors that it indexed. Raises Untraceable."""
    reading.tensors = []
    with _Indexing():
        found = function(*symbols)
    if not isinstance(found, (Symbol, Partial, torch.Tensor, bool)):
        shown = "None" if found is None else f"a {type(found).__name__}"
        raise TypeError(f"flex_attention: score_mod or mask_mod returns {shown}; a tensor is needed")
    return symbol(found)
