# python/attn/torch/_autograd.py: runs attn.attention with all of its options under torch's autograd,
# by the library's own tape.
"""Between the passes torch keeps only tensors, as for its own functions. In the backward pass the library makes its
record of the call from them, without computing the call again, and takes gradients (also of gradients) from it."""

import torch

from attn import _core
from attn.torch import _call, _mutations

_DROPOUT_P = _core.attention_options.index("dropout_p")
_SEED = _core.attention_options.index("dropout_seed")
_OUT = _core.attention_options.index("out")
_NAMES = ("q", "k", "v", *_core.attention_options)


def wants_gradient(x):
    """Returns whether x is a torch tensor that requires a gradient; arrays of other libraries are constants."""
    return isinstance(x, torch.Tensor) and x.requires_grad


class Arguments:
    """The q, k, v and options of a call between its passes. torch saves the floating tensors; masks, lengths and the
    arrays of objects stay here."""

    def __init__(self, q, k, v, options):
        self.given = [q, k, v, *options]
        self.places = [n for n, x in enumerate(self.given) if isinstance(x, torch.Tensor) and x.is_floating_point()]

    def let_go(self):
        """Returns the tensors that torch must save, and drops them here.
        Leaves stay here too, because the caller holds their memory anyway."""
        tensors = [self.given[n] for n in self.places]
        for n, x in zip(self.places, tensors):
            if not (x.is_leaf and x.requires_grad):
                self.given[n] = None
        # a leaf is saved detached, because x.data = y would exchange the memory of the leaf itself
        return [_mutations.owned(x.detach() if x.is_leaf else x) for x in tensors]

    def over(self, tensors, with_leaves=False):
        """Returns the call with the saved tensors; with `with_leaves` the leaves themselves take their place,
        so that gradients of gradients reach them."""
        call = self.given.copy()
        for n, x in zip(self.places, tensors):
            if call[n] is None or not with_leaves:
                call[n] = x
        return *call[:3], tuple(call[3:])

    def named(self, tensors):
        """Returns pairs (name, tensor) for the saved tensors; the output comes last."""
        return zip((*(_NAMES[n] for n in self.places), "the output"), tensors)


class _Recorded(torch.autograd.Function):
    """Computes output, weights and logsumexp from the inputs of a call, for autograd."""

    @staticmethod
    def forward(ctx, call, *inputs):
        *arguments, rest = call
        (output, weights, logsumexp, plan, seed), (exact, *rows) = _core.attention_kept(*arguments)
        ctx.needs, ctx.arguments = [wants_gradient(x) for x in inputs], Arguments(*arguments)
        ctx.save_for_backward(*ctx.arguments.let_go(), output if exact is None else exact, *rows)
        ctx.read = _mutations.watched(_mutations.of_options(ctx.arguments.given[3:]))
        ctx.set_materialize_grads(False)
        weights, *keys = weights if isinstance(weights, tuple) else (weights,)
        rest[:] = [keys, plan, seed]
        return output, weights, logsumexp

    @staticmethod
    def backward(ctx, *grads):
        _mutations.check(ctx.read)
        arguments, tensors = ctx.arguments, ctx.saved_tensors
        # if gradients of gradients may follow, the record reads all of these again
        read = ctx.read + _mutations.watched(arguments.named(tensors)) if torch.is_grad_enabled() else ctx.read
        tape = _core.attention_resumed(*arguments.over(tensors), ctx.needs, tensors[len(arguments.places) :])

        def inputs():
            return [x
                    for x, needed in zip(_core.attention_inputs(*arguments.over(tensors, with_leaves=True)), ctx.needs)
                    if needed]

        found = iter(gradients(tape, read, grads, inputs))
        return (None, *(next(found) if needed else None for needed in ctx.needs))


def gradients(tape, read, grads, inputs):
    if not _call.is_direct_backward(*grads):
        raise NotImplementedError("attention: its backward pass takes no batch of gradients (is_grads_batched, "
                                  "vectorize); use torch.func.vjp and vmap")
    if not torch.is_grad_enabled():
        return tape.backward(list(grads), False)
    given = [n for n, x in enumerate(grads) if x is not None]
    inputs = inputs()
    return _Gradients.apply(tape, read, len(grads), given, len(inputs), *inputs, *(grads[n] for n in given))


class _Gradients(torch.autograd.Function):
    """Computes the gradients of a record in such a way that they can be differentiated again. Its inputs are
    the inputs of the record, then the incoming gradients."""

    @staticmethod
    def forward(ctx, tape, read, outputs, given, count, *tensors):
        grads = [None] * outputs
        for n, x in zip(given, tensors[count:]):
            grads[n] = x.detach()
        found, ctx.tape = tape.backward(grads, True)
        ctx.set_materialize_grads(False)
        ctx.read = read
        ctx.save_for_backward(*tensors)
        return tuple(found)

    @staticmethod
    def backward(ctx, *grads):
        _mutations.check(ctx.read)
        tensors = ctx.saved_tensors
        return (None, None, None, None, None, *gradients(ctx.tape, ctx.read, grads, lambda: tensors))


def _unrecorded(q, k, v, options):
    results = _core.attention(q, k, v, options)
    # raises the version counter, so that another record that reads `out` detects the change
    if isinstance(options[_OUT], torch.Tensor):
        torch.autograd.graph.increment_version(options[_OUT])
    return results


def drawn_seed(options):
    """Returns a seed from torch's generator if the options drop weights without one, else None."""
    if options[_SEED] is not None or not _call.drops(options[_DROPOUT_P]):
        return None
    return _call.seed_of(_call.draw_seed())


def seeded(options):
    """Returns the options with a seed from torch's generator if they drop weights without one."""
    seed = drawn_seed(options)
    return options if seed is None else (*options[:_SEED], seed, *options[_SEED + 1 :])


def attention(q, k, v, options):
    """Runs _core.attention with gradients; dropout takes its seed from torch's generator."""
    options = seeded(options)
    _call.check_tensors("attention",
                        {name: x for name, x in (("q", q), ("k", k), ("v", v))
                         if type(x) in _call.TENSORS or isinstance(x, torch.Tensor)})
    out = options[_OUT]
    if not torch.is_grad_enabled():
        return _unrecorded(q, k, v, options)
    if isinstance(out, torch.Tensor) and out.requires_grad:
        raise ValueError("attention: out wants a gradient, which what is written to it would not have; call it under "
                         "torch.no_grad() or give out.detach()")
    inputs = _core.attention_inputs(q, k, v, options)
    if not any(wants_gradient(x) for x in inputs):
        return _unrecorded(q, k, v, options)
    if out is not None:
        raise ValueError("attention: out is given and a gradient is wanted, whose result is always new; call it under "
                         "torch.no_grad() or without out")
    _call.check_tensors("attention", {"q": q, "k": k, "v": v})
    rest = []
    output, weights, logsumexp = _Recorded.apply((q, k, v, options, rest), *inputs)
    wanted = options[_core.attention_options.index("return_logsumexp")]
    keys, *rest = rest
    return output, (weights, *keys) if keys else weights, logsumexp if wanted else None, *rest
