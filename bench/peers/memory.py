# bench/peers/memory.py: the memory that a call takes beyond what was there, as Linux counts it.


def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


def peak(call):
    """In MB, of one call; Linux counts the peak anew."""
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")
    before = resident("VmRSS:")
    result = call()  # what it returns is there until the peak has been read
    del result
    return resident("VmHWM:") - before
