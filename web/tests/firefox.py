# web/tests/firefox.py: Firefox without packages: the pages of tests/pictures/chromium.py, driven by WebDriver BiDi.
import base64
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import chromium
from websocket import Websocket

KEYS = {"Enter": "\uE007", "Escape": "\uE00C", "Tab": "\uE004", "ArrowLeft": "\uE012", "ArrowUp": "\uE013",
        "ArrowRight": "\uE014", "ArrowDown": "\uE015", "Home": "\uE011", "End": "\uE010", "Backspace": "\uE003"}
EVENTS = ["network.beforeRequestSent", "log.entryAdded"]
# The value of a JavaScript source as JSON, promises awaited.
EVALUATE = "async source => JSON.stringify([await (0, eval)(source)])"
SCHEME = "layout.css.prefers-color-scheme.content-override"  # 0 dark, 1 light


def find_browser():
    """The path of an installed Firefox, or None."""
    return next((found for name in ("firefox-esr", "firefox") if (found := shutil.which(name))), None)


class Browser:
    """A headless Firefox; `with Browser() as browser`. Its pages are tabs of one profile, which is thrown away."""

    def __init__(self, program=None):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # System access: the colour scheme is set in the browser's own realm, for BiDi has no command for it.
        self.process = subprocess.Popen([program or find_browser(), "--headless", "--no-remote", "--profile",
                                         self.folder.name, "--remote-debugging-port", "0",
                                         "--remote-allow-system-access", "about:blank"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.number, self.waiting, self.events, self.socket = 0, {}, [], None
        try:
            self.socket = Websocket(self.port(), "/session")
            self.call("session.new", {"capabilities": {}})
            self.call("session.subscribe", {"events": EVENTS})
            self.own = self.call("browsingContext.getTree", {"moz:scope": "chrome"})["contexts"][0]["context"]
        except BaseException:
            self.end()
            raise

    def port(self, seconds=60):
        """The port that Firefox chose; it writes it into the profile."""
        file, until = pathlib.Path(self.folder.name) / "WebDriverBiDiServer.json", time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            try:
                return json.loads(file.read_text())["ws_port"]
            except (OSError, ValueError):  # not there, or half written
                time.sleep(0.05)
        raise RuntimeError(f"Firefox opened no port in {seconds} s")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("browser.close")
            self.process.wait(timeout=20)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            pass
        self.end()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=20)
        if self.socket:
            self.socket.close()
        self.folder.cleanup()

    def read(self, until):
        """Takes in what the browser says until a time or a message."""
        text = self.socket.receive(until)
        if text is None:
            return False
        message = json.loads(text)
        if message.get("id") is not None:
            self.waiting[message["id"]] = message
        else:
            self.events.append(message)
        return True

    def call(self, method, parameters=None, seconds=60):
        self.number += 1
        number = self.number
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters or {}}))
        until = time.monotonic() + seconds
        while number not in self.waiting:
            if not self.read(until):
                raise RuntimeError(f"Firefox did not answer {method} in {seconds} s")
        answer = self.waiting.pop(number)
        if answer["type"] == "error":
            raise RuntimeError(f"{method}: {answer['message']}")
        return answer["result"]

    def function(self, context, declaration, *arguments, seconds=60):
        """What a function of JavaScript returns in a page."""
        result = self.call("script.callFunction", {
            "functionDeclaration": declaration, "target": {"context": context}, "awaitPromise": True,
            "arguments": [{"type": "string", "value": argument} for argument in arguments]}, seconds)
        if result["type"] == "exception":
            raise RuntimeError(result["exceptionDetails"]["text"])
        return result["result"]

    def open(self, url, **how):
        return Page(self, url, **how)


class Page:
    """One tab: its requests, what went wrong in it, and a pointer and keys."""

    def __init__(self, browser, url, width=1280, height=900, dark=False, before=""):
        self.browser = browser
        self.context = browser.call("browsingContext.create", {"type": "tab"})["context"]
        self.size(width, height)
        self.media(dark)
        if before:
            browser.call("script.addPreloadScript", {"functionDeclaration": f"() => {{ {before} }}",
                                                     "contexts": [self.context]})
        self.go(url)

    def call(self, method, parameters=None, seconds=60):
        return self.browser.call(method, {"context": self.context, **(parameters or {})}, seconds)

    def go(self, url):
        self.url = url
        self.call("browsingContext.navigate", {"url": url, "wait": "complete"})

    def reload(self):
        self.call("browsingContext.reload", {"wait": "complete"})

    def size(self, width, height):
        self.call("browsingContext.setViewport", {"viewport": {"width": width, "height": height}})

    def media(self, dark):
        self.browser.function(self.browser.own, f"() => Services.prefs.setIntPref('{SCHEME}', {0 if dark else 1})")

    def run(self, script, seconds=60):
        """The value of a JavaScript expression; promises are awaited."""
        return json.loads(self.browser.function(self.context, EVALUATE, script, seconds=seconds)["value"])[0]

    wait = chromium.Page.wait

    def pointer(self, *actions):
        self.call("input.performActions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [
            {"button": 0} | action for action in actions]}]})

    def move(self, x, y):
        self.pointer(to(x, y))

    def click(self, x, y):
        self.pointer(to(x, y), {"type": "pointerDown"}, {"type": "pointerUp"})

    def drag(self, places):
        """Presses at the first place, moves over the others, lets go."""
        self.pointer(to(*places[0]), {"type": "pointerDown"}, *(to(x, y) for x, y in places[1:]), {"type": "pointerUp"})

    def press(self, key, times=1):
        self.keys([KEYS.get(key, key)] * times)

    def type(self, text):
        self.keys(text)

    def keys(self, values):
        self.call("input.performActions", {"actions": [{"type": "key", "id": "keys", "actions": [
            {"type": kind, "value": value} for value in values for kind in ("keyDown", "keyUp")]}]})

    def files(self, selector, paths):
        """Chooses files, as in the dialog of the browser."""
        field = self.browser.function(self.context, "selector => document.querySelector(selector)", selector)
        self.call("input.setFiles", {"element": {"sharedId": field["sharedId"]},
                                     "files": [str(path) for path in paths]})

    def picture(self, path, whole=False):
        """Draws the page into a PNG file."""
        result = self.call("browsingContext.captureScreenshot", {"origin": "document" if whole else "viewport"})
        path.write_bytes(base64.b64decode(result["data"]))

    def happened(self, method):
        """The events of this page of that name."""
        while self.browser.read(time.monotonic()):
            pass
        return [event["params"] for event in self.browser.events if event["method"] == method
                and self.context in (event["params"].get("context"), event["params"].get("source", {}).get("context"))]

    def requests(self):
        """The addresses that the page loaded, its own document and what it carries inside left out."""
        return [url for event in self.happened("network.beforeRequestSent")
                if not (url := event["request"]["url"]).startswith(("data:", "blob:", "about:"))
                and url.split("#")[0] != self.url.split("#")[0]]

    def complaints(self):
        """Errors and warnings of the console, and exceptions that nobody caught."""
        return [entry["text"] for entry in self.happened("log.entryAdded") if entry["level"] in ("error", "warn")]

    def close(self):
        self.call("browsingContext.close")


def to(x, y):
    """The pointer's way to a place."""
    return {"type": "pointerMove", "x": x, "y": y, "duration": 0, "origin": "viewport"}
