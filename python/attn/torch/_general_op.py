# python/attn/torch/_general_op.py: defines attn.attention with all of its options as torch operators.
"""`torch.ops.attn.general` takes the tensors of a call in a list and everything else in a text (_encoded.py).

The backward pass runs the call again on the library's tape; its gradients have gradients of their own."""

from typing import Sequence

import torch
from torch import Tensor

from attn import _core
from attn._options import AdditiveWeights
from attn.torch import _call, _mutations, _ops
from attn.torch._encoded import AT, chosen_weights, decoded, encode, held_arrays, text_of

# --- shapes -----------------------------------------------------------------------------------------------------------


def _weights_shapes(q, k, texts):
    """Returns the shapes of the weights and of the keys of top_k; None where there are none."""
    text = text_of(texts, "weights")
    if text in ("-", "snone"):
        return None, None
    packed = q.dim() == 3 and text_of(texts, "cu_seqlens_q") != "-"
    lead, rows, keys = ((q.shape[1],), q.shape[0], k.shape[0]) if packed else (q.shape[:-2], q.shape[-2], k.shape[-2])
    if text == "shead_average":
        return (*(lead[:-1] if len(lead) == 2 or packed else lead), rows, keys), None
    if text == "scolumn_sums":
        return (*lead, keys), None
    if text == "sfull":
        return (*lead, rows, keys), None
    kind, count = chosen_weights(text)
    if kind == "rows":
        return (*lead, count, keys), None
    return (*lead, rows, count), (*lead, rows, count)


def empty_outputs(tensors, texts):
    q, k, v = tensors[:3]
    weights, keys = _weights_shapes(q, k, texts)
    packed = q.dim() == 3 and text_of(texts, "cu_seqlens_q") != "-"
    rows = (q.shape[1], q.shape[0]) if packed else q.shape[:-1]
    none = (0,)
    return [
        _call.output_like(q, v.shape[-1]),
        q.new_empty(none if weights is None else weights),
        torch.empty(none if keys is None else keys, dtype=torch.int64, device=q.device),
        torch.empty(rows if text_of(texts, "return_logsumexp") == "b1" else none, dtype=_call.compute_dtype(q.dtype),
                    device=q.device),
        torch.empty((len(held_arrays(texts)),), dtype=torch.int64, device=q.device),
    ]


# --- the operators ----------------------------------------------------------------------------------------------------


@torch.library.custom_op("attn::general", mutates_args=(), device_types="cpu")
def general(tensors: Sequence[Tensor], texts: str) -> list[Tensor]:
    """Returns output, weights, keys of top_k, logsumexp, and stamps (_mutations.py): by these the backward
    passes detect that an array which the texts name was changed."""
    output, weights, logsumexp, _, _ = _core.attention(*decoded(tensors, texts))
    weights, keys = weights if isinstance(weights, tuple) else (weights, None)
    dtypes = (output.dtype, torch.int64, _call.compute_dtype(output.dtype))
    results = (torch.empty((0,), dtype=dtype) if x is None else x
               for x, dtype in zip((weights, keys, logsumexp), dtypes))
    return [output, *results, _mutations.stamps(held_arrays(texts))]


@general.register_fake
def _(tensors, texts):
    return empty_outputs(tensors, texts)


def places_of(tensors, leaves):
    """Returns which tensor of the call each leaf is, or None; each tensor once, because q, k and v may be one."""
    left = dict(enumerate(tensors))
    places = []
    for leaf in leaves:
        place = next((n for n, x in left.items() if x is leaf), None)
        left.pop(place, None)
        places.append(place)
    return places


class _Recorded:
    """Records a call on the library's tape; `places` says which tensors of the call are the inputs of the tape."""

    def __init__(self, tensors, texts, wanted, stamps):
        _mutations.check_stamps(held_arrays(texts), stamps)
        q, k, v, options = decoded(tensors, texts)
        places = places_of(tensors, _core.attention_inputs(q, k, v, options))
        needs = [place in wanted for place in places]
        self.tape = _core.attention_recorded(q, k, v, options, needs)[1]
        self.places = [place for place in places if place in wanted]

    def in_order_of(self, wanted, found, tensors):
        """Returns a gradient for each of `wanted`; zeros where there is none."""
        by_place = dict(zip(self.places, found))
        return [torch.zeros_like(tensors[n]) if by_place.get(n) is None else by_place[n].contiguous() for n in wanted]


def _spread(grads, given):
    """Returns the list (output, weights, logsumexp) with the given gradients at their places, else None."""
    found = [None] * 3
    for n, x in zip(given, grads):
        found[n] = x
    return found


@torch.library.custom_op("attn::general_backward", mutates_args=(), device_types="cpu")
def general_backward(
    grads: Sequence[Tensor], given: Sequence[int], tensors: Sequence[Tensor], texts: str, wanted: Sequence[int],
    stamps: Tensor
) -> list[Tensor]:
    call = _Recorded(tensors, texts, wanted, stamps)
    return call.in_order_of(wanted, call.tape.backward(_spread(grads, given)), tensors)


