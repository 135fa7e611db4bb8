# python/tests/mpi_program.py: what test_mpi.py starts on several processes: checks of attn.mpi that each of them runs.
"""mpirun -n R python mpi_program.py CHECK... Every rank must end with "rank r: good"."""

import sys

import numpy as np
from mpi4py import MPI

import attn
import attn.mpi

world = MPI.COMM_WORLD
LENGTH, DIM = 70, 16


def numbers(seed, heads, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((2, heads, LENGTH, DIM)).astype(dtype)


def same(ours, whole):
    return ours.dtype == whole.dtype and ours.shape == whole.shape and ours.tobytes() == whole.tobytes()


def raised(work, kind=attn.mpi.RankError):
    """The text of the error of `work`, which must be the same at every rank."""
    try:
        work()
    except kind as error:
        text = str(error)
    else:
        raise AssertionError("no error")
    assert set(world.allgather(text)) == {text}
    return text


def options_of(heads, dtype=np.float32):
    slopes = np.linspace(0.1, 0.9, heads).astype(dtype)
    table = np.random.default_rng(9).standard_normal((3, heads)).astype(dtype)
    return {
        "causal": {"mask": "causal"},
        "alibi": {"mask": "causal", "bias": attn.Bias.alibi(slopes)},
        "bias": {"bias": np.random.default_rng(8).standard_normal((heads, LENGTH, LENGTH)).astype(dtype)},
        "sinks": {"mask": "window(9, 3)", "sinks": slopes},
        "score_mod": {"score_mod": lambda s, b, h, i, j: s + attn.ScoreTable(table)[(i + j) % 3, h] * (h + 1)},
        "dropout": {"dropout_p": 0.25, "dropout_seed": 5, "return_logsumexp": True},
    }


def numpy():
    ranks = attn.mpi.Ranks(world)
    assert (ranks.rank, ranks.size) == (world.Get_rank(), world.Get_size())
    for layout in LAYOUTS:
        rows = ranks.rows(LENGTH, layout)
        assert sorted(sum(world.allgather(rows.tolist()), [])) == list(range(LENGTH))
    rows = ranks.rows(LENGTH)
    for dtype in (np.float32, np.float64, np.float16):
        q, k, v = numbers(1, 6, dtype), numbers(2, 3, dtype), numbers(3, 3, dtype)
        own = [np.ascontiguousarray(x[:, :, rows]) for x in (q, k, v)]
        for name, options in options_of(6, np.float32 if dtype is np.float16 else dtype).items():
            whole = attn.attention(q, k, v, **options)
            mine = attn.mpi.attention(ranks, *own, **options)
            for ours, expected in zip(*((x if isinstance(x, tuple) else (x,)) for x in (mine, whole))):
                assert same(ours, expected[:, :, rows]), name
            assert same(attn.mpi.attention_forward(ranks, *own, length=LENGTH, **options)[0][0]
                        if isinstance(mine, tuple) else
                        attn.mpi.attention_forward(ranks, *own, length=LENGTH, **options)[0],
                        (whole[0] if isinstance(whole, tuple) else whole)[:, :, rows]), name
    out = np.empty_like(own[0])
    assert attn.mpi.attention(ranks, *own, out=out) is out and same(out, attn.attention(q, k, v)[:, :, rows])


def gradients():
    ranks, alone = attn.mpi.Ranks(world), attn.mpi.Ranks()
    rows = ranks.rows(LENGTH)
    q, k, v, grad = numbers(1, 6), numbers(2, 3), numbers(3, 3), numbers(4, 6)
    grad_lse = np.random.default_rng(5).standard_normal((2, 6, LENGTH)).astype(np.float32)
    for name, options in options_of(6).items():
        _, saved = attn.mpi.attention_forward(alone, q, k, v, **options)
        whole = attn.mpi.attention_backward(saved, grad, grad_lse)
        _, saved = attn.mpi.attention_forward(ranks, q[:, :, rows], k[:, :, rows], v[:, :, rows], **options)
        mine = attn.mpi.attention_backward(saved, grad[:, :, rows], grad_lse[:, :, rows])
        for ours, expected in zip(mine[:3], whole[:3]):
            assert same(np.ascontiguousarray(ours), np.ascontiguousarray(expected[:, :, rows])), name
        assert (mine.sinks is None) == ("sinks" not in options)
        assert mine.sinks is None or same(mine.sinks, whole.sinks), name
        for ours, expected in zip([*mine.bias, *mine.score_mod], [*whole.bias, *whole.score_mod], strict=True):
            assert same(ours, expected), name


def stripes():
    ranks, alone = attn.mpi.Ranks(world), attn.mpi.Ranks()
    rows = ranks.rows(LENGTH, "stripes")
    q, k, v, grad = numbers(1, 6), numbers(2, 3), numbers(3, 3), numbers(4, 6)
    own = [np.ascontiguousarray(x[:, :, rows]) for x in (q, k, v, grad)]
    for options in ({}, {"mask": "causal", "sinks": np.linspace(0.1, 0.9, 6).astype(np.float32)}):
        whole, saved = attn.mpi.attention_forward(alone, q, k, v, **options)
        expected = attn.mpi.attention_backward(saved, grad)
        assert same(attn.mpi.attention(ranks, *own[:3], layout="stripes", **options), whole[:, :, rows])
        _, saved = attn.mpi.attention_forward(ranks, *own[:3], layout="stripes", **options)
        mine = attn.mpi.attention_backward(saved, own[3])
        for ours, x in zip(mine[:3], expected[:3]):
            assert same(np.ascontiguousarray(ours), np.ascontiguousarray(x[:, :, rows]))
        assert mine.sinks is None or same(mine.sinks, expected.sinks)


def torch():
    import torch

    ranks = attn.mpi.Ranks(world)
    rows = torch.from_numpy(ranks.rows(LENGTH))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        wide = dtype if dtype is not torch.bfloat16 else torch.float32
        whole = [torch.from_numpy(numbers(n, heads)).to(dtype) for n, heads in ((1, 6), (2, 3), (3, 3))]
        slopes = torch.linspace(0.1, 0.9, 6, dtype=wide)
        grad = torch.from_numpy(numbers(4, 6)).to(dtype)

        def run(attend, operands, grad):
            leaves = [x.clone().requires_grad_() for x in (*operands, slopes, slopes)]
            output = attend(*leaves[:3], mask="causal", sinks=leaves[3], bias=attn.Bias.alibi(leaves[4]))
            output.backward(grad)
            return [output.detach(), *(x.grad for x in leaves)]

        expected = run(attn.attention, whole, grad)
        ours = run(lambda q, k, v, **options: attn.mpi.attention(ranks, q, k, v, length=LENGTH, **options),
                   [x[:, :, rows] for x in whole], grad[:, :, rows])
        for n, (x, y) in enumerate(zip(ours, expected)):
            assert torch.equal(x, y[:, :, rows] if n < 4 else y), (dtype, n)
        with torch.no_grad():
            assert torch.equal(attn.mpi.attention(ranks, *(x[:, :, rows] for x in whole), mask="causal"),
                               attn.attention(*whole, mask="causal")[:, :, rows])
    torch.manual_seed(world.Get_rank())  # the seed is rank 0's
    seeds = torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64).item() % 2**64
    torch.manual_seed(world.Get_rank())
    dropped = attn.mpi.attention(ranks, *(x[:, :, rows] for x in whole), dropout_p=0.5)
    expected = attn.attention(*whole, dropout_p=0.5, dropout_seed=world.bcast(seeds))
    assert torch.equal(dropped, expected[:, :, rows])
    # one rank that wants a gradient: an error, not a rank that waits
    q = whole[0][:, :, rows].clone().requires_grad_(world.Get_rank() == world.Get_size() - 1)
    if world.Get_size() > 1:
        assert "saved exactly" in raised(lambda: attn.mpi.attention(ranks, q, *(x[:, :, rows] for x in whole[1:])))


