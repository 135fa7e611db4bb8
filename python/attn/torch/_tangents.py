# python/attn/torch/_tangents.py: forward mode (torch.func.jvp, forward_ad): tangents of attention and of its gradients.
"""The tangents of a call and of its gradients are computed by fused passes of the library. These compute gradients of
gradients too: with phi(x) = <dy, y(x)> the gradient is g = dphi/dx, and its tangent along x' is H x', where H, the
matrix of second derivatives, is symmetric. So the gradient of <x', g> is that tangent. The same holds for gradients of
tangents."""

from typing import Sequence

import torch
from torch import Tensor

from attn import _core
from attn.torch import _call, _general_op, _mutations, _ops, _unfused
from attn.torch._call import Numbers, seed_of
from attn.torch._encoded import decoded, held_arrays


def _some(tangents):
    return any(x is not None for x in tangents)


def _sum(a, b):
    return b if a is None else a if b is None else a + b


# --- attn.torch's functions -------------------------------------------------------------------------------------------


_TANGENTS = "Tensor? dq, Tensor? dk, Tensor? dv, Tensor? dbias, Tensor? dsinks"


@_ops.operator("attention_tangent", _ops.OPERANDS, _ops.SAVED, _TANGENTS, _ops.NUMBERS, results="Tensor")
def attention_tangent(*args):
    return _core.attention_tangent(args[:6], (*args[15:], seed_of(args[6])), args[7:10], args[10:15])


@attention_tangent.register_fake
def _(q, k, v, mask, bias, sinks, seed, output, *rest):
    return torch.empty(output.shape, dtype=output.dtype, device=output.device)


@_ops.operator("attention_backward_tangent", "Tensor grad_output", _ops.OPERANDS, _ops.SAVED, "Tensor? dgrad_output",
               _TANGENTS, _ops.NUMBERS, _ops.WANTS, results=_ops.GRADIENTS)
def attention_backward_tangent(grad_output, *args):
    saved, dgrad_output, tangents, numbers = args[7:10], args[10], args[11:16], args[16:23]
    found = _core.attention_backward_tangent(args[:6], (*numbers, seed_of(args[6])), saved, tangents,
                                             (grad_output, dgrad_output), args[23:])
    return _ops.empty_for_none(found, args[0])


attention_backward_tangent.register_fake(_ops.fake_gradients)


def _refuse_tangent(ctx, *tangents):
    raise NotImplementedError("attention: the tangent of a tangent (jvp of jvp) is not there; use jvp of grad")


class _GradientTangent(torch.autograd.Function):
    """attention_backward_tangent with gradients (third derivatives, by the definition in torch operations)."""

    @staticmethod
    def forward(*args):
        return attention_backward_tangent(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*map(_mutations.owned, inputs[:17]))
        ctx.numbers = Numbers(*inputs[17:24])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *flows):
        grad_output, *operands, seed, _, _, _ = ctx.saved_tensors[:11]
        along, needs = ctx.saved_tensors[11:], ctx.needs_input_grad
        moves, found = _unfused.third_gradients(operands, ctx.numbers, seed, (grad_output, *along), flows)
        of_moves = [x if needed else None for x, needed in zip(moves[1:], needs[11:17])]
        return (moves[0] if needs[0] else None, *_ops.as_inputs(found, needs[1:]), None, None, None, None, *of_moves,
                *[None] * 9)

    jvp = staticmethod(_refuse_tangent)

    @staticmethod
    def vmap(info, in_dims, *args):
        return _ops.each_item(_GradientTangent.apply, info, in_dims, args)


def _by_tangents(ctx, flows):
    """Returns the gradient of grad_output, and those of q, k, v, bias and sinks, for incoming gradients of the results
    of _ops.TransformedBackward."""
    grad_output, *operands, seed, output, maximum, total = ctx.saved_tensors
    given = (True, True, True, *ctx.wants)
    along = [x if there else None for x, there in zip(flows, given)]
    if not _some(along):
        return None, (None,) * 5
    flow = _Tangent.apply(*operands, seed, output, maximum, total, *along, *ctx.numbers)
    wants = (operands[4] is not None, operands[5] is not None)
    found = _GradientTangent.apply(grad_output, *operands, seed, output, maximum, total, None, *along, *ctx.numbers,
                                   *wants)
    return flow, (*found[:3], *(x if there else None for x, there in zip(found[3:], wants)))


