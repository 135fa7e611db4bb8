# python/attn/torch/_call.py: prepares one call of attention for the operators,
# and decides how a tensor is passed to the library.
"""A call is a few tensors of rank 4 and a few numbers; both passes, the operator and its definition share this form."""

import math
from typing import NamedTuple

import torch
from torch.autograd import forward_ad

from attn import _core

_peek = torch._C._functorch.peek_interpreter_stack
_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_tracing = torch._C._get_tracing_state
_is_batch = torch._C._functorch.is_legacy_batchedtensor
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
TENSORS = (torch.Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
_NO_DISPATCH = torch.Tensor.__torch_dispatch__
HALVES = (torch.bfloat16, torch.float16)
FLOATS = (torch.float32, torch.float64, *HALVES)


class Numbers(NamedTuple):
    """The arguments of a call that are not tensors."""

    scale: float
    softcap: float = 0.0
    causal: bool = False
    window_left: int = -1
    window_right: int = -1
    bottom_right: bool = False
    dropout_p: float = 0.0


def is_direct():
    """Returns whether the library may read tensors directly: nothing traces, transforms or observes the operations."""
    watched = (torch.compiler.is_compiling() or _peek() is not None or _modes() or _function_modes()
               or _tracing() is not None)
    return not (watched or forward_ad._current_level >= 0)


def is_forward():
    """Returns whether forward-mode derivatives are being computed (torch.func.jvp, dual_level).
    Reading memory directly, and the operators, would lose them."""
    return forward_ad._current_level >= 0


# What torch.compiler.assume_constant_result sets, without importing the compiler. Within one trace the level does not
# change.
is_forward._dynamo_marked_constant = True


def is_direct_backward(*grads):
    """Returns is_direct() for a backward pass, whose gradients autograd may batch (is_grads_batched)."""
    return is_direct() and not any(x is not None and _is_batch(x) for x in grads)


def refuse_transforms(function, tensors):
    """Raises an error where the library cannot read the tensors, or their derivatives would be lost."""
    if is_transformed() or is_forward():
        raise RuntimeError(f"{function}: torch.func and forward-mode derivatives are not supported; use autograd")
    if not all(is_memory(x) or x.is_meta for x in tensors):
        raise RuntimeError(f"{function}: a trace (torch.export, FakeTensor) has no values for it to read; leave the "
                           "call outside of the graph")


def refuse_batch(function, *grads):
    """Raises an error for a batch of gradients, whose memory the library cannot read."""
    if any(x is not None and _is_batch(x) for x in grads):
        raise NotImplementedError(f"{function}: its backward pass takes no batch of gradients (is_grads_batched, "
                                  "vectorize); give them one by one")


def writes_onnx():
    """Returns whether calls are exported to ONNX, which has no attn operators."""
    return (_tracing() is not None or torch.compiler.is_exporting()) and torch.onnx.is_in_onnx_export()


def is_transformed():
    """Returns whether torch.func transforms the call and nothing is being compiled."""
    return not torch.compiler.is_compiling() and _peek() is not None


def is_observed():
    """Returns whether torch.func or forward mode needs the call as an autograd function, and nothing is compiled."""
    return not torch.compiler.is_compiling() and (_peek() is not None or is_forward())


def is_only_transformed():
    """Returns is_transformed(), but false if a mode or a trace records the operations."""
    return is_transformed() and not (_modes() or _function_modes() or _tracing() is not None)


def is_plain(x):
    """Returns whether `x` has memory that the library can read."""
    return type(x) in TENSORS and x.is_cpu and x.layout is _STRIDED


def is_memory(x):
    """Returns whether `x` is no tensor, or one that the library may read. Not readable are meta tensors, and subclasses
    with operations of their own (FakeTensor, DTensor)."""
    return (not isinstance(x, torch.Tensor)
            or (type(x) in TENSORS or type(x).__torch_dispatch__ is _NO_DISPATCH) and not x.is_meta)


def wants_gradient(*tensors):
    if not torch.is_grad_enabled():
        return False
    for x in tensors:
        if getattr(x, "requires_grad", False):
            return True
    return False


def has_tangent(x):
    """Returns whether `x` is a tensor that carries a tangent (make_dual, torch.func.jvp)."""
    return is_forward() and isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None


def is_differentiated(x):
    """Returns whether `x` is a tensor that wants a gradient, has a tangent or belongs to torch.func."""
    return isinstance(x, torch.Tensor) and (wants_gradient(x) or has_tangent(x) or _is_wrapped(x))


def check_constants(function, arrays):
    """Raises a TypeError for a tensor that wants a gradient, has a tangent or belongs to torch.func, because the
    function would lose it. `arrays`: pairs (name, array)."""
    for name, x in arrays:
        if wants_gradient(x):
            raise TypeError(f"{function}: {name} wants a gradient, which a cache does not keep; give x.detach(), or "
                            "call it under torch.no_grad()")
        if is_differentiated(x):
            raise TypeError(f"{function}: {name} has a tangent or belongs to torch.func, which a cache does not keep; "
                            "attention without a cache does")


def check_tensors(function, tensors, optional=(), anywhere=False):
    """Raises a TypeError for anything but a dense tensor and, unless `anywhere`, a ValueError for a tensor outside the
    CPU. Meta tensors are accepted, because they have no values. None is accepted for the names in `optional`."""
    for name, x in tensors.items():
        if (is_plain(x) and not (x.is_nested or x.is_quantized)) or (x is None and name in optional):
            continue
        if not isinstance(x, torch.Tensor):
            shown = "None" if x is None else f"a {type(x).__name__}"
            raise TypeError(f"{function}: {name} is {shown}; a torch tensor is needed, as the others are")
        if x.is_nested:
            raise TypeError(f"{function}: {name} is a nested tensor; give {name}.to_padded_tensor(0) and the lengths, "
                            "or packed sequences to attn.attention")
        if x.is_quantized:
            raise TypeError(f"{function}: {name} is quantized; give {name}.dequantize()")
        if x.layout is not torch.strided:
            raise TypeError(f"{function}: {name} has layout {x.layout}; give {name}.to_dense()")
        if x.device.type not in ("cpu", "meta") and not anywhere:
            raise ValueError(f"{function}: {name} is on {x.device}; attn computes on the CPU: give {name}.cpu()")


def flag(function, name, x):
    """Reads True or False, Python's or NumPy's; a whole number is true unless it is 0."""
    if isinstance(x, int) or type(x).__name__ in ("bool", "bool_"):
        return bool(x)
    raise TypeError(
        f"{function}: {name} is {'None' if x is None else f'a {type(x).__name__}'}; True or False is needed")


def check_constant(function, name, x):
    """Raises a TypeError if a tensor that requires a gradient is given as a number:
    its gradient would be lost silently."""
    if isinstance(x, torch.Tensor) and wants_gradient(x):
        way = {"scale": "multiply q by it, with scale=1, or ", "temperature": "divide s by it in score_mod, or ",
               "softcap": "use it in score_mod, or "}
        raise TypeError(f"{function}: {name} wants a gradient, which numbers do not get; "
                        f"{way.get(name, '')}give {name}.detach()")


def number(function, name, x):
    """Reads a number, or an object that converts to one (a tensor of one element)."""
    check_constant(function, name, x)
    if not isinstance(x, (str, bytes)):
        try:
            return float(x)
        except OverflowError:
            raise ValueError(f"{function}: {name} is too large") from None
        except (TypeError, ValueError, RuntimeError):
            pass
    raise TypeError(f"{function}: {name} is {'None' if x is None else f'a {type(x).__name__}'}; a number is needed")


def finite(function, name, x):
    """Reads a finite number."""
    x = number(function, name, x)
    if not math.isfinite(x):
        raise ValueError(f"{function}: {name} is {x}; it must be finite")
    return x


def integers(function, name, x):
    """Converts a list, a tuple or a range of whole numbers to a new tensor; returns everything else unchanged."""
    if not isinstance(x, (list, tuple, range)):
        return x
    if torch.compiler.is_compiling() and all(type(n) is not bool and isinstance(n, (int, torch.SymInt)) for n in x):
        return torch.tensor(list(x), dtype=torch.int64)
    return torch.from_numpy(_core._integers(x, function, name))


def plain_number(x):
    """Returns the value of a number. With dynamic=True the compiler passes numbers, also defaults, as symbols; a guard
    then makes it compile the graph again for another value."""
    if not isinstance(x, (torch.SymInt, torch.SymFloat)):
        x = int(x) if isinstance(x, int) else float(x)  # converts subclasses (IntEnum)
        if not torch.compiler.is_compiling():
            return x
    from torch.fx.experimental.symbolic_shapes import guard_scalar  # imports sympy (0.4 s), only when compiling

    return guard_scalar(x)


def drops(dropout_p):
    """Returns whether this dropout_p of attention needs a seed."""
    return dropout_p is not None and number("attention", "dropout_p", dropout_p) > 0


def autocast(function_tensors):
    """Converts the floating tensors but float64 to autocast's dtype if autocast is on, as torch does for its own linear
    and scaled_dot_product_attention."""
    if not torch.is_autocast_enabled("cpu"):
        return function_tensors
    dtype = torch.get_autocast_dtype("cpu")
    return [x.to(dtype) if x is not None and x.is_floating_point() and x.dtype is not torch.float64 else x
            for x in function_tensors]


def draw_seed():
    """Draws a seed from torch's generator, as a tensor, so that every run of a compiled graph draws a new one."""
    return torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64)


