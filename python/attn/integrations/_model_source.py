# python/attn/integrations/_model_source.py: does a model of transformers call the registered function?
import functools
import inspect
import re
import sys

from transformers import PreTrainedModel

# Classes chosen by name, as in FALCON_ATTENTION_CLASSES[config._attn_implementation]: another name is a KeyError.
_BY_NAME = re.compile(r"\b(?!ALL_)[A-Z_0-9]+\[\s*(?:self\.)?(?:\w*config\.)?_?attn_implementation\s*\]")
_OF_ITS_OWN = re.compile(r"^class \w*Attention\w*\((?:torch\.)?nn\.Module\):", re.MULTILINE)


@functools.lru_cache(maxsize=None)
def _source(module_name):
    """The text of a file, or None: a model of a notebook, say."""
    try:
        return inspect.getsource(sys.modules[module_name])
    except (KeyError, OSError, TypeError):
        return None


def _sources(model_class):
    """The files of the class and of those it is derived from."""
    classes = (c for c in model_class.__mro__ if issubclass(c, PreTrainedModel) and c is not PreTrainedModel)
    return [_source(name) for name in dict.fromkeys(c.__module__ for c in classes)]


def calls_attention(model_class):
    """Whether its files name the functions that are registered, or have no attention; what cannot be read may well."""
    sources = _sources(model_class)
    named = any(source is None or "ALL_ATTENTION_FUNCTIONS" in source for source in sources)
    return named or not any(_OF_ITS_OWN.search(source) for source in sources)


def lacks_a_class(model_class):
    """Whether its files choose the attention from a list of names of their own."""
    return any(source is not None and _BY_NAME.search(source) for source in _sources(model_class))
