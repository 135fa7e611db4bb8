# python/tests/stub_signatures.py: attn/_core.pyi against what nanobind says of its own functions,
# which stubtest cannot see into.
"""nanobind keeps `__nb_signature__` of every function: its text, with placeholders for defaults, and the defaults. Both
sides become the same plain description, so that names, order, kinds and defaults of parameters, static methods,
constructors and properties are compared, and results as far as nanobind knows them."""

import ast
import inspect
import re

MACHINERY = {"__doc__", "__module__", "__name__", "__qualname__", "__dict__", "__weakref__", "__new__",
             "__nb_signature__", "__static_attributes__", "__firstlineno__"}
SHOWN = {"__str__", "__repr__"}  # a stub leaves them to object


def _parameters(arguments, default):
    """(kind, name, default) of each but self."""
    found = []
    positional = [*((x, "/") for x in arguments.posonlyargs), *((x, "") for x in arguments.args)]
    given = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    found += [(kind, x.arg, default(value)) for (x, kind), value in zip(positional, given)]
    found += [("*", x.arg, default(value)) for x, value in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    found += [("*args", arguments.vararg.arg, "")] if arguments.vararg else []
    found += [("**", arguments.kwarg.arg, "")] if arguments.kwarg else []
    return [x for x in found if x[1] != "self"]


def _operator(name, parameters):
    """The operand of an operator has no name that could be used."""
    if name.startswith("__") and name not in ("__init__", "__deepcopy__"):
        return [("", f"operand {n}", value) for n, (_, _, value) in enumerate(parameters)]
    return parameters


def _plain(annotation):
    """A result's type without the module and without what nanobind does not know of it."""
    if annotation is None:
        return "None"
    text = ast.unparse(annotation) if isinstance(annotation, ast.AST) else annotation
    return re.sub(r"\b(attn\.(_core\.)?|builtins\.)", "", text)


def _described(function, name, static, default):
    return {"static": static, "parameters": _operator(name, _parameters(function.args, default)),
            "result": _plain(function.returns)}


def of_stub(text):
    """name: description, of functions, and by "Class.name" of methods; "Class" alone for a class."""

    def default(value):
        return "" if value is None else repr(ast.literal_eval(value))

    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = _described(node, node.name, False, default)
        if not isinstance(node, ast.ClassDef):
            continue
        found[node.name] = {"class": True}
        for member in node.body:
            name = f"{node.name}.{getattr(member, 'name', '')}"
            if not isinstance(member, ast.FunctionDef):
                continue
            marks = {ast.unparse(mark) for mark in member.decorator_list}
            found[name] = ({"property": _plain(member.returns)} if "property" in marks
                           else _described(member, member.name, "staticmethod" in marks, default))
    return found


def _of_function(function, name, static):
    (text, _, defaults), *overloads = function.__nb_signature__
    # what tells of arguments that do not fit
    refusals = [x for x in overloads if "(*args, **kwargs)" in x[0] or "(self, *args, **kwargs)" in x[0]]
    assert refusals == overloads, f"{name} has several signatures; a stub has one"
    text = re.sub(r"\\(\d+)", r"_default_[\1]", text).replace("def (", "def _(")  # what a property calls has no name
    node = ast.parse(text + ": ...").body[0]
    default = lambda value: "" if value is None else repr(defaults[value.slice.value])  # noqa: E731
    return _described(node, name, static, default)


def of_extension(module):
    function = type(module.version)
    found = {name: _of_function(x, name, False) for name, x in vars(module).items() if isinstance(x, function)}
    for name, cls in vars(module).items():
        if not inspect.isclass(cls):
            continue
        found[name] = {"class": True}
        for member, x in vars(cls).items():
            if member in MACHINERY | SHOWN:
                continue
            if isinstance(x, property):
                found[f"{name}.{member}"] = {"property": _of_function(x.fget, member, False)["result"]}
            elif hasattr(x, "__nb_signature__"):
                found[f"{name}.{member}"] = _of_function(x, member, isinstance(x, function))
    return found


def _agree(stub, extension):
    """Whether a result of the stub can be nanobind's: it knows no contents of tuples and dicts,
    and some only as object."""
    head = lambda text: text.split("[")[0]  # noqa: E731
    extension = re.sub(r"(?<=\[)object\b", "Any", extension)
    return extension == "object" or stub == extension or (head(stub) == head(extension) and "[" not in extension)


def differences(stub_text, module):
    """A line for each disagreement."""
    stub, extension = of_stub(stub_text), of_extension(module)
    lines = [f"{name}: only in the extension" for name in extension.keys() - stub.keys()]
    lines += [f"{name}: only in the stub" for name in stub.keys() - extension.keys()]
    for name in stub.keys() & extension.keys():
        ours, theirs = stub[name], extension[name]
        if ours.keys() != theirs.keys() or any(ours[key] != theirs[key]
                                               for key in ours.keys() - {"result", "property"}):
            lines.append(f"{name}: the stub has {ours}, the extension {theirs}")
        for key in ours.keys() & {"result", "property"}:
            if key in theirs and not _agree(ours[key], theirs[key]):
                lines.append(f"{name}: the stub gives {ours[key]}, the extension {theirs[key]}")
    return sorted(lines)
