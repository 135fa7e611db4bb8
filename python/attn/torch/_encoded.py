# python/attn/torch/_encoded.py: encodes a call of attn.attention as tensors and one text, the form that
# torch's operators take, and decodes it.
"""Objects that Python made before the call (a Mask, a Bias, an expression) are put into a table of this process; the
text has their keys. An entry stays for ever if a graph may use it again, else as long as the text. The tensors of a
Bias, a Score or an expression are tensors of the call."""

import functools
import os
import weakref

import torch
from torch import Tensor

from attn import _core
from attn._options import AdditiveWeights
from attn._tracing import trace
from attn.torch import _call, _mutations, _score_program

_OPTIONS = _core.attention_options
_MODS = ("score_mod", "weight_mod")  # expressions
AT = {name: n for n, name in enumerate(_OPTIONS)}
_BETWEEN = "\x1f"
# The version of the texts and of the data that one pass hands to the next. It ends each text, so that cached graphs of
# other versions do not match.
_FORMAT = "3"
_table = weakref.WeakValueDictionary()  # held objects by key
_for_ever = []  # the entries that graphs name: (key, object)


def _constant(function):
    """Does what torch.compiler.assume_constant_result does. That one imports the whole compiler (1.3 s),
    even if nothing is compiled."""
    function._dynamo_marked_constant = True
    return function


class _Held:
    def __init__(self, x):
        self.object = x


class _Texts(str):
    """The texts of a call; it also keeps the objects that they name alive."""

    held = ()


def _hold(x, name):
    """Puts an object into the table; returns (key, held)."""
    if name in _MODS:
        x = trace(x)
    # No other process may use the same key, not even a child of this one: a saved graph must not find another object
    # under it.
    place, held = os.urandom(16).hex(), _Held(x)
    _table[place] = held
    return place, held


def _is_differentiated(array):
    return isinstance(array, Tensor) and (_call.wants_gradient(array) or _call.has_tangent(array))


@_constant
def _tensors_of(x):
    """Returns the tensors of a Bias, a Score or an expression if one requires a gradient or has a tangent:
    they become tensors of the call, with gradients and tangents."""
    found = isinstance(x, (_core.Bias, _core.Score, _core.ScoreExpression)) and any(map(_is_differentiated, x.arrays))
    return tuple(array for array in x.arrays if isinstance(array, Tensor)) if found else ()


def _over(x, tensors):
    """Returns the same Bias, Score or expression with other tensors in place of its own."""
    others = iter(tensors)
    arrays = [next(others) if isinstance(array, Tensor) else None for array in x.arrays]
    if not isinstance(x, _core.ScoreExpression):
        return x.with_arrays(arrays)
    try:
        notation, tables = x.__reduce__()[1]
    except TypeError as error:
        raise TypeError(
            "attention: an expression holds a tensor that wants a gradient or has a tangent, and its text does not "
            "read back, by which torch.compile, torch.func and forward mode see the tensor; "
            "give a function, or each table a name of its own: attn.ScoreTable(x, name)"
        ) from error
    return _core._parse_expression(notation,
                                   {name: own if other is None else other
                                    for (name, own), other in zip(tables.items(), arrays)})


def _notation(x, name):
    """Returns the text of a mask or an expression without arrays, which any process can read; else None."""
    try:
        if name == "mask" and isinstance(x, _core.Mask) and not x.arrays:
            return f"s{x.__reduce__()[1][0]}"
        if name in _MODS and not (x := trace(x)).arrays:
            return f"m{x.__reduce__()[1][0]}"
    except TypeError:  # the text of x cannot be parsed back
        pass
    return None


@_constant
def _text_for_ever(x, name):
    """Returns the text of x, or the key under which x stays in the table for ever. For an error, returns "!" or "?"
    followed by the message. Under torch.compile this runs once, while the call is traced."""
    try:
        text = _notation(x, name)
        if text is not None:
            return text
        for place, known in _for_ever:
            if known.object is x:
                return f"o{place}"
        place, held = _hold(x, name)
        _for_ever.append((place, held))
    except ValueError as error:
        return f"!{error}"
    except TypeError as error:
        return f"?{error}"
    return f"o{place}"


def _at(place):
    held = _table.get(place)
    if held is None:
        raise ValueError(
            "attention: a saved graph names a Mask, Bias, Score, Weights or function of the process that made it, "
            "with arrays or without a text that reads "
            "back; there, give arrays as tensors of the call, the rest as text"
        )
    return held.object


@_constant
def chosen_weights(text):
    """Returns (kind, count) of the weights that an encoded option requests."""
    weights = _at(text[1:]) if text[0] == "o" else _core._weights(text[1:])
    return weights.kind, weights.count


