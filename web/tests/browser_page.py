# web/tests/browser_page.py: the page as the tests see it: what it shows, a pointer on its numbers, the command.
import json
import shlex
import subprocess
import time
import urllib.parse

ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}


class AttnPage:
    """One page per test, opened at an address after #."""

    def __init__(self, browser, url, attn, folder, pictures=None):
        self.browser, self.url, self.attn, self.folder, self.pictures = browser, url, attn, folder, pictures
        self.page = None

    def open(self, state="", width=1280, height=900, dark=False, before=""):
        """Opens the page in a state such as "heads=2&causal" and waits for its first result."""
        if self.page:
            self.finish()
            self.page.close()
        address = self.url + (f"#{state}" if state else "")
        self.page = self.browser.open(address, width=width, height=height, dark=dark, before=before)
        self.page.wait("Boolean(window.attn && attn.report().runs)")
        self.settle()
        return self

    def close(self):
        if self.page:
            self.page.close()

    def finish(self):
        """What must hold at the end of each test: no request, no complaint."""
        if self.page:
            same = self.page.url.split("#")[0]
            if same.startswith("file:"):
                assert self.page.requests() == [], f"the page asked for {self.page.requests()}"
                assert self.page.complaints() == [], f"the console says {self.page.complaints()}"
            errors = self.run("attn.report().errors")
            assert errors == [], f"the page met {errors}"

    def run(self, script):
        return self.page.run(script)

    def report(self, part):
        """A part of the page's own report: report("hash")."""
        return self.run(f"attn.report().{part}")

    def settle(self):
        """Waits until the engine has answered and two frames are drawn."""
        self.page.wait("!attn.report().busy")
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 5))))")

    def json(self):
        return json.loads(self.report("json"))

    def step(self, name):
        return next(step for step in self.json()["steps"] if step["name"] == name)

    def command(self, *arguments):
        done = subprocess.run([str(self.attn), *arguments], env=ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode == 0, f"attn {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def same_as_command(self):
        """The page's JSON is that of the command line which it offers."""
        line = self.report("code.command")
        words = shlex.split(line)
        assert words[:2] == ["attn", "explain"], line
        printed = self.command("explain", "--json", *words[2:])
        own = self.report("json")
        assert own.strip() == printed.strip(), f"the JSON of the page is not that of {line}"

    # a person

    def panel(self, name):
        """Opens a panel of the bar."""
        if self.run("attn.page.controls.open") != name:
            self.click(f'[data-panel="{name}"]')

    def click(self, selector, index=0):
        """Clicks the middle of the element in view."""
        where = self.run(f"""(() => {{
          const element = [...document.querySelectorAll({json.dumps(selector)})]
            .filter(e => e.offsetParent !== null || getComputedStyle(e).position === 'fixed')[{index}];
          if (!element) return null;
          element.scrollIntoView({{block: 'center', behavior: 'instant'}});
          const box = element.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        assert where, f"there is no {selector}"
        self.page.click(*where)
        self.settle()

    def button(self, text):
        """Clicks the button whose text has these words."""
        self.run("""document.querySelectorAll('[data-test]').forEach(e => e.removeAttribute('data-test'))""")
        found = self.run(f"""(() => {{
          const all = [...document.querySelectorAll('button')].filter(e => e.offsetParent !== null
            && e.textContent.includes({json.dumps(text)}));
          all[0]?.setAttribute('data-test', '1');
          return all.length;
        }})()""")
        assert found, f"no button says {text}"
        self.click("[data-test]")

    def set(self, field, value):
        """Gives a field a value, as typing or dragging does."""
        done = self.run(f"""(() => {{
          const field = [...document.querySelectorAll('[data-field="{field}"]')].find(e => e.offsetParent !== null);
          if (!field) return false;
          const input = field.querySelector('input, select');
          if (input.type === 'checkbox') input.checked = {json.dumps(value)};
          else input.value = {json.dumps(value)};
          for (const event of ['input', 'change']) input.dispatchEvent(new Event(event, {{bubbles: true}}));
          return true;
        }})()""")
        assert done, f"there is no field {field}"
        self.settle()

    def text(self, value, index=0):
        """Types a text."""
        self.run(f"document.querySelectorAll('#texts .text')[{index}].select()")
        self.click("#texts .text", index)
        self.run(f"document.querySelectorAll('#texts .text')[{index}].select()")
        self.page.type(value)
        self.settle()

    def files(self, *paths):
        """Chooses files, as in the dialog of the browser."""
        self.panel("files")
        before = self.report("runs")
        self.page.files("#files", paths)
        self.page.wait(f"attn.report().runs > {before} || attn.report().failed !== ''")
        self.settle()

    def cell(self, step, row, column):
        """The middle of a cell on the screen, brought into view."""
        self.run(f"attn.page.steps.reveal({{step: '{step}', row: {row}, column: {column}}}, false) && 0")
        self.run(f"attn.page.steps.blocks.get('{step}').element.scrollIntoView({{block: 'center'}})")
        self.settle()
        place = self.run(f"attn.report().centre('{step}', {row}, {column})")
        return place["x"], place["y"]

    def hover(self, step, row, column):
        self.page.move(*self.cell(step, row, column))
        self.settle()

    def pin(self, step, row, column):
        self.page.click(*self.cell(step, row, column))
        self.settle()

    def key(self, name, times=1):
        self.page.press(name, times)
        self.settle()

    def inspector(self):
        return self.run("document.getElementById('inspector').innerText")

    def picture(self, name):
        if self.pictures:
            self.pictures.mkdir(parents=True, exist_ok=True)
            time.sleep(0.1)
            self.page.picture(self.pictures / f"{name}.png")


def address(**state):
    """A state as the part of the address after #."""
    return urllib.parse.urlencode(state, safe=",:()|&@/").replace("%20", "+")
