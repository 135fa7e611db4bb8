# python/tests/error_rule.py: the error rule of docs/numerics.md section 7, for tensors of torch.
import torch

CALLS_AGAIN = 256  # docs/numerics.md section 7


def assert_as_close_as(ours, theirs, truth, label="", most=1):
    """|ours - truth| <= 2 |theirs - truth| + 4 eps max|truth|, per tensor; NaN and inf where the truth has them. most:
    how many times the bound."""
    assert ours.shape == truth.shape and ours.dtype == theirs.dtype, (
        label, ours.shape, truth.shape, ours.dtype, theirs.dtype)
    if truth.numel() == 0:
        return
    ours, truth = ours.detach().double(), truth.detach().double()
    finite = torch.isfinite(truth)
    assert torch.equal(torch.isnan(ours), torch.isnan(truth)), f"{label}: NaN at other places"
    assert torch.equal(ours[torch.isinf(truth)], truth[torch.isinf(truth)]), f"{label}: inf at other places"
    if not finite.any():
        return
    torchs = (theirs.detach().double() - truth)[finite].abs().max().item()
    error = (ours - truth)[finite].abs().max().item()
    scale = truth[finite].abs().max().item()
    bound = 2 * torchs + 4 * torch.finfo(theirs.dtype).eps * scale
    assert error <= most * bound, (
        f"{label}: {error:g} from the truth, torch {torchs:g}, bound {bound:g}, largest {scale:g}")


def assert_rule_holds(compared, label, most=None, calls_again=CALLS_AGAIN):
    """The rule for each tensor of a call: compared(n) -> {name: (ours, theirs, truth)}, n > 0 with other numbers. Where
    one call does not hold it, those with other numbers as one tensor. most: {name: how many times the bound, then}.
    Returns the names of the latter."""
    again = []
    for name, tensors in compared(0).items():
        try:
            assert_as_close_as(*tensors, f"{label}: {name}")
        except AssertionError:
            again.append(name)
    calls = [compared(n) for n in range(1, calls_again + 1)] if again else []
    for name in again:
        together = [torch.cat([x.detach().flatten() for x in way]) for way in zip(*(call[name] for call in calls))]
        assert_as_close_as(*together, f"{label}: {name}, {calls_again} calls", most=(most or {}).get(name, 1))
    return again
