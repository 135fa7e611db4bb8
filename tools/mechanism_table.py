# tools/mechanism_table.py: the table of docs/literature.md that bench/peers/literature.py measured, from bench/results.
import json
import pathlib

RUN = pathlib.Path(__file__).resolve().parent.parent / "bench" / "results" / "amd-epyc-avx512-literature.json"
HEAD = ("| mechanism | attn, ms | torch, ms | torch / attn | attn, MB | torch, MB |\n"
        "|---|---|---|---|---|---|\n")
BEGIN, END = "<!-- measured by bench/peers/literature.py -->", "<!-- end of the table -->"


def measured():
    """The environment of the run and its rows; no rows before there was one."""
    found = json.loads(RUN.read_text(encoding="utf-8")) if RUN.exists() else [{}]
    return found[0], found[1:]


def three_digits(number):
    return f"{number:.2f}" if number < 10 else f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def cells():
    """Of each row."""
    environment, rows = measured()
    for row in rows:
        memory = [f"over {environment['limit_mb']:,}" if row[key] is None else f"{row[key]:,.0f}"
                  for key in ("attn_mb", "peer_mb")]
        yield [row["line"], three_digits(row["attn_us"] / 1000), three_digits(row["peer_us"] / 1000),
               three_digits(row["ratio"]), *memory]


def with_table(text):
    """The text of the page with this table."""
    before, rest = text.split(BEGIN, 1)
    table = HEAD + "".join(f"| {' | '.join(row)} |\n" for row in cells())
    return f"{before}{BEGIN}\n{table}{END}{rest.split(END, 1)[1]}"