class _Tangent(torch.autograd.Function):
    """attention_tangent with gradients (reverse over forward mode) and batches of directions (jacfwd)."""

    @staticmethod
    def forward(*args):
        return attention_tangent(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*map(_mutations.owned, inputs[:15]))
        ctx.numbers = Numbers(*inputs[15:])

    @staticmethod
    def backward(ctx, flow):
        *operands, seed, output, maximum, total = ctx.saved_tensors[:10]
        tangents, needs = ctx.saved_tensors[10:], ctx.needs_input_grad
        wants = [x is not None for x in operands[4:]]
        found = _GradientTangent.apply(flow, *operands, seed, output, maximum, total, None, *tangents, *ctx.numbers,
                                       *wants)
        first = [None] * 5
        if any(needs[10:15]):
            first = torch.ops.attn.attention_backward(flow, *operands, seed, output, maximum, total, *ctx.numbers,
                                                      *wants)
        second = _ops.as_inputs(found, needs)
        along = (x if needed else None for x, needed in zip(first, needs[10:15]))
        return *second, None, None, None, None, *along, *[None] * 7

    jvp = staticmethod(_refuse_tangent)

    @staticmethod
    def vmap(info, in_dims, *args):
        calls = _ops.calls_of_items(_Tangent.apply, info, in_dims, args)
        return torch.stack(calls)[: info.batch_size], 0


def _of_attention(ctx, *tangents):
    """The tangents of the results of _ops.Transformed."""
    dq, dk, dv, _, dbias, dsinks = tangents[:6]
    if ctx.weights:
        raise NotImplementedError("attention: the returned weights have no tangent by the operator")
    along = (dq, dk, dv, dbias, dsinks)
    output = _Tangent.apply(*ctx.saved_tensors, *along, *ctx.numbers) if _some(along) else None
    return output, None, None, None


def _of_gradients(ctx, *tangents):
    """The tangents of the results of _ops.TransformedBackward."""
    grad_output, *operands, seed, output, maximum, total = ctx.saved_tensors
    given = [True, True, True, *ctx.wants]
    dq, dk, dv, _, dbias, dsinks = tangents[1:7]
    found = [None] * 5
    if _some((dq, dk, dv, dbias, dsinks)):
        found = _GradientTangent.apply(grad_output, *operands, seed, output, maximum, total, tangents[0], dq, dk, dv,
                                       dbias, dsinks, *ctx.numbers, *ctx.wants)
    elif tangents[0] is not None:
        found = _ops.TransformedBackward.apply(tangents[0], *operands, seed, output, maximum, total, *ctx.numbers,
                                               *ctx.wants)
    # what was not wanted is an empty tensor, whose tangent is empty too
    none = [torch.zeros_like(x) if wanted else grad_output.new_zeros((0,))
            for x, wanted in zip((*operands[:3], *operands[4:]), given)]
    return tuple(zero if x is None or not wanted else x for x, zero, wanted in zip(found, none, given))


_ops.by_tangents = _by_tangents
_ops.Transformed.jvp = staticmethod(_of_attention)
_ops.TransformedBackward.jvp = staticmethod(_of_gradients)

# --- attn.attention with all of its options ---------------------------------------------------------------------------


@torch.library.custom_op("attn::general_tangent", mutates_args=(), device_types="cpu")
def general_tangent(tangents: Sequence[Tensor], places: Sequence[int], tensors: Sequence[Tensor], texts: str,
                    stamps: Tensor) -> list[Tensor]:
    """Returns the tangents of output and logsumexp; `places`: the tensors that the tangents belong to."""
    _mutations.check_stamps(held_arrays(texts), stamps)
    q, k, v, options = decoded(tensors, texts)
    by_place = dict(zip(places, tangents))
    along = [by_place.get(place) for place in _general_op.places_of(tensors, _core.attention_inputs(q, k, v, options))]
    _, output, _, logsumexp = _core.attention_jvp(q, k, v, options, along)
    return [output, logsumexp]


