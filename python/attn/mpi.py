# python/attn/mpi.py: attention on the processes of an MPI communicator, which hold rows of one sequence each.
"""Attention on several processes (ranks), with the bits of one process. Each holds some rows of q, k and v.

    mpirun -n 4 python program.py

    from mpi4py import MPI
    import attn, attn.mpi
    ranks = attn.mpi.Ranks(MPI.COMM_WORLD)
    rows = ranks.rows(length)                                       # numbers of this rank's rows
    output = attn.mpi.attention(ranks, q[:, :, rows], k[:, :, rows], v[:, :, rows], mask="causal")

All functions are collective: every rank calls them, in the same order and with the same options, which are those of
the whole sequence. The error of one rank is raised at all, as an attn.mpi.RankError with the same text.
"""

import math
import numbers
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from attn import _core, _watched
from attn._core import RankError
from attn._functions import _chosen
from attn._options import in_order, prepared

__all__ = ["Gradients", "RankError", "Ranks", "Saved", "attention", "attention_backward", "attention_forward"]

Layout = Literal["heads", "stripes"]
_NAMES = (*_core.attention_options, "return_plan")
_SEED, _SCORE, _BIAS, _SINKS = (_core.attention_options.index(name)
                                for name in ("dropout_seed", "score", "bias", "sinks"))
_Result = TypeVar("_Result")


def _family(version: str) -> str:
    """Returns which of the two families of MPI writes such a version."""
    return "Open MPI" if "Open MPI" in version else "MPICH"


def _launcher() -> tuple[str, int]:
    """Returns the family of the launcher that started this process, and how many it started."""
    for name, family in (("OMPI_COMM_WORLD_SIZE", "Open MPI"), ("PMI_SIZE", "MPICH")):
        if os.environ.get(name, "").isdecimal():
            return family, int(os.environ[name])
    return "", 1


def _files(family: str) -> list[str]:
    """Returns the paths at which attn's library for an MPI may be: in the package or where the command is installed."""
    if chosen := os.environ.get("ATTN_MPI_LIBRARY"):
        return [chosen]
    name = f"libattn_mpi_{'openmpi' if family == 'Open MPI' else 'mpich'}.so"
    folders = [os.path.dirname(os.path.abspath(__file__))]
    libraries = ["lib", os.path.join("lib", sysconfig.get_config_var("MULTIARCH") or "")]
    if command := shutil.which("attn"):
        folder = os.path.dirname(os.path.realpath(command))
        folders += [folder, *(os.path.join(folder, "..", each, "attn") for each in libraries)]
    folders += [os.path.join(sys.prefix, each, "attn") for each in libraries]
    there = [os.path.join(each, name) for each in folders if os.path.exists(os.path.join(each, name))]
    return there or [name]


def _check_launcher(mpi: Any) -> None:
    """Raises a ValueError if the launcher is of another MPI, so that each process is alone and no rank waits for it.
    A launcher such as srun sets PMI_SIZE for any MPI: what tells is whether the world has its processes."""
    family, (started, count) = _family(mpi.Get_library_version()), _launcher()
    if count > 1 and started != family and mpi.COMM_WORLD.Get_size() != count:
        raise ValueError(f"mpi.Ranks: {started}'s launcher started {count} processes, and mpi4py uses {family}; "
                         "both must be one MPI")


def _wrong_timeout(timeout: Any) -> str:
    """Returns what is wrong with it, or an empty text."""
    is_number = isinstance(timeout, numbers.Real)
    if timeout is None or is_number and 0 < timeout < math.inf:
        return ""
    given = timeout if is_number else f"a {type(timeout).__name__}"
    return f"mpi.Ranks: timeout is {given}; it must be above 0, or None to wait for ever"


def _problem(mpi: Any, timeout: Any) -> tuple[Any, str]:
    """Returns (attn's library for mpi4py's MPI, why there can be no ranks)."""
    version = mpi.Get_library_version().rstrip("\0 \n")
    if wrong := _wrong_timeout(timeout):
        return None, wrong
    if mpi.Query_thread() < mpi.THREAD_FUNNELED:
        return None, "mpi.Ranks: MPI was initialised with THREAD_SINGLE; THREAD_FUNNELED or more is needed"
    try:
        return _core.MpiLibrary(_files(_family(version)), version), ""
    except ValueError as error:
        return None, f"mpi.{error}"


def _of_rank(rank: int, problem: str) -> RankError:
    error = RankError(f"rank {rank}: {problem}")
    error.rank = rank
    return error


