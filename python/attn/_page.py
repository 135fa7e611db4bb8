# python/attn/_page.py: fills in the page that Explanation.html and Explanation.show give.
"""The page is web/attn.html of the source tree, a file of the package. It computes with the library in the browser."""

import contextlib
import html
import importlib.resources
import json
import os
import pathlib
import secrets
import stat
import sys
import tempfile
import webbrowser
from typing import Any

from attn import _arguments

_START = 'id="attn-start">'


def filled(start: dict[str, Any]) -> str:
    """Returns the page that begins with the texts and options of `start`."""
    page = importlib.resources.files("attn").joinpath("page.html").read_text(encoding="utf-8")
    begin = page.index(_START) + len(_START)
    # A text with </script> does not end the element.
    text = json.dumps(start, ensure_ascii=False).replace("<", "\\u003c")
    return page[:begin] + text + page[page.index("</script>", begin) :]


def start_of(explanation: Any) -> dict[str, Any]:
    """What the page begins with: texts, options, and the words of texts that were split into words."""
    shown = json.loads(explanation.json())
    start = {"text": shown["text"], "to": explanation.to, "options": explanation.options}
    if explanation.options["tokens"] == "words":
        start["cut"] = {}
        for name, texts in (("tokens", explanation.texts), ("tokens_to", [explanation.to])):
            if name in explanation:
                step = explanation[name]  # padded: places say how many words there are
                start["cut"] |= {text: words[: len(places)]
                                 for text, words, places in zip(texts, step.rows, step.places)}
    return start


def in_notebook() -> bool:
    """Whether output goes to a notebook's cell."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def framed(page: str, height: int) -> str:
    """Returns HTML that shows the page inside another one."""
    return (f'<iframe srcdoc="{html.escape(page)}" title="attn" width="100%" height="{height}" '
            'style="border: 0"></iframe>')


def path_of(path: Any) -> str:
    """Returns a caller's path as text."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise TypeError(f"Explanation.show: path is a {type(path).__name__}; "
                        "it must be a str, bytes or os.PathLike") from None
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ValueError(f"Explanation.show: path is {_arguments.shown(ascii(text))}; "
                         "half of a surrogate pair names no file") from None
    if not text or "\0" in text:
        raise ValueError(f"Explanation.show: path is {_arguments.shown(repr(text))}; it must name a file")
    return os.path.abspath(text)


def write(page: str, path: str | None) -> str:
    """Writes the page to a file, or leaves the earlier file if that fails. A new file has the permissions of the
    caller's umask, a replaced one those it had. Without a path it writes to a new temporary file, which only its user
    can read. Returns the file's path."""
    unfinished = None
    try:
        if path is None:
            descriptor, unfinished = tempfile.mkstemp(prefix="attn-", suffix=".html")
        else:
            # in the folder of the file, with a name that no other call has
            name = os.path.join(os.path.dirname(path), f".attn-{secrets.token_hex(8)}.tmp")
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
            unfinished = name
        with open(descriptor, "wb") as file:
            file.write(page.encode())
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(unfinished, stat.S_IMODE(os.stat(path).st_mode))
            os.replace(unfinished, path)
        return path or unfinished
    except BaseException as error:
        if unfinished is not None:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
        if isinstance(error, OSError):
            shown = path if path is None or len(path) <= 200 else _arguments.shown(path, 200)
            raise OSError(error.errno, f"Explanation.show: {error.strerror}", shown) from None
        raise


def show(page: str, path: Any, height: Any) -> str | None:
    """Shows the page in the notebook's cell, or as a file in the browser. Returns the file's path, or None."""
    if isinstance(height, bool) or not isinstance(height, int):
        raise TypeError(f"Explanation.show: height is a {type(height).__name__}; it must be an int, in pixels")
    if not 0 < height < 100000:
        raise ValueError(f"Explanation.show: height is {_arguments.shown(height)}; it must be in 1 ... 99999 pixels")
    if path is None and in_notebook():
        from IPython.display import HTML, display

        display(HTML(framed(page, height)))
        return None
    full = write(page, None if path is None else path_of(path))
    webbrowser.open(pathlib.Path(full).as_uri())
    return full
