# python/attn/torch/_compiler.py: adds rules to torch's compiler for the symbols with which score functions are traced.
"""torch's compiler (2.13) has no rule for `~` of an object. In `torch.utils.checkpoint` it fails to enter a mode of
torch's functions, but leaves it. This module adds rules for both cases to the compiler's own classes, for attn's
symbols only; in a version with other classes the compiler's own error stays."""

import operator

symbol: type | None = None  # the class of the symbols; _score_program sets it


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
    # removes a cached rule for `~` of objects
    BuiltinVariable.call_function_handler_cache.pop((operator.invert, UserDefinedObjectVariable), None)


def _let_modes_in():
    from torch._dynamo.side_effects import allow_externally_visible_side_effects_in_subtracer
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch._dynamo.variables.torch_function import TorchFunctionModeStackVariable

    tx = InstructionTranslator.current_tx()
    with allow_externally_visible_side_effects_in_subtracer(tx):
        TorchFunctionModeStackVariable.register_mutation(tx)


def prepare():
    """Runs while a graph is traced; it is not part of the graph."""
    for tell in (_tell_of_inversion, _let_modes_in):
        try:
            tell()
        except (ImportError, AttributeError):
            pass
    return True


# what torch.compiler.assume_constant_result sets, without importing the compiler
prepare._dynamo_marked_constant = True
