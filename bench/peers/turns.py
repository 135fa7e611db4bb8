# bench/peers/turns.py: medians of calls that take turns, so that what else the machine does falls on all of them.
import statistics
import time


def milliseconds(call):
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def in_turns(calls, rounds):
    """The median of each call in milliseconds, after one call to warm up."""
    for call in calls:
        call()
    times = [[milliseconds(call) for call in calls] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times)]
