# python/attn/torch/_recorded.py: attn.attention with all of its options under torch's autograd, by the library's own tape.
"""A call that wants gradients is recorded by the library; torch keeps the record and asks it for gradients, and for theirs."""

import torch

from attn import _core
from attn.torch import _call, _changes

_DROPOUT_P = _core.attention_options.index("dropout_p")
_SEED = _core.attention_options.index("dropout_seed")
_OUT = _core.attention_options.index("out")


def _wants_gradient(x):
    """Not what is no tensor: a constant, NumPy's or another library's."""
    return isinstance(x, torch.Tensor) and x.requires_grad


class _Recorded(torch.autograd.Function):
    """The inputs of a call to its output, weights and logsumexp."""

    @staticmethod
    def forward(ctx, call, *inputs):
        q, k, v, options, rest = call
        needs = [_wants_gradient(x) for x in inputs]
        (output, weights, logsumexp, plan, seed), tape = _core.attention_recorded(q, k, v, options, needs)
        ctx.tape, ctx.needs, ctx.inputs = tape, needs, inputs
        ctx.set_materialize_grads(False)
        # The backward pass reads the output. An alias, which shares its count of changes: the output itself holds this record, which would hold it.
        ctx.read = _changes.watched((("q", q), ("k", k), ("v", v), *_changes.of_options(options), ("the output", output.detach())))
        weights, *keys = weights if isinstance(weights, tuple) else (weights,)
        rest[:] = [keys, plan, seed]
        return output, weights, logsumexp

    @staticmethod
    def backward(ctx, *grads):
        _changes.check(ctx.read)
        found = iter(_gradients(ctx.tape, ctx.read, grads, [x for x, needed in zip(ctx.inputs, ctx.needs) if needed]))
        return (None, *(next(found) if needed else None for needed in ctx.needs))


def _gradients(tape, read, grads, inputs):
    if not _call.is_direct_backward(*grads):
        raise NotImplementedError("attention: its backward pass takes no batch of gradients (is_grads_batched, vectorize); use torch.func.vjp and vmap")
    if not torch.is_grad_enabled():
        return tape.backward(list(grads), False)
    given = [n for n, x in enumerate(grads) if x is not None]
    return _Gradients.apply(tape, read, len(grads), given, len(inputs), *inputs, *(grads[n] for n in given))


class _Gradients(torch.autograd.Function):
    """The gradients of a record, recorded themselves: their inputs are those of the record, then the gradients that came in."""

    @staticmethod
    def forward(ctx, tape, read, outputs, given, count, *tensors):
        grads = [None] * outputs
        for n, x in zip(given, tensors[count:]):
            grads[n] = x.detach()
        found, ctx.tape = tape.backward(grads, True)
        ctx.set_materialize_grads(False)
        ctx.inputs = tensors
        ctx.read = [*read, *_changes.watched(("a gradient", x) for x in tensors[count:])]
        return tuple(found)

    @staticmethod
    def backward(ctx, *grads):
        _changes.check(ctx.read)
        return (None, None, None, None, None, *_gradients(ctx.tape, ctx.read, grads, list(ctx.inputs)))


def _unrecorded(q, k, v, options):
    results = _core.attention(q, k, v, options)
    if isinstance(options[_OUT], torch.Tensor):  # another record that read it must see that it was changed
        torch.autograd.graph.increment_version(options[_OUT])
    return results


def attention(q, k, v, options):
    """As _core.attention, with gradients; dropout takes its seed from torch's generator."""
    if options[_SEED] is None and _call.drops(options[_DROPOUT_P]):
        seed = torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64).item() % 2**64
        options = options[:_SEED] + (seed,) + options[_SEED + 1 :]
    _call.check_tensors("attention", {name: x for name, x in (("q", q), ("k", k), ("v", v)) if type(x) in _call.TENSORS or isinstance(x, torch.Tensor)})
    out = options[_OUT]
    if not torch.is_grad_enabled():
        return _unrecorded(q, k, v, options)
    if isinstance(out, torch.Tensor) and out.requires_grad:
        raise ValueError("attention: out wants a gradient, which what is written to it would not have; call it under torch.no_grad() or give out.detach()")
    inputs = _core.attention_inputs(q, k, v, options)
    if not any(_wants_gradient(x) for x in inputs):
        return _unrecorded(q, k, v, options)
    if out is not None:
        raise ValueError("attention: out is given and a gradient is wanted, whose result is always new; call it under torch.no_grad() or without out")
    _call.check_tensors("attention", {"q": q, "k": k, "v": v})
    rest = []
    output, weights, logsumexp = _Recorded.apply((q, k, v, options, rest), *inputs)
    wanted = options[_core.attention_options.index("return_logsumexp")]
    keys, *rest = rest
    return output, (weights, *keys) if keys else weights, logsumexp if wanted else None, *rest
