# python/tests/test_torch_empty.py: calls in which a size is 0, of every rank, against torch's own:
# shapes, dtypes, values, gradients, transforms.
import itertools

import pytest

torch = pytest.importorskip("torch")

import attn
import attn.torch
from error_rule import assert_as_close_as
from random_tensors import draw

F = torch.nn.functional
SIZES = {"B": 2, "Hq": 4, "L": 3, "S": 5, "E": 6, "Ev": 7}
LEADS = {2: (), 3: ("Hq",), 4: ("B", "Hq"), 5: (2, "B", "Hq"), 6: (1, 2, "B", "Hq")}
OPTIONS = ("plain", "causal", "bool", "float", "float that learns", "gqa", "scale")


def operands(rank, none, option, dtype):
    """q, k, v, mask and keywords of a call whose sizes named in `none` are 0; None where there is no such call."""
    sizes = {**SIZES, **dict.fromkeys(none, 0)}
    lead = [sizes.get(n, n) for n in LEADS[rank]]
    groups = lead
    if option == "gqa":
        if rank < 3:
            return None
        groups = [*lead[:-1], 2 if sizes["Hq"] else 0]
    q, k, v = (draw(*shape, dtype=dtype)
               for shape in ((*lead, sizes["L"], sizes["E"]), (*groups, sizes["S"], sizes["E"]),
                             (*groups, sizes["S"], sizes["Ev"])))
    mask, keywords = None, {}
    if option == "causal":
        keywords["is_causal"] = True
    if option == "scale":
        keywords["scale"] = 0.3
    if option == "gqa":
        keywords["enable_gqa"] = True
    if option == "bool":
        mask = draw(sizes["L"], sizes["S"]) > -0.7
    if option.startswith("float"):
        mask = draw(*lead, 1, sizes["S"], dtype=dtype)
    return q, k, v, mask, keywords


def calls():
    """Every rank with one or two sizes of 0, and every option in turn."""
    numbers = itertools.count()
    for rank in LEADS:
        there = [n for n in SIZES if n in ("L", "S", "E", "Ev") or n in LEADS[rank]]
        for none in (*((n,) for n in there), *itertools.combinations(there, 2)):
            for option in OPTIONS:
                dtype = (torch.float32, torch.float32, torch.float64, torch.bfloat16)[next(numbers) % 4]
                call = operands(rank, none, option, dtype)
                if call is not None:
                    yield f"rank {rank}, no {' and '.join(none)}, {option}, {dtype}", option, call


def results(function, option, q, k, v, mask, keywords, dtype=None):
    """The output and the gradients, or what was raised."""
    leaves = [x.detach().clone().to(dtype or x.dtype).requires_grad_() for x in (q, k, v)]
    if mask is not None and option == "float that learns":
        mask = mask.detach().clone().to(dtype or mask.dtype).requires_grad_()
        leaves.append(mask)
    elif mask is not None and mask.is_floating_point() and dtype:
        mask = mask.to(dtype)
    try:
        output = function(*leaves[:3], mask, **keywords)
    except (RuntimeError, TypeError, ValueError) as error:
        return error
    weights = torch.linspace(0.5, 1.5, output.numel(), dtype=torch.float64).view(output.shape).to(output.dtype)
    return output, *torch.autograd.grad((output * weights).sum(), leaves, allow_unused=True)


def compare(label, ours, theirs, truth):
    assert not isinstance(theirs, Exception) or isinstance(ours, Exception), f"{label}: torch raises {theirs}"
    if isinstance(theirs, Exception):
        return
    assert not isinstance(ours, Exception), f"{label}: {ours!r}"
    for n, (a, b, c) in enumerate(zip(ours, theirs, truth, strict=True)):
        if b is None:  # a mask that no row meets: torch's has no history, of zeros or none
            assert a is None or not a.any(), (label, n)
        else:
            assert_as_close_as(a, b, c, f"{label}, result {n}")


def test_every_size_of_none():
    count = 0
    for label, option, (q, k, v, mask, keywords) in calls():
        theirs = results(F.scaled_dot_product_attention, option, q, k, v, mask, keywords)
        truth = results(F.scaled_dot_product_attention, option, q, k, v, mask, keywords, torch.float64)
        ours = results(attn.torch.scaled_dot_product_attention, option, q, k, v, mask, keywords)
        compare(label, ours, theirs, truth)
        with attn.torch.patch():
            compare(f"{label}, patched", results(F.scaled_dot_product_attention, option, q, k, v, mask, keywords),
                    theirs, truth)
        with torch.no_grad():
            if not isinstance(theirs, Exception):
                assert_as_close_as(attn.torch.scaled_dot_product_attention(q, k, v, mask, **keywords), theirs[0],
                                   truth[0], f"{label}, no gradients")
        count += 1
    assert count > 600


