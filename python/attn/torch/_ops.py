# python/attn/torch/_ops.py: defines attention as torch operators: their shapes, their gradients, and batches of them.
"""torch.compile, torch.func and autograd see attn as `torch.ops.attn.attention` and
`torch.ops.attn.attention_backward`."""

import torch

from attn.torch import _call, _mutations, _unfused
from attn.torch._call import Numbers, seed_of

WEIGHTS = ("none", "full", "head_average")


def _weights_like(q, keys, weights):
    if weights == 0:
        return q.new_empty((0,))
    return q.new_empty((q.shape[0], q.shape[1], q.shape[2], keys) if weights == 1 else (q.shape[0], q.shape[2], keys))


# --- the operator -----------------------------------------------------------------------------------------------------

# Arguments that several operators have, in the notation of torch's schemas.
OPERANDS = "Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? bias, Tensor? sinks, Tensor? seed"
SAVED = "Tensor output, Tensor maximum, Tensor total"
NUMBERS = ("float scale, float softcap, bool causal, SymInt window_left, SymInt window_right, bool bottom_right, "
           "float dropout_p")
WANTS = "bool wants_bias, bool wants_sinks"
GRADIENTS = "(Tensor, Tensor, Tensor, Tensor, Tensor)"


def operator(name, *arguments, results):
    """Defines an operator with these arguments in the decorated function, which gets all of them by position."""
    return torch.library.custom_op(f"attn::{name}", mutates_args=(), device_types="cpu",
                                   schema=f"({', '.join(arguments)}) -> {results}")


@operator("attention", OPERANDS, NUMBERS, "SymInt weights", results="(Tensor, Tensor, Tensor, Tensor)")
def attention(q, k, v, mask, bias, sinks, seed, *rest):
    *numbers, weights = rest
    output, matrix, maximum, total = _call.forward((q, k, v, mask, bias, sinks), Numbers(*numbers), seed_of(seed),
                                                   WEIGHTS[weights], saves=True)
    return output, _weights_like(q, k.shape[2], 0) if matrix is None else matrix, maximum, total


@attention.register_fake
def _(q, k, v, mask, bias, sinks, seed, *rest):
    rows = q.new_empty(q.shape[:-1], dtype=_call.compute_dtype(q.dtype))
    return _call.output_like(q, v.shape[-1]), _weights_like(q, k.shape[2], rest[-1]), rows, torch.empty_like(rows)


@operator("attention_backward", "Tensor grad_output", OPERANDS, SAVED, NUMBERS, WANTS, results=GRADIENTS)
def attention_backward(grad_output, q, k, v, mask, bias, sinks, seed, output, maximum, total, *rest):
    *numbers, wants_bias, wants_sinks = rest
    found = _call.backward((q, k, v, mask, bias, sinks), Numbers(*numbers), seed_of(seed), (output, maximum, total),
                           grad_output, (True, True, wants_bias, wants_sinks))
    return empty_for_none(found, q)


def empty_for_none(found, q):
    """Returns the results of an operator: an empty tensor for each that is None."""
    return tuple(q.new_empty((0,)) if x is None else x for x in found)


def fake_gradients(grad_output, q, k, v, mask, bias, sinks, *rest):
    """Returns empty tensors of the shapes of the gradients of q, k, v, bias and sinks."""
    wants_bias, wants_sinks = rest[-2:]
    like = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v)]
    none = q.new_empty((0,))
    return (*like, torch.empty(bias.shape, dtype=bias.dtype, device=q.device) if wants_bias else none,
            sinks.new_empty(sinks.shape) if wants_sinks else none)


attention_backward.register_fake(fake_gradients)


# --- gradients --------------------------------------------------------------------------------------------------------


def _keep(ctx, inputs, output):
    ctx.numbers = Numbers(*inputs[7:14])
    ctx.weights = inputs[14]
    ctx.save_for_backward(*map(_mutations.owned, inputs[:7]), output[0], output[2], output[3])
    ctx.mark_non_differentiable(*output[2:], *(() if ctx.weights else output[1:2]))
    ctx.set_materialize_grads(False)


def _keep_both(ctx, inputs, output):
    """Keeps the same for both modes: for the gradients and for the tangents."""
    _keep(ctx, inputs, output)
    ctx.save_for_forward(*inputs[:7], output[0], output[2], output[3])


