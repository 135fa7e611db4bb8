# python/attn/torch/_compiler.py: what torch's compiler is told of the symbols of a score function while it traces one.
"""torch's compiler (2.13) has no rule for `~` of an object, and enters no mode of torch's functions inside of a `torch.utils.checkpoint`, though it leaves
it there again. Both are told to its own classes, of attn's symbols alone; where another version has other classes, its own error stays."""

import operator

symbol: type | None = None  # the class of the symbols; _program, which makes them, says so


def _tell_of_inversion():
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    if hasattr(BuiltinVariable, "call_invert"):
        return

    def call_invert(self, tx, x):
        if isinstance(x, UserDefinedObjectVariable) and x.value_type is symbol:
            return x.call_method(tx, "__invert__", [], {})
        return None

    BuiltinVariable.call_invert = call_invert
    BuiltinVariable.call_function_handler_cache.pop((operator.invert, UserDefinedObjectVariable), None)  # of another object's ~, before


def _let_modes_in():
    from torch._dynamo.side_effects import allow_externally_visible_side_effects_in_subtracer
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch._dynamo.variables.torch_function import TorchFunctionModeStackVariable

    tx = InstructionTranslator.current_tx()
    with allow_externally_visible_side_effects_in_subtracer(tx):
        TorchFunctionModeStackVariable.register_mutation(tx)


def prepare():
    """Runs while a graph is traced, not in it."""
    for tell in (_tell_of_inversion, _let_modes_in):
        try:
            tell()
        except (ImportError, AttributeError):
            pass
    return True


prepare._dynamo_marked_constant = True  # torch.compiler.assume_constant_result, without its import of the compiler
