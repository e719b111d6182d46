"""What the hook costs a step that nothing happens in: a rank measures, alone in its group.

Beside it the same reduction by hand, over gloo as well: flatten, sum, divide, put back. The median
over many steps of each, in turn; and how long a checksum of ten million parameters takes, of which
one is made every hundred steps. Writes nanoseconds as JSON to OUT.
"""

import importlib
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import nemesis
from nemesis.training.checksum import checksum
from tests.training.loop import BATCH, LENGTH, SEED, parts, torch

STEPS = 3_000
WARM_STEPS = 200
CHECKED_COUNT, CHECKS = 10_000_000, 30


def checked() -> list[int]:
    """How long each of some checksums took."""
    large = torch.nn.Linear(1_000, CHECKED_COUNT // 1_000, bias=False)
    took: list[int] = []
    for _ in range(CHECKS):
        began_ns = time.perf_counter_ns()
        int(checksum(torch, [large]))
        took.append(time.perf_counter_ns() - began_ns)
    return took


def main() -> None:
    """Measure both."""
    dist: Any = importlib.import_module("torch.distributed")
    model, optimizer, _, _ = parts()
    parameters = list(model.parameters())
    for each in parameters:
        each.grad = torch.zeros_like(each)
    hook = nemesis.attach(model, optimizer, seed=SEED)
    out = Path(os.environ["OUT"])
    group = dist.ProcessGroupGloo(dist.FileStore(str(out / "store"), 1), 0, 1)
    by_hook: list[int] = []
    by_hand: list[int] = []
    for _ in range(STEPS):
        began_ns = time.perf_counter_ns()
        with hook.step() as step:
            step.samples(LENGTH, BATCH)
            step.average(parameters)
        between_ns = time.perf_counter_ns()
        flat = torch.cat([each.grad.reshape(-1) for each in parameters])
        group.allreduce([flat]).wait()
        flat /= 1
        at = 0
        for each in parameters:
            each.grad.copy_(flat[at : at + each.numel()].view_as(each))
            at += each.numel()
        by_hand.append(time.perf_counter_ns() - between_ns)
        by_hook.append(between_ns - began_ns)
    told = {
        "hook_ns": statistics.median(by_hook[WARM_STEPS:]),
        "hand_ns": statistics.median(by_hand[WARM_STEPS:]),
        "checksum_ns": statistics.median(checked()),
    }
    (out / "overhead.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