class Ranks(_core.Ranks):
    """The processes of a communicator of mpi4py, of which this is one; without a communicator this process alone.

    It duplicates the communicator, so that no message meets one of the caller's; collective. MPI stays the caller's: it
    is to be initialised before, and ranks can be used until it is finalised. Every rank needs the same MPI (Open MPI or
    MPICH), for mpi4py, for the launcher and for attn's library libattn_mpi_openmpi.so or libattn_mpi_mpich.so. That one
    is looked for in the package, next to the command attn and in lib/attn; ATTN_MPI_LIBRARY names another file.

    timeout  seconds without any collective call of attn after which the process ends, with a line: the only way out
             when another rank is frozen or cut off. Without it a rank waits for ever

    Raises   TypeError for another object; ValueError, or RankError at all ranks, for what is missing or does not fit.

    >>> import attn.mpi
    >>> ranks = attn.mpi.Ranks()
    >>> ranks.rank, ranks.size
    (0, 1)
    """

    def __init__(self, comm: Any = None, timeout: float | None = None) -> None:
        if comm is None:
            if wrong := _wrong_timeout(timeout):
                raise ValueError(wrong)
            super().__init__()
            return
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is None or not isinstance(comm, mpi.Comm):
            raise TypeError(f"mpi.Ranks: comm is a {type(comm).__name__}; a communicator of mpi4py is needed, as "
                            "MPI.COMM_WORLD")
        if mpi.Is_finalized() or not mpi.Is_initialized():
            raise ValueError("mpi.Ranks: MPI has been finalised; ranks can be used until then" if mpi.Is_finalized()
                             else "mpi.Ranks: MPI is not initialised, which is the caller's part")
        _check_launcher(mpi)
        if comm == mpi.COMM_NULL or comm.Is_inter():
            raise ValueError("mpi.Ranks: the communicator is null, freed, or between two groups; one of a single group "
                             "is needed")
        library, problem = _problem(mpi, timeout)
        for rank, each in enumerate(comm.allgather(problem)):
            if each:
                raise ValueError(each) if comm.Get_size() == 1 else _of_rank(rank, each)
        super().__init__(library, comm.py2f())
        if timeout is not None:
            self.set_timeout(timeout)

    def set_timeout(self, seconds: float | None) -> None:
        """Sets the timeout of this rank in seconds; None: it waits for ever."""
        if wrong := _wrong_timeout(seconds):
            raise ValueError(wrong)
        super().set_timeout(0 if seconds is None else float(seconds))

    def rows(self, length: int, layout: Layout = "heads") -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The numbers of the rows of a sequence that this rank holds, ascending; every row belongs to one rank.

        "heads": adjacent rows, as even as possible. "stripes": blocks of 64 rows, dealt in turns.

        >>> import attn.mpi
        >>> attn.mpi.Ranks().rows(3).tolist()
        [0, 1, 2]
        """
        return super().rows(length, layout)

    def agree(self, error: BaseException | str | None = None) -> None:
        """Raises a RankError at every rank if any of them gives an error: the lowest one's text.
        To be called before ranks wait for each other, with what has failed here. Alone, raises the error itself."""
        if self.size == 1 and isinstance(error, BaseException):
            raise error
        super().agree("" if error is None else str(error) or type(error).__name__)

    def _together(self, work: Callable[[], _Result]) -> _Result:
        """Returns work(). If it fails, the other ranks are told, which agree before they do anything else."""
        try:
            return work()
        except Exception as error:
            self.agree(error)
            raise


def _checked(ranks: Any) -> Ranks:
    if not isinstance(ranks, Ranks):
        raise TypeError(f"mpi.attention: ranks is a {type(ranks).__name__}; an attn.mpi.Ranks is needed")
    return ranks


def _options(options: dict[str, Any]) -> tuple:
    return prepared("mpi.attention", in_order("mpi.attention", options, _NAMES))


def attention(ranks: Ranks, q: Any, k: Any, v: Any, *, layout: Layout = "heads", length: int | None = None,
              **options: Any) -> Any:
    """`attn.attention` for the rows that this rank holds, with the bits of one process. Collective.

    q [B, Hq, rows, D], k [B, Hk, rows, D], v [B, Hv, rows, Dv], the rows of ranks.rows(length, layout)
    -> output [B, Hq, rows, Dv]

    layout   "heads": ranks exchange their rows of all heads for all rows of some heads, and back; at most as many ranks
             as heads of k. "stripes": keys and values pass by in order, for any number of ranks
    length   rows of the sequence; default: those of all ranks together
    options  those of attn.attention, the same at every rank: masks, biases and lengths are those of the whole sequence,
             and cover all rows and all heads. weights: "full" or top_k. What a layout cannot do is a RankError

    Torch tensors have gradients, by collective backward passes: every rank runs them, in the same order. Those of
    sinks, of biases and of the tables of score_mod are complete at every rank. With layout "heads" those of a dense
    bias that heads share are refused, because they are sums over ranks. Returned weights have none: where a gradient is
    wanted they are refused.
    Raises   RankError, at every rank and with the same text, for the error of any of them; TypeError for `ranks`.

    >>> import numpy as np, attn, attn.mpi
    >>> x = np.eye(2, dtype=np.float32)[None, None]
    >>> attn.mpi.attention(attn.mpi.Ranks(), x, x, x, mask="causal")[0, 0].round(2)
    array([[1.  , 0.  ],
           [0.33, 0.67]], dtype=float32)
    """
    given = _checked(ranks)._together(lambda: _options(options))
    plan = options.get("return_plan", False)
    if hasattr(q, "__torch_function__"):
        from attn.torch import _ranks

        return _chosen(_ranks.attention(ranks, q, k, v, given, layout, length), plan)
    return _chosen(_core.rank_attention(ranks, q, k, v, given, layout, length, False, None)[0], plan)


class Saved(NamedTuple):
    """What a backward pass needs of a call; `output` of it is the call's."""

    ranks: Ranks
    q: Any
    k: Any
    v: Any
    options: tuple
    layout: Layout
    length: int | None
    kept: tuple
    read: list


