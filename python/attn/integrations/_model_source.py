# python/attn/integrations/_model_source.py: determines from the source of a transformers model
# whether it calls the registered attention function.
import functools
import inspect
import re
import sys

from transformers import PreTrainedModel

# Finds classes that are chosen by name, as in FALCON_ATTENTION_CLASSES[config._attn_implementation]: with an unknown
# name these raise a KeyError.
_BY_NAME = re.compile(r"\b(?!ALL_)[A-Z_0-9]+\[\s*(?:self\.)?(?:\w*config\.)?_?attn_implementation\s*\]")
_OF_ITS_OWN = re.compile(r"^class \w*Attention\w*\((?:torch\.)?nn\.Module\):", re.MULTILINE)


@functools.lru_cache(maxsize=None)
def _source(module_name):
    """Returns the text of a file, or None if there is none (a model defined in a notebook, for example)."""
    try:
        return inspect.getsource(sys.modules[module_name])
    except (KeyError, OSError, TypeError):
        return None


def _sources(model_class):
    """Returns the source files of the class and of its base classes."""
    classes = (c for c in model_class.__mro__ if issubclass(c, PreTrainedModel) and c is not PreTrainedModel)
    return [_source(name) for name in dict.fromkeys(c.__module__ for c in classes)]


def calls_attention(model_class):
    """Returns whether the files name the registered functions, or contain no attention at all;
    true also for a model whose source cannot be read."""
    sources = _sources(model_class)
    named = any(source is None or "ALL_ATTENTION_FUNCTIONS" in source for source in sources)
    return named or not any(_OF_ITS_OWN.search(source) for source in sources)


def lacks_a_class(model_class):
    """Returns whether the files choose the attention class by name from a list of their own."""
    return any(source is not None and _BY_NAME.search(source) for source in _sources(model_class))


def asks_for_flash(model_class):
    """Returns whether the files do something else for implementations whose name contains "flash"."""
    return any(source is not None and "is_flash_attention_requested(" in source for source in _sources(model_class))
