# web/tests/browser_checks.py: the list of the tests, and how numbers are compared.
TESTS = {}


class NotInstalled(Exception):
    """A test needs what this machine lacks."""


def test(run):
    """Adds a test under its name; it is given an AttnPage."""
    TESTS[run.__name__.replace("_", " ")] = run
    return run


def near(a, b, tolerance=2e-5):
    return (a is None) == (b is None) and (a is None or abs(a - b) <= tolerance * max(1, abs(b)))


def flat(values):
    return [x for value in values for x in flat(value)] if isinstance(values, list) else [values]
