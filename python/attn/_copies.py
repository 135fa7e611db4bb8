# python/attn/_copies.py: defines the function that pickles and copies call to make an object again.
"""Functions of the extension cannot be pickled by name; this one can."""


def made(kind, name, *arguments):
    """Returns kind.name(*arguments), such as attn.Bias.alibi(slopes)."""
    return getattr(kind, name)(*arguments)
