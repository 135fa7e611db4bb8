# python/attn/integrations/_onnx_checks.py: reads the attributes of ONNX's operators.
import operator

_LARGEST = 1 << 40
FLOATS = ("float32", "float64", "float16", "bfloat16")


def whole(function, name, x):
    """Converts a whole number, cut to what is beyond any length; returns None unchanged."""
    try:
        return None if x is None else max(-_LARGEST, min(operator.index(x), _LARGEST))
    except Exception as error:
        raise TypeError(f"{function}: {name} is a {type(x).__name__}; a whole number is needed") from error


def number(function, name, x):
    try:
        return None if x is None else float(x)
    except Exception as error:
        raise TypeError(f"{function}: {name} is a {type(x).__name__}; a number is needed") from error