@general_backward.register_fake
def _(grads, given, tensors, texts, wanted, stamps):
    return [torch.empty(tensors[n].shape, dtype=tensors[n].dtype, device=tensors[n].device) for n in wanted]


def _by_tangents(flows, grads, given, tensors, texts, wanted, stamps):
    if 1 in given:  # through the returned weights
        return None
    _mutations.check_stamps(held_arrays(texts), stamps)
    q, k, v, options = decoded(tensors, texts)
    places = places_of(tensors, _core.attention_inputs(q, k, v, options))
    by_place = dict(zip(wanted, flows))
    by_flow = _spread(grads, given)
    found = _core.attention_second(q, k, v, options, (by_flow[0], by_flow[2]), [by_place.get(n) for n in places])
    if found is None:
        return None
    output, logsumexp, gradients = found
    of_place = dict(zip(places, gradients))
    return [*(torch.zeros_like(tensors[n]) if of_place.get(n) is None else of_place[n].contiguous() for n in wanted),
            *(output if n == 0 else logsumexp for n in given)]


@torch.library.custom_op("attn::general_second", mutates_args=(), device_types="cpu")
def general_second(
    flows: Sequence[Tensor], grads: Sequence[Tensor], given: Sequence[int], tensors: Sequence[Tensor], texts: str,
    wanted: Sequence[int], stamps: Tensor
) -> list[Tensor]:
    """Returns the gradients of the tensors `wanted`, and of `grads`,
    for incoming gradients of `general_backward`'s results: by the fused passes of forward mode (_tangents.py) where
    they have the options, else on the tape of the library."""
    found = _by_tangents(flows, grads, given, tensors, texts, wanted, stamps)
    if found is not None:
        return found
    call = _Recorded(tensors, texts, wanted, stamps)
    _, second = call.tape.backward(_spread(grads, given), True)
    by_place = dict(zip(wanted, flows))
    found = second.backward([by_place[n] for n in call.places])
    inputs = len(call.places)
    first = call.in_order_of(wanted, found[:inputs], tensors)
    order = sorted(range(len(given)), key=lambda n: given[n])  # the tape has them in the order of the outputs
    rest = [None] * len(grads)
    for n, x in zip(order, found[inputs:]):
        rest[n] = torch.zeros_like(grads[n]) if x is None else x.contiguous()
    return [*first, *rest]


@general_second.register_fake
def _(flows, grads, given, tensors, texts, wanted, stamps):
    return [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (*(tensors[n] for n in wanted), *grads)]


# --- gradients --------------------------------------------------------------------------------------------------------


def _can_have(tensors, needs):
    return [n for n, needed in enumerate(needs) if needed and tensors[n].is_floating_point()]


def _first(apply, grads, saved, texts, needs):
    """Returns for each tensor that was saved before the stamps its gradient, or None."""
    *tensors, stamps = saved
    found = [None] * len(tensors)
    flows = [(place, x) for place, x in zip((0, 1, None, 2), grads) if x is not None and place is not None]
    wanted = _can_have(tensors, needs)
    if flows and wanted:
        given = [place for place, _ in flows]
        for n, x in zip(wanted, apply([x.contiguous() for _, x in flows], given, tensors, texts, wanted, stamps)):
            found[n] = x
    return found


def _keep(ctx, inputs, output):
    tensors, texts = inputs
    ctx.texts = texts
    ctx.save_for_backward(*map(_mutations.owned, tensors), output[4])
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(x for x in output if x.numel() == 0 or not x.is_floating_point()))


def _gradients(ctx, grads):
    return _first(general_backward, grads, ctx.saved_tensors, ctx.texts, ctx.needs_input_grad[0]), None


torch.library.register_autograd("attn::general", _gradients, setup_context=_keep)


def _keep_backward(ctx, inputs, output):
    grads, ctx.given, tensors, ctx.texts, ctx.wanted, stamps = inputs
    ctx.count = len(grads)
    ctx.save_for_backward(*grads, *tensors, stamps)


def _second_gradients(ctx, flows):
    grads, (*tensors, stamps) = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
    found = general_second([x.contiguous() for x in flows], list(grads), ctx.given, tensors, ctx.texts, ctx.wanted,
                           stamps)
    for_tensors = [None] * len(tensors)
    for n, x in zip(ctx.wanted, found):
        for_tensors[n] = x
    return found[len(ctx.wanted) :], None, for_tensors, None, None, None


torch.library.register_autograd("attn::general_backward", _second_gradients, setup_context=_keep_backward)


# --- transforms -------------------------------------------------------------------------------------------------------


def one_by_one(apply, constants):
    """Runs a batch of calls one after another. `constants`: how many of the first arguments are not tensors."""

    def run(info, in_dims, *args):
        fixed, tensors, dims = args[:constants], args[constants:], in_dims[constants:]
        calls = _ops.calls_of_items(lambda *items: apply(*fixed, *items), info, dims, tensors)
        return tuple(torch.stack(x)[: info.batch_size] for x in zip(*calls)), (0,) * len(calls[0])

    return run


