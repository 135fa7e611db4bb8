# python/tests/test_torch_same_words.py: a saved graph does not take other values for those that it names.
import subprocess
import sys

import pytest

pytest.importorskip("torch")

SAME_WORDS = """
import sys, torch, attn.torch
folder, what, value = sys.argv[1:]
x, values = torch.ones(1, 1, 2, 4), torch.tensor([[0.0, float(value)], [0.0, 0.0]])
OPTIONS = {"bias": attn.Bias.dense(values), "score_mod": attn.ScoreExpression(lambda s, b, h, i, j: s + values[i, j])}
class Call(torch.nn.Module):
    def __init__(self, option):
        super().__init__()
        self.option = option
    def forward(self, x):
        return attn.attention(x, x, x, **{self.option: OPTIONS[self.option]})
for option in OPTIONS:
    program = torch.export.export(Call(option), (x,))
    if what == "save":
        torch.export.save(program, f"{folder}/{option}.pt2")
    else:
        try:
            print(torch.export.load(f"{folder}/{option}.pt2").module()(x))
        except ValueError as error:
            print(error)
"""


def test_a_saved_graph_finds_no_other_values_of_the_same_words(tmp_path):
    run = lambda *args: subprocess.run([sys.executable, "-W", "ignore", "-c", SAME_WORDS, tmp_path, *args],
                                       capture_output=True, text=True)
    saved = run("save", "1")
    assert saved.returncode == 0, saved.stderr
    read = run("read", "2")
    lines = read.stdout.splitlines()
    assert len(lines) == 2 and all(line.startswith("attention: a saved graph names a Mask, Bias")
                                   for line in lines), read.stdout + read.stderr