@general_tangent.register_fake
def _(tangents, places, tensors, texts, stamps):
    output, _, _, logsumexp, _ = _general_op.empty_outputs(tensors, texts)
    return [output, logsumexp]


class _GeneralTangent(torch.autograd.Function):
    @staticmethod
    def forward(places, texts, *tensors):
        *tensors, stamps = tensors
        return tuple(general_tangent(tensors[: len(places)], places, tensors[len(places) :], texts, stamps))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.places, ctx.texts = inputs[:2]
        ctx.save_for_backward(*map(_mutations.owned, inputs[2:]))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *flows):
        count = len(ctx.places)
        along, (*tensors, stamps) = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        given = [place for place, x in zip((0, 2), flows) if x is not None]
        grads = [x.contiguous() for x in flows if x is not None]
        first = _general_op.TransformedBackward.apply(given, ctx.texts, ctx.places, *grads, *tensors, stamps)
        asked = [n for n, x in enumerate(tensors) if ctx.needs_input_grad[2 + count + n] and x.is_floating_point()]
        second = _second(given, ctx.texts, (grads, tensors, stamps), dict(zip(ctx.places, along)), asked)
        for_tensors = [None] * len(tensors)
        for n in asked:
            for_tensors[n] = second[n]
        return None, None, *first, *for_tensors, None

    jvp = staticmethod(_refuse_tangent)

    @staticmethod
    def vmap(info, in_dims, *args):
        return _general_op.one_by_one(_GeneralTangent.apply, 2)(info, in_dims, *args)


def _second(given, texts, saved, by_place, wanted):
    """Returns for each place in `wanted` the tangent of its gradient, along the tangents `by_place`."""
    grads, tensors, stamps = saved
    every = sorted({*wanted, *by_place})
    flows = [by_place[n].contiguous() if n in by_place else torch.zeros_like(tensors[n]) for n in every]
    found = _general_op.TransformedSecond.apply(given, texts, every, *flows, *grads, *tensors, stamps)
    return dict(zip(every, found))


def _of_general(ctx, _, *tangents):
    *tensors, stamps = ctx.saved_tensors
    places = [n for n, x in enumerate(tangents) if x is not None]
    if not places:
        return (None,) * 5
    output, logsumexp = _GeneralTangent.apply(places, ctx.texts, *(tangents[n].contiguous() for n in places), *tensors,
                                              stamps)
    return output, None, None, logsumexp if ctx.has_logsumexp else None, None


def _of_general_gradients(ctx, *tangents):
    count = len(ctx.given)
    grads, (*tensors, stamps) = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
    of_grads, of_tensors = tangents[3 : 3 + count], tangents[3 + count : -1]
    found = [None] * len(ctx.wanted)
    if _some(of_grads):
        flows = [torch.zeros_like(x) if dx is None else dx.contiguous() for x, dx in zip(grads, of_grads)]
        found = _general_op.TransformedBackward.apply(ctx.given, ctx.texts, ctx.wanted, *flows, *tensors, stamps)
    by_place = {n: x for n, x in enumerate(of_tensors) if x is not None}
    if by_place:
        second = _second(ctx.given, ctx.texts, (grads, tensors, stamps), by_place, ctx.wanted)
        found = [_sum(x, second[n]) for n, x in zip(ctx.wanted, found)]
    return tuple(found)


def _of_second(ctx, *tangents):
    raise NotImplementedError("attention: third derivatives under torch.func are not there")


_general_op.Transformed.jvp = staticmethod(_of_general)
_general_op.TransformedBackward.jvp = staticmethod(_of_general_gradients)
_general_op.TransformedSecond.jvp = staticmethod(_of_second)

_ops.under_func("attention_tangent", _Tangent.apply)
_ops.under_func("attention_backward_tangent", _GradientTangent.apply)
