# bench/peers/native.py: small C++ files of this folder, compiled when they are needed,
# as libraries that Python can call.
import ctypes
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILT = ROOT / "build" / "peers"


def build(name, *flags):
    """The path of lib<name>.so from <name>.cc; ImportError with the compiler's first complaint."""
    source, library = HERE / f"{name}.cc", BUILT / f"lib{name}.so"
    BUILT.mkdir(parents=True, exist_ok=True)
    command = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", str(source), "-o", str(library), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        complaint = [line for line in done.stderr.splitlines() if "error" in line or "cannot find" in line]
        raise ImportError((complaint or done.stderr.splitlines() or ["g++ failed"])[0])
    return library


def load(name, *flags):
    return ctypes.CDLL(str(build(name, *flags)))