def _attention_gradients(ctx, grad_output, grad_weights, *_):
    *operands, seed, output, maximum, total = ctx.saved_tensors
    needs = ctx.needs_input_grad
    found = [None] * 5
    if grad_output is not None and grad_weights is None and not (_call.is_forward() and torch.compiler.is_compiling()):
        wants = (bool(needs[4]), bool(needs[5]))
        run = TransformedBackward.apply if _call.is_forward() else attention_backward
        found = list(run(grad_output, *operands, seed, output, maximum, total, *ctx.numbers, *wants))
    elif grad_output is not None or grad_weights is not None:
        found = _unfused.gradients(operands, ctx.numbers, seed, WEIGHTS[ctx.weights], grad_output, grad_weights)
    return as_inputs(found, needs) + (None,) * 9


def as_inputs(found, needs):
    """Returns the gradients of q, k, v, mask, bias, sinks, in that order; None for those that are not requested."""
    q, k, v, bias, sinks = (x if needed else None for x, needed in zip(found, (*needs[:3], *needs[4:6])))
    return q, k, v, None, bias, sinks


torch.library.register_autograd("attn::attention", _attention_gradients, setup_context=_keep)


def _keep_backward(ctx, inputs, output):
    grad_output, *operands, seed, output, maximum, total = inputs[:11]
    ctx.numbers = Numbers(*inputs[11:18])
    ctx.wants = inputs[18:]
    ctx.save_for_backward(grad_output, *map(_mutations.owned, operands), seed, output, maximum, total)
    ctx.set_materialize_grads(False)


def _keep_backward_both(ctx, inputs, output):
    _keep_backward(ctx, inputs, output)
    ctx.save_for_forward(*inputs[:11])


by_tangents = None  # set by _tangents.py, which builds on this module


def _second_gradients(ctx, *flows):
    """Returns the gradients of the gradients g(x, dy). With incoming gradients f they are the derivatives of <f, g> by
    x and by dy. Second derivatives are symmetric, and g is linear in dy: the first is the tangent of g along f, the
    second that of the output."""
    flow, (q, k, v, bias, sinks) = by_tangents(ctx, flows)
    return (flow, q, k, v, None, bias, sinks) + (None,) * 13


torch.library.register_autograd("attn::attention_backward", _second_gradients, setup_context=_keep_backward)


# --- batches and transforms -------------------------------------------------------------------------------------------


def calls_of_items(apply, info, in_dims, args):
    """Runs a batch of calls one after another and returns their results. For an empty batch it runs one item, a sum
    over no items, so that the results have shapes and a gradient history."""
    none = info.batch_size == 0
    item = lambda x, d, n: x if d is None else x.sum(d, dtype=x.dtype) if none else x.select(d, n)  # noqa: E731
    return [apply(*(item(x, d, n) for x, d in zip(args, in_dims))) for n in range(max(1, info.batch_size))]


def each_item(apply, info, in_dims, args):
    """Splits the batched arguments into items, runs them, and stacks the results. Empty results of rank 1 or less are
    not stacked."""
    calls = calls_of_items(apply, info, in_dims, args)
    there = [x.numel() > 0 or x.dim() > 1 for x in calls[0]]
    return tuple(torch.stack(x)[: info.batch_size] if some else x[0]
                 for x, some in zip(zip(*calls), there)), tuple(0 if some else None for some in there)


def _folded(x, d, info, batch):
    """Reshapes [V, B, ...] to [V * B, ...]; a tensor that all items share stays shared."""
    if x is None or (d is None and x.shape[0] == 1 and batch is not None):
        return x
    x = x.movedim(d, 0) if d is not None else x.expand(info.batch_size, *x.shape)
    if batch is not None and x.shape[1] != batch:
        x = x.expand(x.shape[0], batch, *x.shape[2:])
    return x.flatten(0, 1)


def _unfolded(results, info):
    there = [x.dim() > 1 for x in results]
    return tuple(x.unflatten(0, (info.batch_size, -1)) if some else x
                 for x, some in zip(results, there)), tuple(0 if some else None for some in there)


def _sizes(x, d):
    return x.shape if d is None else x.movedim(d, 0).shape[1:]


