# python/attn/integrations/_model_source.py: does a model of transformers call the registered function?
import functools
import inspect
import re
import sys

# Classes chosen by name, as in FALCON_ATTENTION_CLASSES[config._attn_implementation]: another name is a KeyError.
_BY_NAME = re.compile(r"\b(?!ALL_)[A-Z_0-9]+\[\s*(?:self\.)?(?:\w*config\.)?_?attn_implementation\s*\]")


@functools.lru_cache(maxsize=None)
def _source(module_name):
    try:
        return inspect.getsource(sys.modules[module_name])
    except (KeyError, OSError, TypeError):
        return None


def calls_attention(model_class):
    """Whether a layer of the class's file calls the function, or it has none of its own. transformers asks the same."""
    return model_class._can_set_attn_implementation()


def lacks_a_class(model_class):
    """Whether the class's file chooses its attention from a list of names of its own."""
    source = _source(model_class.__module__)
    return source is not None and _BY_NAME.search(source) is not None