def seed_of(seed):
    """Returns the bits of a tensor of draw_seed() as the library's unsigned seed; None for None."""
    return None if seed is None else seed.item() % 2**64


def output_like(q, width):
    """Allocates the output: laid out as q if its last dim equals q's, else row-major."""
    return torch.empty_like(q) if width == q.shape[-1] else q.new_empty((*q.shape[:-1], width))


def compute_dtype(dtype):
    return torch.float64 if dtype is torch.float64 else torch.float32


def readable(x):
    """Returns `x` with a contiguous last dim, as the library reads it."""
    if x is not None and x.dim() > 0 and x.shape[-1] > 1 and x.stride(-1) != 1:
        return x.contiguous()
    return x


def forward(operands, numbers, seed, weights, saves):
    """Returns (output, weights or None, max, sum), computed by the fused pass; max and sum are None unless `saves`."""
    q, _, v = operands[:3]
    output = output_like(q, v.shape[-1])
    maximum = total = None
    if saves:
        maximum = torch.empty(q.shape[:-1], dtype=compute_dtype(q.dtype))
        total = torch.empty_like(maximum)
    matrix = _core.attention_forward(operands, (*numbers, seed), weights, output, maximum, total)
    return output, matrix, maximum, total


def backward(operands, numbers, seed, saved, grad_output, wanted):
    """Returns the gradients of q, k, v, bias and sinks (None where none is wanted), computed by the fused pass."""
    q, bias = operands[0], operands[4]
    if wanted[2] and bias.dtype is torch.float32 and q.dtype in HALVES:
        return _wide_backward(operands, numbers, seed, grad_output, wanted)
    return _core.attention_backward(operands, (*numbers, seed), saved, grad_output, wanted)


def _wide_backward(operands, numbers, seed, grad_output, wanted):
    """Runs both passes in float32. The gradient of a float32 bias with 16-bit tensors needs the accuracy of float32,
    which the rounded output cannot give."""
    dtype = operands[0].dtype
    operands = (*(x.float() for x in operands[:3]), *operands[3:])
    output, _, maximum, total = forward(operands, numbers, seed, "none", saves=True)
    found = _core.attention_backward(operands, (*numbers, seed), (output, maximum, total), grad_output.float(), wanted)
    return (*(x if x is None else x.to(dtype) for x in found[:3]), *found[3:])
