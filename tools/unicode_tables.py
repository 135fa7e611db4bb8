# tools/unicode_tables.py: what the tools that write Unicode's tables for the tokenizers share: runs of characters, the
# layout of a table, the frame of a header.
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src" / "text" / "tokenizer"
CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
WIDEST = 120


def runs(keys):
    """[first, last, key] of each run of neighbours with the same key, from pairs (character, key); without a key (None
    or "" or 0) a character is in none."""
    found = []
    for c, key in keys:
        if not key:
            continue
        if found and found[-1][1] == c - 1 and found[-1][2] == key:
            found[-1][1] = c
        else:
            found.append([c, c, key])
    return found


def table(declaration, entries):
    """A constexpr array. An entry is a text, or the texts of a struct's members."""
    lines, line = [], "   "
    for entry in entries:
        entry = entry if isinstance(entry, str) else f"{{{', '.join(entry)}}}"
        if len(line) + len(entry) + 2 > WIDEST:
            lines.append(line)
            line = "   "
        line += f" {entry},"
    return "\n".join([f"constexpr {declaration}[] = {{", *lines, line, "};\n"])


def ranges(comment, name, holds):
    """The Range of each run of characters for which `holds` is true."""
    found = runs((c, holds(chr(c))) for c in CHARACTERS)
    return f"/// {comment}\n" + table(f"Range {name}", ([f"0x{a:X}", f"0x{b:X}"] for a, b, _ in found))


def write(name, what, tool, tables):
    """Writes a header of src/text/tokenizer/, which names the tool that wrote it."""
    text = "\n".join(tables)
    include = '#include "text/ranges.h"\n\n' if "constexpr Range " in text else ""
    (FOLDER / name).write_text(f"// src/text/tokenizer/{name}: {what};\n// tools/{tool} writes it.\n#pragma once\n\n"
                               f"{include}namespace attn::text {{\n\n{text}\n}}  // namespace attn::text\n")
