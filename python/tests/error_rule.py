# python/tests/error_rule.py: the error rule of docs/numerics.md section 7, for tensors of torch.
import torch

# times the bound: what delta costs where one key has most of the weight (docs/numerics.md section 7)
BESIDE_DELTA = 1.6


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
