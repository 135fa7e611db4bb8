# python/tests/test_mpi.py: attn.mpi on 1, 2 and 3 processes that a launcher starts; alone without one.
import atexit
import functools
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import attn
import attn.mpi

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(__file__).with_name("mpi_program.py")
LIBRARIES = {"openmpi": ROOT / "build/mpi/openmpi/mpi/libattn_mpi_openmpi.so",
             "mpich": ROOT / "build/mpi/mpich/mpi/libattn_mpi_mpich.so"}


def mpi4py_uses(family):
    """Whether mpi4py can use that family's library."""
    pytest.importorskip("mpi4py", reason="not installed: mpi4py (./setup --mpi)")
    code = "from mpi4py import MPI; print(MPI.Get_library_version())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(family))
    return ("Open MPI" in said.stdout) == (family == "openmpi") and said.returncode == 0


@functools.cache
def mpich_by_its_usual_name():
    """Returns a folder in which Debian's libmpich.so.12 has the name that mpi4py's wheel looks for."""
    folder = tempfile.mkdtemp(prefix="attn_mpich_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for library in sorted(pathlib.Path("/usr/lib").glob("*/libmpich.so.12")):
        pathlib.Path(folder, "libmpi.so.12").symlink_to(library)
        break
    return folder


def environment(family, **more):
    found = {**os.environ, "ATTN_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
             "OMPI_MCA_mpi_yield_when_idle": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    if LIBRARIES[family].exists():
        found["ATTN_MPI_LIBRARY"] = str(LIBRARIES[family])
    if family == "mpich":
        found |= {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": mpich_by_its_usual_name()}
    return {**found, **more}


def launched(family, ranks, *arguments, **more):
    """Runs python with the arguments on that many ranks."""
    return subprocess.run([shutil.which(f"mpiexec.{family}"), "-n", str(ranks), sys.executable, *map(str, arguments)],
                          capture_output=True, text=True, timeout=120, env=environment(family, **more))


@pytest.fixture(params=["openmpi", "mpich"])
def family(request):
    if shutil.which(f"mpiexec.{request.param}") is None:
        pytest.skip(f"not installed: {request.param} (./setup --mpi)")
    if not mpi4py_uses(request.param):
        pytest.skip(f"not installed: {request.param} where mpi4py finds it")
    if not LIBRARIES[request.param].exists():
        pytest.skip(f"not installed: attn's library for {request.param} (tests/mpi/run builds it)")
    return request.param


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_on_ranks(family, ranks):
    checks = ["numpy", "gradients", "stripes", "mistakes", "finalised"]
    if importlib.util.find_spec("torch"):
        checks.insert(3, "torch")
    result = launched(family, ranks, PROGRAM, *checks)
    assert result.returncode == 0, f"{ranks} ranks\n{result.stdout}{result.stderr}"
    assert sorted(line for line in result.stdout.splitlines() if line.endswith(": good")) == [
        f"rank {rank}: good" for rank in range(ranks)]


MAKE = ("import sys; from mpi4py import MPI; import attn.mpi\ntry: attn.mpi.Ranks(MPI.COMM_WORLD)\n"
        "except Exception as e: sys.stdout.write(f'{e}\\n')")


def test_a_library_that_is_not_there_is_named(family):
    result = launched(family, 2, "-c", MAKE, ATTN_MPI_LIBRARY="/no/such/library.so")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 2 and len(set(lines)) == 1, lines
    assert "/no/such/library.so" in lines[0] and "-DATTN_WITH_MPI=ON" in lines[0]


def test_a_library_of_the_other_mpi_is_refused():
    if not all(path.exists() for path in LIBRARIES.values()) or not mpi4py_uses("openmpi"):
        pytest.skip("not installed: attn's libraries for both families of MPI (tests/mpi/run builds them)")
    result = launched("openmpi", 2, "-c", MAKE, ATTN_MPI_LIBRARY=str(LIBRARIES["mpich"]))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 2 and len(set(lines)) == 1, lines
    assert "the program's MPI is Open MPI" in lines[0] and lines[0].endswith("is for MPICH; they must be the same")


def test_the_launcher_of_the_other_mpi_is_refused(monkeypatch):
    pytest.importorskip("mpi4py", reason="not installed: mpi4py (./setup --mpi)")
    if not mpi4py_uses("openmpi"):
        pytest.skip("not installed: Open MPI where mpi4py finds it")
    # each process would be alone, and the job done several times
    result = subprocess.run([sys.executable, "-c", MAKE], capture_output=True, text=True, timeout=60,
                            env=environment("openmpi", PMI_SIZE="3", PMI_RANK="1"))
    assert result.stdout == ("mpi.Ranks: MPICH's launcher started 3 processes, and mpi4py uses Open MPI; both must be "
                             "one MPI\n"), result.stdout + result.stderr


def test_a_launcher_of_another_name_that_started_the_world(family):
    """As srun --mpi=pmi2 does, which sets PMI_SIZE for Open MPI too."""
    code = "import os; os.environ.pop('OMPI_COMM_WORLD_SIZE', 0)\n" if family == "openmpi" else ""
    other = "PMI_SIZE" if family == "openmpi" else "OMPI_COMM_WORLD_SIZE"
    result = launched(family, 2, "-c", f"import mpi4py.MPI\n{code}{MAKE}", **{other: "2"})
    assert result.returncode == 0 and result.stdout == "", result.stdout + result.stderr


def test_alone_is_attention(random):
    q, k, v = (random.standard_normal((2, heads, 9, 4), dtype=np.float32) for heads in (4, 2, 2))
    ranks = attn.mpi.Ranks()
    assert (ranks.rank, ranks.size, ranks.rows(3).tolist()) == (0, 1, [0, 1, 2])
    for options in ({}, {"mask": "causal", "weights": "head_average"}, {"return_plan": True}):
        ours, expected = (x if isinstance(x, tuple) else (x,) for x in (
            attn.mpi.attention(ranks, q, k, v, **options), attn.attention(q, k, v, **options)))
        assert len(ours) == len(expected) and all(
            np.array_equal(x, y) for x, y in zip(ours, expected) if isinstance(x, np.ndarray))
    _, saved = attn.mpi.attention_forward(ranks, q, k, v, bias=np.zeros((9, 9), np.float32))
    gradients = attn.mpi.attention_backward(saved, np.ones_like(q))
    assert gradients.sinks is None and gradients.bias[0].shape == (9, 9) and gradients.score_mod == []
    assert attn.mpi.attention_backward(saved, np.ones_like(q), bias=False).bias == [None]


def test_mistakes_alone():
    x = np.zeros((1, 2, 3, 4), np.float32)
    ranks = attn.mpi.Ranks()
    with pytest.raises(TypeError, match=r"^mpi.attention: there is no option causal; write mask=\"causal\"$"):
        attn.mpi.attention(ranks, x, x, x, causal=True)
    with pytest.raises(TypeError, match="^mpi.attention: ranks is a int; an attn.mpi.Ranks is needed$"):
        attn.mpi.attention(3, x, x, x)
    with pytest.raises(ValueError, match=r"^mpi.attention: q has shape \[2, 3, 4\]; it must be \[B, H, rows of this"):
        attn.mpi.attention(ranks, x[0], x, x)
    with pytest.raises(ValueError, match="of 4 rows on 1 ranks this one must have 4$"):
        attn.mpi.attention(ranks, x, x, x, length=4)
    with pytest.raises(TypeError, match="^mpi.attention_backward: saved is a tuple; what attention_forward returned"):
        attn.mpi.attention_backward((), x)
    with pytest.raises(ValueError, match="^mpi.Ranks.rows: length is -1; it must be at least 0$"):
        ranks.rows(-1)
    with pytest.raises(ZeroDivisionError):
        ranks.agree(ZeroDivisionError("itself"))
    assert ranks.agree() is None


def test_returned_weights_have_no_gradient():
    torch = pytest.importorskip("torch")
    ranks, x = attn.mpi.Ranks(), torch.zeros(1, 2, 3, 4)
    learned = x.clone().requires_grad_()
    for weights in ("full", "top_k(2)", attn.Weights.top_k(1)):
        with pytest.raises(ValueError, match="^mpi.attention: weights are requested and a gradient is wanted, .*no"):
            attn.mpi.attention(ranks, learned, x, x, weights=weights)
        with torch.no_grad():
            assert len(attn.mpi.attention(ranks, learned, x, x, weights=weights)) == 2
    assert attn.mpi.attention(ranks, learned, x, x, weights="none").requires_grad


CHANGED = {
    "q": lambda q, k, v, bias, output: q,
    "k": lambda q, k, v, bias, output: k,
    "v": lambda q, k, v, bias, output: v,
    "the array of bias": lambda q, k, v, bias, output: bias,
    "the output": lambda q, k, v, bias, output: output,
}


@pytest.mark.parametrize("of_torch", [False, True])
@pytest.mark.parametrize("name", CHANGED)
def test_what_was_changed_before_the_backward_pass_is_an_error(random, name, of_torch):
    arrays = [random.standard_normal((2, heads, 9, 4), dtype=np.float32) for heads in (4, 2, 2)]
    arrays.append(random.standard_normal((4, 9, 9), dtype=np.float32))
    if of_torch:
        arrays = [pytest.importorskip("torch").from_numpy(x) for x in arrays]
    q, k, v, bias = arrays
    output, saved = attn.mpi.attention_forward(attn.mpi.Ranks(), q, k, v, bias=attn.Bias.dense(bias))
    attn.mpi.attention_backward(saved, q)
    CHANGED[name](q, k, v, bias, output)[..., 0] += 1
    with pytest.raises(RuntimeError, match=rf"^mpi.attention_backward: {name} of shape .* was changed in place"):
        attn.mpi.attention_backward(saved, q)


def test_attention_forward_is_for_arrays_without_autograd():
    torch = pytest.importorskip("torch")
    ranks, x, slopes = attn.mpi.Ranks(), torch.ones(1, 2, 3, 4), torch.ones(2)
    learn = lambda x: x.clone().requires_grad_()
    text = "wants a gradient, has a tangent or belongs to torch.func, which is lost here; use attn.mpi.attention$"
    for name, q, options in (("q", learn(x), {}), ("sinks", x, {"sinks": learn(slopes)}),
                             ("the array of bias", x, {"bias": attn.Bias.alibi(learn(slopes))})):
        with pytest.raises(TypeError, match=f"^mpi.attention_forward: {name} {text}"):
            attn.mpi.attention_forward(ranks, q, x, x, **options)
        with torch.no_grad():
            attn.mpi.attention_forward(ranks, q, x, x, **options)
    torch.manual_seed(1)
    first, _ = attn.mpi.attention_forward(ranks, x, x, x, dropout_p=0.5)
    torch.manual_seed(1)
    assert torch.equal(attn.mpi.attention_forward(ranks, x, x, x, dropout_p=0.5)[0], first)


def test_a_rank_that_is_not_heard_ends_the_others(family):
    code = ("import time; from mpi4py import MPI; import attn.mpi\n"
            "ranks = attn.mpi.Ranks(MPI.COMM_WORLD, timeout=1)\n"
            "if ranks.rank == 1: time.sleep(60)\n"
            "ranks.agree()")
    result = launched(family, 2, "-c", code)
    assert result.returncode != 0
    assert "nothing was heard of the other ranks for 1 s" in result.stderr