def mistakes():
    ranks = attn.mpi.Ranks(world)
    size, rank = world.Get_size(), world.Get_rank()
    x = numbers(1, 3)[:, :, ranks.rows(LENGTH)]
    for guilty in range(size if size > 1 else 0):  # alone, an error is raised as it is
        mine = rank == guilty
        who = f"rank {guilty}: "
        for error in (ValueError("too much"), "too much"):
            assert raised(lambda: ranks.agree(error if mine else None)) == who + "too much"
        wrong = {
            "mpi.Ranks: timeout is 0; it must be above 0": lambda: attn.mpi.Ranks(world, timeout=0 if mine else None),
            "mpi.attention: q is a str": lambda: attn.mpi.attention(ranks, "q" if mine else x, x, x),
            "mpi.attention: there is no option masks": lambda: attn.mpi.attention(
                ranks, x, x, x, **({"masks": "causal"} if mine else {})),
            "mpi.attention: layout is": lambda: attn.mpi.attention(ranks, x, x, x, layout="rings" if mine else "heads"),
            "mpi.attention: q has shape [2, 3, ": lambda: attn.mpi.attention(ranks, x[..., 0] if mine else x, x, x),
            "a table failed": lambda: attn.mpi.attention(ranks, x, x, x, score_mod=fails if mine else None),
            "rank_attention: temperature is -1": lambda: attn.mpi.attention(ranks, x, x, x,
                                                                            temperature=-1 if mine else 1),
        }
        for text, work in wrong.items():
            found = raised(work)
            assert found.startswith(who + text), found
        try:
            ranks.agree("no" if mine else None)
        except attn.mpi.RankError as error:
            assert error.rank == guilty
        else:
            raise AssertionError("no error")
    # every rank's own mistakes
    for make, kind, text in (
            (lambda: attn.mpi.Ranks(5), TypeError,
             "mpi.Ranks: comm is a int; a communicator of mpi4py is needed, as MPI.COMM_WORLD"),
            (lambda: attn.mpi.Ranks(MPI.COMM_NULL), ValueError,
             "mpi.Ranks: the communicator is null, freed, or between two groups; one of a single group is needed"),
            (lambda: attn.mpi.Ranks(timeout=0), ValueError,
             "mpi.Ranks: timeout is 0; it must be above 0, or None to wait for ever"),
            (lambda: ranks.set_timeout(-1), ValueError,
             "mpi.Ranks: timeout is -1; it must be above 0, or None to wait for ever"),
            (lambda: ranks.set_timeout("1"), ValueError,
             "mpi.Ranks: timeout is a str; it must be above 0, or None to wait for ever"),
            (lambda: attn.mpi.attention(world, x, x, x), TypeError,
             "mpi.attention: ranks is a Intracomm; an attn.mpi.Ranks is needed")):
        assert raised(make, kind) == text
    halves = world.Split(rank % 2)
    part = attn.mpi.Ranks(halves)
    assert part.size == halves.Get_size()
    if size > 1:
        between = halves.Create_intercomm(0, world, 1 - rank % 2)
        assert "between two groups" in raised(lambda: attn.mpi.Ranks(between), ValueError)
    four = numbers(1, 2)[:, :, ranks.rows(LENGTH)]
    if size > 2:
        assert raised(lambda: attn.mpi.attention(ranks, four, four, four)).startswith(
            f"rank 0: rank_attention: {size} ranks, but k has 2 heads")


def fails(s, b, h, i, j):
    raise ValueError("a table failed")


def finalised():
    ranks = attn.mpi.Ranks(world)
    x = numbers(1, 3)[:, :, ranks.rows(LENGTH)]
    attn.mpi.attention(ranks, x, x, x)
    MPI.Finalize()
    text = "MPI has been finalised; ranks can be used until then"
    # one process computes without MPI, but has no Ranks of a communicator
    for work, alone in ((lambda: attn.mpi.attention(ranks, x, x, x), True), (ranks.agree, True),
                        (lambda: attn.mpi.Ranks(world), False)):
        try:
            work()
        except ValueError as error:
            assert str(error).endswith(text) and "\n" not in str(error), error
        else:
            assert alone and ranks.size == 1, "no error"


LAYOUTS = ("heads", "stripes")

if __name__ == "__main__":
    rank = world.Get_rank()
    checks = {"numpy": numpy, "gradients": gradients, "stripes": stripes, "torch": torch, "mistakes": mistakes,
              "finalised": finalised}
    for name in sys.argv[1:]:
        checks[name]()
    sys.stdout.write(f"rank {rank}: good\n")  # in one piece, for the launcher mixes what ranks write
