# python/attn/torch/_patch.py: replaces functions of torch by attn's, and restores them.
"""Calls that attn does not support (other devices, layouts and subclasses,
and calls that torch refuses) go to torch's own function."""

import functools
import importlib
import threading

import torch
from torch.jit._builtins import _find_builtin, _register_builtin

from attn.torch import _call, _flex, _linear, _varlen, functional

_lock = threading.RLock()


def _takes(tensors, dtypes):
    for x in tensors:
        if x is not None and not _call.is_plain(x):
            return False
    return tensors[0].dtype in dtypes and not _call.writes_onnx()


def _sdpa(original):
    @functools.wraps(original)
    def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                     enable_gqa=False):
        if _takes((query, key, value, attn_mask), _call.FLOATS):
            try:
                return functional.scaled_dot_product_attention(
                    query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
            except (TypeError, ValueError):
                pass  # torch then reports the error in its own words
        return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    return scaled_dot_product_attention


def _linear_of(original):
    @functools.wraps(original)
    def linear(input, weight, bias=None):
        if _takes((input, weight, bias), (torch.float32, torch.bfloat16)) and weight.dim() == 2:
            try:
                return _linear.linear(input, weight, bias)
            except (TypeError, ValueError):
                pass
        return original(input, weight, bias)

    return linear


def _varlen_of(original):
    @functools.wraps(original)
    def varlen_attn(query, key, value, *lengths, **options):
        if isinstance(query, torch.Tensor) and query.is_cpu and not _call.writes_onnx():
            return _varlen.varlen_attn(query, key, value, *lengths, **options)  # torch has no function for the CPU
        return original(query, key, value, *lengths, **options)

    return varlen_attn


def _flex_of(original):
    @functools.wraps(original)
    def flex_attention(query, key, value, *rest, **options):
        if (_takes((query, key, value), _call.FLOATS) and not torch.compiler.is_compiling()
                and not _call.is_transformed()):
            try:
                return _flex.flex_attention(query, key, value, *rest, **options)
            except (TypeError, ValueError):
                pass
        return original(query, key, value, *rest, **options)

    return flex_attention


class _Place:
    """A function of a module of torch: torch's own one, and how many patches replace it now."""

    def __init__(self, name, make, module="torch.nn.functional"):
        self.name, self.make, self.users, self.original, self._module = name, make, 0, None, module
        self._made = {}  # never removed: torch's function -> attn's

    def _in(self):
        return importlib.import_module(self._module)

    def enter(self):
        if self.users == 0:
            self.original = getattr(self._in(), self.name)
            place = self._made.get(self.original)
            if place is None:
                place = self._made[self.original] = self.make(self.original)
                # torch.jit.script cannot compile attn's code. It recognises functions by their id, so this makes it
                # put torch's own operator into its graph instead.
                if (operator := _find_builtin(self.original)) is not None:
                    _register_builtin(place, operator)
            setattr(self._in(), self.name, place)
        self.users += 1

    def leave(self):
        self.users -= 1
        if self.users == 0:
            setattr(self._in(), self.name, self.original)


_places = {"sdpa": _Place("scaled_dot_product_attention", _sdpa), "linear": _Place("linear", _linear_of),
           "varlen": _Place("varlen_attn", _varlen_of, "torch.nn.attention.varlen"),
           "flex": _Place("flex_attention", _flex_of, "torch.nn.attention.flex_attention")}


class Patch:
    """The result of `patch`: `undo()`, or the end of a `with` block, undoes the patch. A second undo does nothing."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        with _lock:
            for name in names:
                _places[name].enter()

    def undo(self) -> None:
        with _lock:
            names, self._names = self._names, ()
            for name in names:
                _places[name].leave()

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def patch(linear: bool = False, varlen: bool = False, flex: bool = False) -> Patch:
    """Replaces torch.nn.functional.scaled_dot_product_attention by attn's for the whole process; with linear=True also
    linear, with varlen=True torch.nn.attention.varlen.varlen_attn, with flex=True
    torch.nn.attention.flex_attention.flex_attention. A name that was imported before (`from ... import varlen_attn`)
    keeps torch's function.

    >>> with attn.torch.patch(linear=True):
    ...     y = model(x)                   # doctest: +SKIP

    Without `with`: `p = attn.torch.patch()` and later `p.undo()`. Patches nest, in any order and from any thread:
    torch's own functions are back when the last patch is undone. Tensors that are not plain, dense and on the CPU, and
    wrong calls, go to torch's own functions (of varlen_attn, which torch has for GPUs only, wrong calls raise attn's
    errors). attn's linear computes float32 and bfloat16. Inside torch.compile flex_attention stays torch's.
    Raises TypeError unless the arguments are True or False.
    """
    wanted = {"linear": linear, "varlen": varlen, "flex": flex}
    return Patch(("sdpa", *(name for name, x in wanted.items() if _call.flag("patch", name, x))))