class Transformed(torch.autograd.Function):
    """The operator under torch.func and in forward mode: vmap, grad, vjp, jvp (_tangents.py) and transforms built on
    them."""

    @staticmethod
    def forward(texts, *tensors):
        return tuple(general(list(tensors), texts))

    @staticmethod
    def setup_context(ctx, inputs, output):
        _keep(ctx, (inputs[1:], inputs[0]), output)
        ctx.save_for_forward(*inputs[1:], output[4])
        ctx.has_logsumexp = output[3].numel() > 0

    @staticmethod
    def backward(ctx, *grads):
        def apply(grads, given, tensors, texts, wanted, stamps):
            return TransformedBackward.apply(given, texts, wanted, *grads, *tensors, stamps)

        return None, *_first(apply, grads, ctx.saved_tensors, ctx.texts, ctx.needs_input_grad[1:])

    @staticmethod
    def vmap(info, in_dims, *args):
        return one_by_one(Transformed.apply, 1)(info, in_dims, *args)


class TransformedBackward(torch.autograd.Function):
    @staticmethod
    def forward(given, texts, wanted, *tensors):
        *tensors, stamps = tensors
        return tuple(general_backward(tensors[: len(given)], given, tensors[len(given) :], texts, wanted, stamps))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.given, ctx.texts, ctx.wanted = inputs[:3]
        ctx.save_for_backward(*inputs[3:])
        ctx.save_for_forward(*inputs[3:])

    @staticmethod
    def backward(ctx, *flows):
        count = len(ctx.given)
        *tensors, _ = ctx.saved_tensors[count:]
        # Another transform, or an outer autograd, may need gradients of tensors for which this call computed none.
        asked = _can_have(tensors, ctx.needs_input_grad[3 + count : -1])
        every, by_place = sorted({*ctx.wanted, *asked}), dict(zip(ctx.wanted, flows))
        flows = [by_place[n].contiguous() if n in by_place else torch.zeros_like(tensors[n]) for n in every]
        found = TransformedSecond.apply(ctx.given, ctx.texts, every, *flows, *ctx.saved_tensors)
        for_tensors = [None] * (len(ctx.saved_tensors) - count)  # one more for the stamps
        for n, x in zip(every, found):
            for_tensors[n] = x
        return None, None, None, *found[len(every) :], *for_tensors

    @staticmethod
    def vmap(info, in_dims, *args):
        return one_by_one(TransformedBackward.apply, 3)(info, in_dims, *args)


class TransformedSecond(torch.autograd.Function):
    @staticmethod
    def forward(given, texts, wanted, *tensors):
        *tensors, stamps = tensors
        flows, grads = tensors[: len(wanted)], tensors[len(wanted) : len(wanted) + len(given)]
        return tuple(general_second(flows, grads, given, tensors[len(wanted) + len(given) :], texts, wanted, stamps))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *flows):
        raise NotImplementedError("attention: third derivatives under torch.func are not there")

    @staticmethod
    def vmap(info, in_dims, *args):
        return one_by_one(TransformedSecond.apply, 3)(info, in_dims, *args)


_ops.under_func("general", lambda tensors, texts: list(Transformed.apply(texts, *tensors)))


def _check(q, k, v):
    """Checks what the shapes of the results depend on; the library checks the rest when the call runs."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() not in (2, 3, 4) or x.dim() != q.dim():
            raise ValueError(f"attention: {name} has shape {list(x.shape)}; "
                             "it must be [B, H, T, D], [B, T, D] or [T, D], and of q's rank")
        if x.dtype not in _call.FLOATS or x.dtype != q.dtype:
            raise TypeError(f"attention: {name} is {x.dtype}; "
                            "it must be float32, float64, bfloat16 or float16, the same for q, k and v")


def attention(q, k, v, options):
    """Returns (output, weights or None, logsumexp or None) of a call that is traced or transformed."""
    if options[AT["out"]] is not None:
        raise ValueError("attention: out is given under torch.compile or torch.func, where results are always new")
    _call.check_tensors("attention", {"q": q, "k": k, "v": v})
    _check(q, k, v)
    if isinstance(options[0], AdditiveWeights):
        _call.check_tensors("attention", options[0]._asdict())
    if options[AT["dropout_seed"]] is None and _call.drops(options[AT["dropout_p"]]):
        at = AT["dropout_seed"]
        options = (*options[:at], _call.draw_seed(), *options[at + 1 :])
    tensors, texts = encode(q, k, v, options)
    results = Transformed.apply(texts, *tensors) if _call.is_observed() else general(tensors, texts)
    output, weights, keys, logsumexp, _ = results
    none, pair = _weights_shapes(q, k, texts)
    weights = None if none is None else weights if pair is None else (weights, keys)
    return output, weights, logsumexp if text_of(texts, "return_logsumexp") == "b1" else None