@_constant
def _reads_weights(x):
    """Returns whether x is the text of a Weights, such as "top_k(3)"."""
    try:
        return "(" in x and _core._weights(x) is not None
    except (TypeError, ValueError):
        return False


_WEIGHTS = ("none", "full", "head_average", "column_sums")


def _check_weights(x):
    """Checks `weights` for a call that is only traced, because the shapes of the results depend on it; raises the same
    errors as the library."""
    needed = "one of " + ", ".join(f'"{name}"' for name in (*_WEIGHTS, "rows(0, 5)", "top_k(3)"))
    if isinstance(x, str):
        if x not in _WEIGHTS and not _reads_weights(x):
            raise ValueError(f'attention: weights is "{x}"; it must be {needed}')
    elif x is not None and not isinstance(x, _core.Weights):
        shown = "torch.Tensor" if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"attention: weights is a {shown}; {needed} is needed")


def encode(q, k, v, options):
    """Returns (tensors, texts) of a call; the texts are those of the options, in their order."""
    tensors, texts, held = [q, k, v], [], []
    once = _call.is_only_transformed()
    for name, x in zip(_OPTIONS, options):
        if name == "weights":
            _check_weights(x)
        if x is None:
            texts.append("-")
        elif isinstance(x, Tensor):
            _call.check_tensors("attention", {name: x})
            texts.append(f"t{len(tensors)}")
            tensors.append(x)
        elif isinstance(x, AdditiveWeights):
            texts.append(f"a{len(tensors)}")
            tensors.extend(x)
        elif name in _MODS and callable(x):
            lines, looked_up = _score_program.of_function(x, len(tensors))
            texts.append(f"p{lines}")
            tensors.extend(looked_up)
        elif isinstance(x, bool) or name == "return_logsumexp":
            texts.append("b1" if _call.flag("attention", name, x) else "b0")
        elif isinstance(x, (int, float, torch.SymInt, torch.SymFloat)):
            x = _call.plain_number(x)
            texts.append(f"{'i' if isinstance(x, int) else 'f'}{x}")
        elif isinstance(x, str) and name not in _MODS and _BETWEEN not in x:
            texts.append(f"s{x}")
        else:
            if once:
                place, kept = _hold(x, name)
                held.append(kept)
                text = f"o{place}"
            else:
                text = _text_for_ever(x, name)
            if text[0] in "!?":
                raise (ValueError if text[0] == "!" else TypeError)(text[1:])
            own = _tensors_of(x)
            texts.append(f"w{text[1:]}:{len(tensors)}" if own else text)
            tensors.extend(own)
    return tensors, _with_held(_BETWEEN.join((*texts, _FORMAT)), held)


def _with_held(texts, held):
    if not held:
        return texts
    texts = _Texts(texts)
    texts.held = held
    return texts


def text_of(texts, name):
    return texts.split(_BETWEEN)[AT[name]]


def without(texts, name):
    """Returns the texts without one option."""
    fields = texts.split(_BETWEEN)
    fields[AT[name]] = "-"
    return _BETWEEN.join(fields)


def as_held(texts):
    """Returns the texts with references to the original Bias, Score and expression, and so to their own tensors. These
    may have values where the call's tensors have none."""
    return _BETWEEN.join(f"o{text[1:].partition(':')[0]}" if text[0] == "w" else text for text in texts.split(_BETWEEN))


def held_arrays(texts):
    """Returns pairs (name, array) for the arrays that the texts name and that are not tensors of the call."""
    fields = texts.split(_BETWEEN)[: len(_OPTIONS)]
    held = [_at(text[1:].partition(":")[0]) if text[0] in "ow" else None for text in fields]
    given = [name for name, text in zip(_OPTIONS, fields) if text[0] == "w"]
    return [(name, x) for name, x in _mutations.of_options(held)
            if not (isinstance(x, Tensor) and name.removeprefix("the array of ") in given)]


_READ = {"-": lambda _: None, "b": "1".__eq__, "i": int, "f": float, "s": str,
         "m": functools.lru_cache(_core._parse_expression), "o": _at}


def decoded(tensors, texts):
    """Returns q, k, v and the tuple of options, as _core.attention takes them."""
    options = []
    for name, text in zip(_OPTIONS, texts.split(_BETWEEN)):
        kind, rest = text[0], text[1:]
        if kind == "t":
            x = tensors[int(rest)]
            options.append(_call.seed_of(x) if name == "dropout_seed" else x)
        elif kind == "a":
            options.append(_core.Score.additive(*tensors[int(rest) : int(rest) + 3]))
        elif kind == "w":
            place, first = rest.split(":")
            options.append(_over(_at(place), tensors[int(first) :]))
        elif kind == "p":
            options.append(_score_program.expression(rest, tensors))
        else:
            options.append(_READ[kind](rest))
    return *tensors[:3], tuple(options)
