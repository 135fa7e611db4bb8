# tests/pictures/chromium.py: Chromium without packages: pages are opened, driven with real pointer and keys, and drawn,
# over the pipe of the browser's own debugging protocol.
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
        "Home": 36, "End": 35, "Backspace": 8, " ": 32}


def find_browser():
    """The path of an installed Chromium, or None."""
    return next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
                None)


class Browser:
    """A headless Chromium; `with Browser() as browser`. Its pages are tabs of one profile, which is thrown away."""

    def __init__(self, program=None):
        self.folder = tempfile.TemporaryDirectory()
        to_browser, self.to = os.pipe()
        self.back, from_browser = os.pipe()

        def connect():  # the protocol's pipe is 3 in and 4 out
            os.dup2(to_browser, 30)
            os.dup2(from_browser, 31)
            os.dup2(30, 3)
            os.dup2(31, 4)

        self.process = subprocess.Popen([program or find_browser(), *FLAGS, "--remote-debugging-pipe",
                                         f"--user-data-dir={self.folder.name}", "about:blank"],
                                        preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.waiting, self.events, self.rest = 0, {}, [], b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (OSError, RuntimeError):
            self.process.kill()
        self.process.wait(timeout=20)
        self.folder.cleanup()

    def read(self, until):
        """Takes in what the browser says until a time or a message."""
        while b"\0" not in self.rest:
            if not select.select([self.back], [], [], max(0, until - time.monotonic()))[0]:
                return False
            piece = os.read(self.back, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium ended")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(line)
        if "id" in message:
            self.waiting[message["id"]] = message
        else:
            self.events.append(message)
        return True

    def call(self, method, parameters=None, session=None, seconds=60):
        self.number += 1
        number, message = self.number, {"id": self.number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + seconds
        while number not in self.waiting:
            if not self.read(until):
                raise RuntimeError(f"Chromium did not answer {method} in {seconds} s")
        answer = self.waiting.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer.get("result", {})

    def open(self, url, **how):
        return Page(self, url, **how)


class Page:
    """One tab: its requests, what went wrong in it, and a pointer and keys."""

    def __init__(self, browser, url, width=1280, height=900, dark=False, before=""):
        self.browser = browser
        target = browser.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        self.media(dark)
        if before:
            self.call("Page.addScriptToEvaluateOnNewDocument", {"source": before})
        self.go(url)

    def call(self, method, parameters=None, seconds=60):
        return self.browser.call(method, parameters, self.session, seconds)

    def go(self, url):
        self.url = url
        self.call("Page.navigate", {"url": url})

    def reload(self):
        self.call("Page.reload")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1,
                                                         "mobile": False})

    def media(self, dark):
        self.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme",
                                                               "value": "dark" if dark else "light"}]})

    def run(self, script, seconds=60):
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call("Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True},
                           seconds)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait(self, script, seconds=20):
        """Waits until an expression is true."""
        until = time.monotonic() + seconds
        while not self.run(script, max(60, seconds)):
            if time.monotonic() > until:
                raise RuntimeError(f"not true after {seconds} s: {script}")
            time.sleep(0.02)

    def move(self, x, y, buttons=0):
        self.call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y, "buttons": buttons})

    def click(self, x, y):
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1,
                                                   "buttons": 1 if kind == "mousePressed" else 0})

    def drag(self, places):
        """Presses at the first place, moves over the others, lets go."""
        (x, y), last = places[0], places[-1]
        self.move(x, y)
        self.call("Input.dispatchMouseEvent", {"type": "mousePressed", "x": x, "y": y, "button": "left", "buttons": 1,
                                               "clickCount": 1})
        for x, y in places[1:]:
            self.move(x, y, 1)
        self.call("Input.dispatchMouseEvent", {"type": "mouseReleased", "x": last[0], "y": last[1], "button": "left",
                                               "clickCount": 1})

    def press(self, key, times=1):
        for _ in range(times):
            code = {"key": key, "windowsVirtualKeyCode": KEYS[key], "code": "Space" if key == " " else key}
            text = {"Enter": "\r", " ": " "}.get(key)
            self.call("Input.dispatchKeyEvent", {"type": "keyDown", **code, **({"text": text} if text else {})})
            self.call("Input.dispatchKeyEvent", {"type": "keyUp", **code})

    def type(self, text):
        self.call("Input.insertText", {"text": text})

    def files(self, selector, paths):
        """Chooses files, as in the dialog of the browser."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
        self.call("DOM.setFileInputFiles", {"files": [str(path) for path in paths], "nodeId": node})

    def picture(self, path, whole=False):
        """Draws the page into a PNG file."""
        result = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        path.write_bytes(base64.b64decode(result["data"]))

    def happened(self, method):
        """The events of this page of that name."""
        while self.browser.read(time.monotonic()):
            pass
        return [event["params"] for event in self.browser.events
                if event["method"] == method and event.get("sessionId") == self.session]

    def requests(self):
        """The addresses that the page loaded, its own document and what it carries inside left out."""
        return [url for event in self.happened("Network.requestWillBeSent")
                if not (url := event["request"]["url"]).startswith(("data:", "blob:", "about:"))
                and url.split("#")[0] != self.url.split("#")[0]]

    def complaints(self):
        """Errors and warnings of the console, and exceptions that nobody caught."""
        said = [entry["entry"]["text"] for entry in self.happened("Log.entryAdded")
                if entry["entry"]["level"] in ("error", "warning")]
        said += [" ".join(str(a.get("value", a.get("description"))) for a in call["args"])
                 for call in self.happened("Runtime.consoleAPICalled")
                 if call["type"] in ("error", "warning", "assert")]
        return said + [thrown["exceptionDetails"].get("exception", {}).get("description",
                                                                          thrown["exceptionDetails"]["text"])
                       for thrown in self.happened("Runtime.exceptionThrown")]

    def close(self):
        self.browser.call("Target.closeTarget", {"targetId": self.target})