def _attention_batches(apply, info, in_dims, args):
    """Runs a batch of calls as one call with more batch items. With dropout, or with sinks that differ between items,
    the calls run one after another."""
    q, k, v, mask, bias, sinks, seed, *rest = args
    if seed is not None or in_dims[5] is not None or info.batch_size == 0 or 0 in _sizes(q, in_dims[0]):
        return each_item(apply, info, in_dims, args)
    batch = _sizes(q, in_dims[0])[0]
    operands = ([_folded(x, d, info, None) for x, d in zip((q, k, v), in_dims)]
                + [_folded(x, d, info, batch) for x, d in zip((mask, bias), in_dims[3:])])
    return _unfolded(apply(*operands, sinks, seed, *rest), info)


def _backward_batches(apply, info, in_dims, args):
    grad_output, q, k, v, mask, bias, sinks, seed, output, maximum, total, *rest = args
    if seed is not None or bias is not None or sinks is not None or info.batch_size == 0 or 0 in _sizes(q, in_dims[1]):
        return each_item(apply, info, in_dims, args)
    batch = _sizes(q, in_dims[1])[0]
    grad_output, q, k, v = (_folded(x, d, info, None) for x, d in zip((grad_output, q, k, v), in_dims))
    mask = _folded(mask, in_dims[4], info, batch)
    saved = [_folded(x, d, info, None) for x, d in zip((output, maximum, total), in_dims[8:])]
    return _unfolded(apply(grad_output, q, k, v, mask, None, None, None, *saved, *rest), info)


class Transformed(torch.autograd.Function):
    """The operator under torch.func and in forward mode: vmap, grad, vjp, jvp (_tangents.py) and transforms built on
    them."""

    @staticmethod
    def forward(*args):
        return attention(*args)

    setup_context = staticmethod(_keep_both)

    backward = staticmethod(_attention_gradients)

    @staticmethod
    def vmap(info, in_dims, *args):
        return _attention_batches(Transformed.apply, info, in_dims, args)


class TransformedBackward(torch.autograd.Function):
    @staticmethod
    def forward(*args):
        return attention_backward(*args)

    setup_context = staticmethod(_keep_backward_both)
    backward = staticmethod(_second_gradients)

    @staticmethod
    def vmap(info, in_dims, *args):
        return _backward_batches(TransformedBackward.apply, info, in_dims, args)


_library = torch.library.Library("attn", "FRAGMENT")


def under_func(operator, function):
    """Registers `function` as the operator's implementation under torch.func, also in a graph, because the operator's
    own registered gradient does not support transforms."""
    _library.impl(operator, function, "FuncTorchDynamicLayerFrontMode")


under_func("attention", Transformed.apply)
under_func("attention_backward", TransformedBackward.apply)


# --- the same operator without torch's dispatcher --------------------------------------------------------------------


class Direct(torch.autograd.Function):
    """attention(q, k, v, mask, bias, sinks, seed, numbers, weights) -> output, weights or None. It has a tenth of the
    operator's overhead, for calls that only autograd observes."""

    @staticmethod
    def forward(ctx, q, k, v, mask, bias, sinks, seed, numbers, weights):
        output, matrix, maximum, total = _call.forward((q, k, v, mask, bias, sinks), numbers, seed_of(seed),
                                                       WEIGHTS[weights], saves=True)
        ctx.numbers, ctx.weights = numbers, weights
        operands = (*map(_mutations.owned, (q, k, v)), _mutations.owned_mask(mask), _mutations.owned(bias),
                    _mutations.owned(sinks))
        ctx.save_for_backward(*operands, seed, output, maximum, total)
        ctx.set_materialize_grads(False)
        return output, matrix

    @staticmethod
    def backward(ctx, grad_output, grad_weights):
        if (grad_output is None or grad_weights is not None or torch.is_grad_enabled()
                or not _call.is_direct_backward(grad_output, grad_weights)):
            return _attention_gradients(ctx, grad_output, grad_weights)[:9]
        *operands, seed, output, maximum, total = ctx.saved_tensors
        needs = ctx.needs_input_grad
        wanted = tuple(bool(needs[n]) for n in (1, 2, 4, 5))
        found = _call.backward(tuple(operands), ctx.numbers, seed_of(seed), (output, maximum, total), grad_output,
                               wanted)
        return as_inputs(found, needs) + (None, None, None)
