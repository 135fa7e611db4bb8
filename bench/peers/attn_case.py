# bench/peers/attn_case.py: the lines of attn's case tables, and the process that runs them.
import dataclasses
import subprocess
import sys


@dataclasses.dataclass
class Case:
    line: str
    op: str
    dtype: str
    fields: dict

    def number(self, name, default=None):
        return int(self.fields[name]) if name in self.fields else default

    @property
    def shape(self):
        """B, Hq, Hk, Tq, Tk, D, Dv of attention."""
        b, hq, tq, d = self.number("B", 1), self.number("Hq", 1), self.number("Tq", 1), self.number("D", 64)
        return b, hq, self.number("Hk", hq), tq, self.number("Tk", tq), d, self.number("Dv", d)

    @property
    def mask(self):
        return self.fields.get("mask", "none")

    @property
    def plain(self):
        """Attention without bias, lengths or pauses; mask none or causal."""
        others = set(self.fields) - {"B", "Hq", "Hk", "Tq", "Tk", "D", "Dv", "mask"}
        return self.op.startswith("attention") and not others and self.mask in ("none", "causal")


def parse(line):
    op, dtype, *fields = line.split()
    return Case(line, op, dtype, dict(field.split("=", 1) for field in fields))


class Attn:
    """`attn bench --serve`: one line in, the microseconds of one call out."""

    def __init__(self, command, environment):
        self.child = subprocess.Popen([command, "bench", "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True, env=environment)

    def ask(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline().strip()
        if not answer:
            raise RuntimeError("attn bench --serve has ended")
        if answer.startswith("error: "):
            raise RuntimeError(answer[7:])
        return answer

    def microseconds(self, line):
        return float(self.ask(line))

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def table(command, only):
    words = [word for text in only for word in ("--only", text)]
    listed = subprocess.run([command, "bench", "--list", *words], stdout=subprocess.PIPE, text=True)
    if listed.returncode != 0:
        sys.exit(listed.returncode)  # it has said why
    return [parse(line) for line in listed.stdout.splitlines()]
