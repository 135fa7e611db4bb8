# tools/chinese_tables.py: reads the Chinese forms of errors out of src/cli/chinese_*errors.cc, for tools/check_chinese
# and tools/page.
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


def unescaped(literal):
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), literal).replace('\\"', '"').replace(
        "\\n", "\n").replace("\\\\", "\\")


def balanced(text, begin):
    """The text from begin to the bracket that closes the one before it."""
    depth, at = 1, begin
    while depth:
        if text[at] == '"':
            at = LITERAL.match(text, at).end()
            continue
        if text[at] == "'" and text[at - 1] in "(,= ":
            at = text.index("'", at + 2 if text[at + 1] == "\\" else at + 1) + 1
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    return text[begin : at - 1]


def split(text, by):
    """The parts of an expression between a sign that is in no brackets and no text."""
    parts, depth, begin, at = [], 0, 0, 0
    while at < len(text):
        if text[at] == '"':
            at = LITERAL.match(text, at).end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if text[at] == by and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return [*parts, text[begin:]]


def literals(text):
    """The text of adjacent literals if there is nothing else, else None."""
    found = LITERAL.findall(text)
    return "".join(map(unescaped, found)) if found and not LITERAL.sub("", text).strip() else None


def files():
    """The files of the tables, in the command's order."""
    return sorted((ROOT / "src/cli").glob("chinese_*errors.cc"))


def tables():
    """[(English, Chinese)] of the errors and of the reasons inside them, in the command's order."""
    found = {"Errors": [], "Reasons": []}
    for path in files():
        table = re.sub(r"^\s*//[^\n]*", "", path.read_text(encoding="utf-8"), flags=re.M)
        for match in re.finditer(r"k\w*(Errors|Reasons)\[\] = \{", table):
            entries = [entry.strip()[1:-1] for entry in split(balanced(table, match.end()), ",") if entry.strip()]
            found[match[1]] += [tuple(map(literals, split(entry, ","))) for entry in entries]
    return found["Errors"], found["Reasons"]
