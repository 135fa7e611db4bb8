# python/attn/_copies.py: what pickles and copies call to make an object again.
"""The extension's own functions cannot be pickled by name; this one can."""


def made(kind, name, *arguments):
    """kind.name(*arguments): attn.Bias, "alibi", the slopes, ..."""
    return getattr(kind, name)(*arguments)
