#!/usr/bin/env python3
# tests/golden/optim/make.py: learning rates of torch's schedulers, step by step, for tests/optim. Run with PyTorch 2.13.0 (CPU).
import json
import pathlib

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR


def rates(peak, last, warmup, steps, decay):
    """The rate of each step: a line from peak / (warmup + 1), then a half cosine or a line to `last`."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    down = CosineAnnealingLR(optimizer, steps - warmup, eta_min=last) if decay == "cosine" else LinearLR(
        optimizer, 1.0, last / peak, total_iters=steps - warmup)
    schedule = down
    if warmup:
        up = LinearLR(optimizer, 1 / (warmup + 1), 1.0, total_iters=warmup)
        schedule = SequentialLR(optimizer, [up, down], milestones=[warmup])
    result = []
    for _ in range(steps + 1):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return result


cases = []
for decay in ("cosine", "linear"):
    for peak, last, warmup, steps in ((1e-3, 0.0, 0, 10), (3e-4, 3e-5, 5, 23), (0.1, 0.01, 1, 7)):
        cases.append({"peak": peak, "last": last, "warmup": warmup, "steps": steps, "decay": decay, "lr": rates(peak, last, warmup, steps, decay)})
path = pathlib.Path(__file__).with_name("schedules.json")
path.write_text(json.dumps({"torch": torch.__version__, "cases": cases}, indent=1) + "\n")
