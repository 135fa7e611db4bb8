# python/attn/torch/_ranks.py: attention on several processes for torch tensors, with gradients.
"""Both passes are collective. Whether a call is recorded is a part of what the ranks compare, so that a rank whose
tensors need no gradient is an error, and no rank waits for a backward pass that another one does not run."""

import torch

from attn import _core
from attn.torch import _autograd, _call, _mutations

_SEED = _core.attention_options.index("dropout_seed")
_OUT = _core.attention_options.index("out")
_WEIGHTS = _core.attention_options.index("weights")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, *inputs):
        ranks, q, k, v, options, layout, length, drawn, rest = call
        (output, weights, logsumexp, plan, seed), (exact, *rows) = _core.rank_attention(
            ranks, q, k, v, options, layout, length, True, drawn)
        options = (*options[:_SEED], seed, *options[_SEED + 1 :])
        ctx.ranks, ctx.layout, ctx.length = ranks, layout, length
        ctx.needs = [_autograd.wants_gradient(x) for x in inputs]
        ctx.arguments = _autograd.Arguments(q, k, v, options)
        ctx.save_for_backward(*ctx.arguments.let_go(), output if exact is None else exact, *rows)
        ctx.read = _mutations.watched(_mutations.of_options(ctx.arguments.given[3:]))
        ctx.set_materialize_grads(False)
        rest[:] = [weights, plan, seed]
        return output, logsumexp

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output, grad_logsumexp):
        def read():
            _mutations.check(ctx.read)
            tensors = ctx.saved_tensors
            count = len(ctx.arguments.places)
            output = tensors[count]
            grad = torch.zeros(output.shape, dtype=tensors[0].dtype) if grad_output is None else grad_output
            return *ctx.arguments.over(tensors), tensors[count:], grad

        q, k, v, options, kept, grad = ctx.ranks._together(read)
        return (None, *_core.rank_attention_backward(ctx.ranks, q, k, v, options, ctx.layout, ctx.length, kept, grad,
                                                     grad_logsumexp, ctx.needs))


def _checked(q, k, v, options):
    """Returns the tensors that can have gradients, and a seed of torch's generator if the call draws one."""
    if not _call.is_direct():
        raise ValueError("mpi.attention: it runs on values; torch.compile, torch.func and forward-mode derivatives are "
                         "not possible")
    _call.check_tensors("mpi.attention", {"q": q, "k": k, "v": v})
    inputs = _core.attention_inputs(q, k, v, options)
    recorded = torch.is_grad_enabled() and any(map(_autograd.wants_gradient, inputs))
    if recorded and options[_OUT] is not None:
        raise ValueError("mpi.attention: out is given and a gradient is wanted, whose result is always new")
    if recorded and options[_WEIGHTS] not in (None, "none"):
        raise ValueError("mpi.attention: weights are requested and a gradient is wanted, which returned weights do not "
                         "have on ranks; request them under torch.no_grad()")
    return inputs if recorded else None, _autograd.drawn_seed(options)


def attention(ranks, q, k, v, options, layout, length):
    """Runs attn.mpi.attention: (output, weights, logsumexp, plan, dropout_seed)."""
    inputs, drawn = ranks._together(lambda: _checked(q, k, v, options))
    if inputs is None:
        results, _ = _core.rank_attention(ranks, q, k, v, options, layout, length, False, drawn)
        if isinstance(options[_OUT], torch.Tensor):
            torch.autograd.graph.increment_version(options[_OUT])
        return results
    rest = []
    output, logsumexp = _Attention.apply((ranks, q, k, v, options, layout, length, drawn, rest), *inputs)
    weights, plan, seed = rest
    return output, weights, logsumexp, plan, seed
