# python/attn/_copies.py: defines the function that pickles and copies call to make an object again.
"""Functions of the extension cannot be pickled by name; this one can."""


from attn import _core


def relative_index(text):
    """Returns the attn.RelativeIndex of that text: distance(2, 2).reversed()."""
    name, _, numbers = text.partition("(")
    numbers, _, rest = numbers.partition(")")
    index = getattr(_core.RelativeIndex, name)(*(int(x) for x in numbers.split(",")))
    return index.reversed() if rest else index


def made(kind, name, *arguments):
    """Returns kind.name(*arguments), such as attn.Bias.alibi(slopes)."""
    return getattr(kind, name)(*arguments)
