# python/attn/plot.py: draws weights as a heat map with matplotlib (pip install "attn[plot]").
"""Draws pictures of weights and masks with matplotlib, which is imported at the first drawing."""

from collections.abc import Sequence
from typing import Any

from attn import _arguments

_few = 24  # up to this many rows and columns, each cell shows its number


def heat_map(
    values: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    ax: Any = None,
    title: str | None = None,
    numbers: bool | None = None,
    colour_map: Any = "Blues",
    limits: tuple[float, float] | None = None,
) -> Any:
    """Draws weights (or scores, or a mask) as a heat map: one row for each query, one column for each key.

    values      [Tq, Tk]: a NumPy array, a torch tensor, or nested lists. Cells that are not finite stay blank
    rows        the labels of the rows, such as tokens; columns: those of the columns
    ax          the axes to draw on; None makes a figure
    numbers     whether to write the numbers into the cells; None: if there are few
    limits      (least, greatest) of the colours; None: 0 to 1 for weights, else the range of the values

    Returns the axes. Raises ValueError for another rank or another number of labels, TypeError for what is no numbers,
    labels or axes, ImportError without matplotlib.
    """
    import numpy as np

    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('heat_map: matplotlib is needed: pip install "attn[plot]"') from error
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if values.dtype.itemsize < 4 else values
    try:
        values = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"heat_map: values are a {type(values).__name__}; numbers [Tq, Tk] are needed") from error
    if values.ndim != 2:
        raise ValueError(f"heat_map: values have shape {list(values.shape)}; "
                         "[Tq, Tk] is needed: choose a batch item and a head")
    for heads, size, name in ((rows, values.shape[0], "rows"), (columns, values.shape[1], "columns")):
        if heads is not None and not hasattr(heads, "__len__"):
            raise TypeError(f"heat_map: {name} is a {type(heads).__name__}; a list of texts is needed")
        if heads is not None and len(heads) != size:
            raise ValueError(f"heat_map: there are {len(heads)} {name}; values have {size}")
    shown = np.ma.masked_invalid(values)
    if limits is None:
        weights = shown.count() > 0 and shown.min() >= 0 and shown.max() <= 1
        limits = (0.0, 1.0) if weights else (shown.min(), shown.max()) if shown.count() else (0.0, 1.0)
    if ax is None:
        _, ax = plt.subplots(figsize=(1.5 + 0.45 * min(values.shape[1], 40), 1.2 + 0.45 * min(values.shape[0], 40)))
    if not hasattr(ax, "imshow"):
        raise TypeError(f"heat_map: ax is a {type(ax).__name__}; axes of matplotlib are needed")
    try:
        least, greatest = limits
        image = ax.imshow(shown, cmap=colour_map, vmin=least, vmax=greatest, aspect="auto")
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"heat_map: limits are {_arguments.shown(limits)}, colour_map is "
                         f"{_arguments.shown(colour_map)}: {_arguments.shown(error, 200)}") from error
    if rows is not None:
        ax.set_yticks(range(len(rows)), rows)
    if columns is not None:
        ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
    ax.set_ylabel("query")
    ax.set_xlabel("key")
    if title:
        ax.set_title(title)
    if numbers is None:
        numbers = max(values.shape) <= _few
    if numbers:
        middle = (limits[0] + limits[1]) / 2
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8,
                        color="white" if value > middle else "black")
    ax.figure.colorbar(image, ax=ax)
    return ax
