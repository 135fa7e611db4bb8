# tools/step_tables.py: runs the tables "step of a tutorial -> command, Python, C++" of docs/tutorials.md and its
# translation.
#
# A section is a heading with a ```python and a ```cpp block, then a table: step, numbers, command, Python, C++. The
# Python cells are expressions after the section's Python block, the C++ cells after its C++ block (the body of a
# main); a command runs in the folder where the Python block ran. Each must print the numbers of its row, in order and
# without others between them. "–" is an empty cell; where the tutorial has no numbers, the cells need only run. A cell
# with * after it computes the step on other numbers, which are not compared.
import re
import tempfile

SECTION = re.compile(r"^## .*?(?=^## |\Z)", re.S | re.M)
ROW = re.compile(r"^\| (?!---)(.+) \|$", re.M)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def block(section, language):
    return re.search(rf"```{language}\n(.*?)\n```", section, re.S)[1]


def rows(section):
    """The cells of each row below the header."""
    return [[cell.strip() for cell in row.split(" | ")] for row in ROW.findall(section)][1:]


def code(cell):
    """The code of a cell, and whether its numbers are compared."""
    match = re.fullmatch(r"`(.+?)`(\*?)", cell)
    return (match[1], not match[2]) if match else (None, False)


def numbers(text):
    return [float(number) for number in NUMBER.findall(text)]


def has(printed, wanted):
    """Whether the numbers of a row stand in what is printed, rounded as the row has them; false where there are none.
    The command prints a dot for a masked pair, whose weight is 0."""
    given = numbers(printed)
    digits = [len(number.partition(".")[2]) or 4 for number in NUMBER.findall(wanted)]
    wanted = list(zip(numbers(wanted), (0.51 * 10.0**-places for places in digits)))

    def at(begin, some):
        return all(abs(a - b) <= half for a, (b, half) in zip(given[begin : begin + len(some)], some))

    return any(at(begin, some) for some in (wanted, [each for each in wanted if each[0]]) if some
               for begin in range(len(given) - len(some) + 1))


def outputs(tools, setup, cells, language, folder):
    """What each cell prints, or the message of what failed; None without the package."""
    if language == "cpp":
        shown = "".join(f'\n  std::cout << "\\n===\\n" << ({cell});' for cell in cells)
        result = tools.program(setup + shown, folder)
    elif tools.can_run("python", folder):
        shown = "".join(f'\nprint("\\n===")\nprint({cell})' for cell in cells)
        result = tools.script(f"import numpy\nnumpy.set_printoptions(threshold=100000)\n{setup}{shown}", folder)
    else:
        return None
    return result.stdout.split("\n===\n")[1:] if result.returncode == 0 else result.stderr


def sections(page):
    return [section for section in SECTION.findall(page.read_text(encoding="utf-8")) if "```cpp" in section]


def check_translation(page, translation, expect):
    """A translation has the same code and numbers."""
    for mine, other in zip(sections(page), sections(translation), strict=True):
        title = other.partition("\n")[0][3:]
        expect([row[1:] for row in rows(mine)] == [row[1:] for row in rows(other)], f"{translation.name} {title}: rows",
               f"not those of {page.name}")
        for language in ("python", "cpp"):
            expect(block(mine, language) == block(other, language), f"{translation.name} {title}: {language}",
                   f"not that of {page.name}")


def check(page, tools, expect):
    """Checks the tables of a page; returns how many cells were skipped, for want of the package."""
    skipped = 0
    for section in sections(page):
        title = section.partition("\n")[0][3:]
        table = rows(section)
        expect(table and all(len(row) == 5 for row in table), f"{page.name} {title}", "each row needs five cells")
        with tempfile.TemporaryDirectory() as folder:
            printed = {}
            for language, column in (("python", 3), ("cpp", 4)):
                cells = tuple(code(row[column])[0] for row in table if code(row[column])[0])
                found = outputs(tools, block(section, language), cells, language, folder)
                expect(not isinstance(found, str), f"{page.name} {title} {language}", found)
                printed[column] = iter(found) if isinstance(found, list) else None
                skipped += len(cells) if found is None else 0
            for row in table:
                where = f"{page.name} {title}: {row[0]}"
                for column in (2, 3, 4):
                    command, compared = code(row[column])
                    if command is None or (column > 2 and printed[column] is None):
                        continue
                    if column == 2:
                        if printed[3] is None and "--weights" in command:      # files of the Python block
                            continue
                        result = tools.shell(command, folder)
                        expect(result.returncode == 0, f"{where}: command", result.stderr)
                    shown = result.stdout if column == 2 else next(printed[column])
                    expect(not compared or row[1] == "–" or has(shown, row[1]), f"{where}: column {column + 1}",
                           f"{command}\nprints\n{shown}")
    return skipped
