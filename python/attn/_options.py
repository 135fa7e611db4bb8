# python/attn/_options.py: prepares the options of attn.attention for the extension.
"""The functions and attn.torch import this module; both prepare the options of a call."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from attn import _arguments, _core
from attn._tracing import trace

_SCORE, _SCORE_MOD, _WEIGHT_MOD = (_core.attention_options.index(name)
                                   for name in ("score", "score_mod", "weight_mod"))


def in_order(function: str, options: dict[str, Any], names: Iterable[str], refused: Iterable[str] = ()) -> tuple:
    """Returns the options in the order of _core.attention_options; raises a TypeError for one that is not among the
    names, nor among those that are `refused` by a line of their own."""
    _arguments.check(function, options, names, refused)
    return tuple(options.get(name) for name in _core.attention_options)


class AdditiveWeights(NamedTuple):
    """The parameters of an additive score; they become an attn.Score when the call is run."""

    w_q: Any
    w_k: Any
    w: Any


def scores_apart(function: str, options: tuple) -> tuple:
    """Returns the options; a function that was given as score is moved to score_mod."""
    if not callable(options[_SCORE]):
        return options
    if options[_SCORE_MOD] is not None:
        raise ValueError(f"{function}: score is a function and score_mod is given; one of them is needed")
    return _with(_with(options, _SCORE_MOD, options[_SCORE]), _SCORE, None)


def prepared(function: str, options: tuple) -> tuple:
    """Returns the options as the extension takes them, with functions traced."""
    options = scores_apart(function, options)
    for place in (_SCORE_MOD, _WEIGHT_MOD):
        if options[place] is not None:
            options = _with(options, place, trace(options[place]))
    if isinstance(options[_SCORE], AdditiveWeights):
        options = _with(options, _SCORE, _core.Score.additive(*options[_SCORE]))
    return options


def check_constants(function: str, operands: dict[str, Any], options: tuple = ()) -> bool:
    """Returns whether there are torch tensors among the operands; refuses those, and tensors of the options, whose
    derivatives the function would lose."""
    if not any(hasattr(x, "__torch_function__") for x in operands.values()):
        return False
    from attn.torch import _call, _mutations

    _call.check_constants(function, (*operands.items(), *_mutations.of_options(options)))
    return True


def of_constants(function: str, operands: dict[str, Any], options: tuple) -> tuple:
    """Returns the prepared options of a call that has no gradients; for torch tensors the seed of dropout comes from
    torch's generator."""
    given = prepared(function, options)
    if check_constants(function, operands, given):
        from attn.torch import _autograd

        return _autograd.seeded(given)
    return given


def _with(options: tuple, place: int, value: Any) -> tuple:
    return (*options[:place], value, *options[place + 1 :])
