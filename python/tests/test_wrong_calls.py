# python/tests/test_wrong_calls.py: random wrong calls of everything the package shows, in a process of their own:
# one line each, no crash.
import os
import pathlib
import subprocess
import sys

from conftest import SEED

COUNT = 5000 if os.environ.get("ATTN_TEST_FULL") else 500
PROGRAM = pathlib.Path(__file__).parent / "wrong_calls.py"


def test_wrong_calls_are_told_in_one_line(tmp_path):
    place = tmp_path / "place"
    command = [sys.executable, str(PROGRAM), str(SEED), "0", str(COUNT)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900,
                            env={**os.environ, "PLACE": str(place), "OMP_NUM_THREADS": "1"}, encoding="utf-8",
                            errors="replace", cwd=tmp_path)
    number = place.read_text().strip()
    assert result.returncode == 0, (
        f"python {PROGRAM.name} {SEED} {number} 1 ends with {result.returncode}: {result.stderr[-2000:]}")
    *wrong, total = result.stdout.splitlines()
    print(total)
    assert not wrong, "\n".join(wrong[:60])
    assert int(total.split()[-2]) > COUNT // 3