class Gradients(NamedTuple):
    """q, k and v for this rank's rows. The others are complete and the same at every rank: sinks or None, and one entry
    for each array of the bias and each floating table of score_mod."""

    q: Any
    k: Any
    v: Any
    sinks: Any
    bias: list[Any]
    score_mod: list[Any]


def attention_forward(ranks: Ranks, q: Any, k: Any, v: Any, *, layout: Layout = "heads", length: int | None = None,
                      **options: Any) -> tuple[Any, Saved]:
    """`attention`, and what `attention_backward` needs: (results, saved). For arrays without autograd. Collective.

    The backward pass reads q, k, v, the options and the output again: one that was changed in between is an error.
    Tensors that want a gradient are refused; `attention` records them.

    >>> import numpy as np, attn, attn.mpi
    >>> x = np.eye(2, dtype=np.float32)[None, None]
    >>> output, saved = attn.mpi.attention_forward(attn.mpi.Ranks(), x, x, x)
    >>> attn.mpi.attention_backward(saved, np.ones_like(x)).v[0, 0].round(2)
    array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    given, drawn = _checked(ranks)._together(lambda: _of_constants(q, k, v, options))
    results, kept = _core.rank_attention(ranks, q, k, v, given, layout, length, True, drawn)
    seeded = (*given[:_SEED], results[4], *given[_SEED + 1 :])
    kept = (results[0] if kept[0] is None else kept[0], *kept[1:])
    arrays = zip(("q", "k", "v", "the output", "the saved max", "the saved sum"), (q, k, v, *kept))
    every = (*arrays, *(each for each in _watched.of_options(given) if each[0] != "out"))
    read = ranks._together(lambda: _watched.watched(every))
    saved = Saved(ranks, q, k, v, seeded, layout, length, kept, read)
    return _chosen(results, options.get("return_plan", False)), saved


def _of_constants(q: Any, k: Any, v: Any, options: dict[str, Any]) -> tuple[tuple, int | None]:
    """Returns the options, and for torch tensors the seed that is drawn from torch's generator; refuses tensors that
    want a gradient, have a tangent or belong to torch.func."""
    given = _options(options)
    if not any(hasattr(x, "__torch_function__") for x in (q, k, v)):
        return given, None
    from attn.torch import _autograd, _call

    for name, x in (("q", q), ("k", k), ("v", v), *_watched.of_options(given)):
        if _call.is_differentiated(x):
            raise TypeError(f"mpi.attention_forward: {name} wants a gradient, has a tangent or belongs to torch.func, "
                            "which is lost here; use attn.mpi.attention")
    return given, _autograd.drawn_seed(given)


def attention_backward(saved: Saved, grad_output: Any, grad_logsumexp: Any = None, *, sinks: bool = True,
                       bias: bool = True, score_mod: bool = True) -> Gradients:
    """The gradients of a call of `attention_forward` from those of its output and logsumexp. Collective.

    sinks, bias, score_mod  whether their gradients are wanted besides those of q, k and v
    """
    if not isinstance(saved, Saved):
        raise TypeError(f"mpi.attention_backward: saved is a {type(saved).__name__}; what attention_forward "
                        "returned is needed")
    options = saved.options
    scores = len(getattr(options[_SCORE], "arrays", ()))
    terms = getattr(options[_BIAS], "arrays", () if options[_BIAS] is None else (options[_BIAS],))
    biases = sum(x is not None for x in terms)
    has_sinks = options[_SINKS] is not None
    saved.ranks._together(lambda: _watched.check(saved.read, "mpi.attention_backward"))
    inputs = saved.ranks._together(lambda: _core.attention_inputs(saved.q, saved.k, saved.v, options))
    tables = len(inputs) - 3 - has_sinks - scores - biases
    needs = [True] * 3 + [sinks] * has_sinks + [False] * scores + [bias] * biases + [score_mod] * tables
    found = _core.rank_attention_backward(saved.ranks, saved.q, saved.k, saved.v, options, saved.layout, saved.length,
                                          saved.kept, grad_output, grad_logsumexp, needs)
    first = 3 + has_sinks + scores
    return Gradients(*found[:3], found[3] if has_sinks else None, found[first : first + biases],
                     found[first + biases :])
