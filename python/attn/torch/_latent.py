# python/attn/torch/_latent.py: latent attention of torch tensors, with gradients, by the library's own tape.
"""Under torch.compile the calls run outside of the graph."""

import torch

from attn import _core
from attn._options import prepared
from attn.torch import _autograd, _call, _mutations

_NAME = "latent_attention"
_OPERANDS = ("q_nope", "q_rope", "latent", "k_rope", "w_uk", "w_uv")


class _Latent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rest, operands, options, form, *inputs):
        ctx.needs = [_autograd.wants_gradient(x) for x in inputs]
        results, ctx.tape = _core.latent_attention_recorded(operands, options, form, ctx.needs)
        output, weights, logsumexp, plan, seed = results
        weights, *keys = weights if isinstance(weights, tuple) else (weights,)
        rest[:] = [keys, plan, seed]
        ctx.read = _mutations.watched((*zip(_OPERANDS, operands), *_mutations.of_options(options)))
        ctx.save_for_backward(output, *(x for x, need in zip(inputs, ctx.needs) if need))
        ctx.set_materialize_grads(False)
        return output, weights, logsumexp

    @staticmethod
    def backward(ctx, *grads):
        _mutations.check(ctx.read, _NAME)
        _, *inputs = ctx.saved_tensors  # torch refuses an output that was changed in place
        found = iter(_autograd.gradients(ctx.tape, ctx.read, grads, lambda: inputs))
        return (None, None, None, None, *(next(found) if need else None for need in ctx.needs))


@torch.compiler.disable
def latent_attention(operands, options, form):
    """Runs attn.latent_attention on torch tensors: the results of _core.latent_attention."""
    _call.check_tensors(_NAME, dict(zip(_OPERANDS, operands)))
    _call.refuse_transforms(_NAME, operands)
    options = prepared(_NAME, _autograd.seeded(options))
    inputs = _core.latent_attention_inputs(operands, options, form) if torch.is_grad_enabled() else []
    if not any(_autograd.wants_gradient(x) for x in inputs):
        return _core.latent_attention(operands, options, form)
    rest = []
    output, weights, logsumexp = _Latent.apply(rest, operands, options, form, *inputs)
    keys, plan, seed = rest
    wanted = options[_core.attention_options.index("return_logsumexp")]
    return output, (weights, *keys) if keys else weights, logsumexp if wanted else None, plan, seed