@pytest.mark.parametrize("how", ["vmap", "autocast", "dropout", "compile"])
def test_sizes_of_none_elsewhere(how):
    for rank, none in itertools.product((3, 4, 5), ("Hq", "L", "S", "E", "Ev")):
        q, k, v, _, _ = operands(rank, (none,), "plain", torch.float32)

        def run(function):
            call = {
                "vmap": lambda q, k, v: torch.func.vmap(function)(q, k, v),
                "autocast": function,
                "dropout": lambda q, k, v: function(q, k, v, dropout_p=1.0),
                "compile": torch.compile(lambda q, k, v: function(q, k, v), backend="aot_eager", fullgraph=True),
            }[how]
            with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
                return results(lambda q, k, v, mask: call(q, k, v), "plain", q, k, v, None, {})

        torch._dynamo.reset()
        theirs, ours = run(F.scaled_dot_product_attention), run(attn.torch.scaled_dot_product_attention)
        label = f"{how}, rank {rank}, no {none}"
        if isinstance(theirs, Exception):
            continue
        assert not isinstance(ours, Exception), f"{label}: {ours!r}"
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, label
            torch.testing.assert_close(a, b, rtol=2e-2 if how == "autocast" else 1e-5,
                                       atol=1e-2 if how == "autocast" else 1e-6)


LINEAR = [(x, w, with_bias)
          for x in ((0,), (4,), (0, 4), (3, 0), (2, 0, 4), (0, 3, 4), (2, 3, 0), (0, 0), (2, 3, 4), (1, 0, 2, 4))
          for w in ((5, x[-1]), (0, x[-1])) for with_bias in (True, False)]


@pytest.mark.parametrize("how", ["plain", "patched", "autocast", "vmap", "twice"])
def test_linear(how):
    for dtype, (x_sizes, w_sizes,
                with_bias) in itertools.product((torch.float32, torch.bfloat16, torch.float64), LINEAR):
        if how == "vmap" and len(x_sizes) == 1:
            continue
        tensors = [draw(*x_sizes, dtype=dtype), draw(*w_sizes, dtype=dtype),
                   *([draw(w_sizes[0], dtype=dtype)] if with_bias else [])]

        def run(function, dtype=None):
            leaves = [x.detach().clone().to(dtype or x.dtype).requires_grad_() for x in tensors]
            with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast" and dtype is None):
                y = (torch.func.vmap(function, (0, *(None for _ in leaves[1:])))(*leaves) if how == "vmap"
                     else function(*leaves))
            first = torch.autograd.grad((y * y).sum(), leaves, create_graph=how == "twice")
            second = torch.autograd.grad(sum((x * x).sum() for x in first), leaves) if how == "twice" else ()
            return (y, *first, *second)

        theirs, truth = run(F.linear), run(F.linear, torch.float64)
        if how == "patched":
            with attn.torch.patch(linear=True):
                ours = run(F.linear)
        else:
            ours = run(attn.torch.linear)
        for n, (a, b, c) in enumerate(zip(ours, theirs, truth, strict=True)):
            assert_as_close_as(a, b, c, f"{how}, {dtype}, {x_sizes} by {w_sizes}, bias {with_bias}, result {n}")


def test_the_module():
    for batch, rows, keys, options in itertools.product((0, 2), (0, 3), (0, 4),
                                                        ({}, {"add_zero_attn": True}, {"add_bias_kv": True},
                                                         {"kdim": 5, "vdim": 6})):
        torch.manual_seed(0)
        theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, **options)
        ours = attn.torch.MultiheadAttention(8, 2, batch_first=True, **options)
        ours.load_state_dict(theirs.state_dict())
        q, k, v = (draw(batch, rows, 8), draw(batch, keys, options.get("kdim", 8)),
                   draw(batch, keys, options.get("vdim", 8)))
        runs = []
        for module in (theirs, ours):
            x = q.clone().requires_grad_()
            try:
                y, weights = module(x, k, v)
                runs.append((y, weights, torch.autograd.grad(y.sum(), x)[0]))
            except RuntimeError as error:
                runs.append(error)
        label = f"{batch}, {rows}, {keys}, {options}"
        if isinstance(runs[0], Exception):
            continue
        assert not isinstance(runs[1], Exception), f"{label}: {runs[1]!r}"
        for a, b in zip(*runs, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, label
            if keys or options.get("add_zero_attn") or options.get("add_bias_kv"):
                torch.testing.assert_close(a, b)


def test_what_is_not_kept_may_be_changed():
    """torch keeps a factor for the other one's gradient alone, and of a bool mask what it made of it."""
    x, w = draw(3, 4), draw(5, 4)
    for function in (F.linear, attn.torch.linear):
        for learns in (0, 1):
            leaves = [x.clone().requires_grad_(learns == 0), w.clone().requires_grad_(learns == 1)]
            y = function(*leaves)
            leaves[learns].detach().mul_(3)
            expected = (w.sum(0).expand(3, 4), x.sum(0).expand(5, 4))[learns]
            torch.testing.assert_close(torch.autograd.grad(y.sum(), leaves[learns])[0], expected)
    q, seen = draw(1, 2, 6, 4), draw(6, 6) > 0
    found = []
    for function in (F.scaled_dot_product_attention, attn.torch.scaled_dot_product_attention):
        leaf, mask = q.clone().requires_grad_(), seen.clone()
        y = function(leaf, leaf, leaf, mask)
        mask.logical_not_()
        found.append(torch.autograd.grad(y.sum(), leaf)[0])
    torch.testing.assert_close(*found)
