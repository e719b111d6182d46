"""The same training without anything that fails: so many ranks up to a step, fewer from it on.

`python -m tests.training.reference RANK STORE STEPS CHANGE REST`: rank 0 to 3 of four train
together through a store file; from step CHANGE on those named in REST do.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from nemesis.training.samples import sample_ids
from tests.training.loop import BATCH, LENGTH, SEED, checksum, parts, torch


def main() -> None:
    """Train, and print a line a step as the loop does."""
    rank, store, last, change = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rest = [int(each) for each in sys.argv[5].split(",")]
    dist: Any = importlib.import_module("torch.distributed")
    model, optimizer, data, wanted = parts()
    taken = 0
    members: list[int] = []
    group: Any = None
    for done in range(last):
        before, members = members, [0, 1, 2, 3] if done < change else rest
        if rank not in members:
            return
        if members != before:
            shared = dist.FileStore(f"{store}.{len(members)}", len(members))
            group = dist.ProcessGroupGloo(shared, members.index(rank), len(members))
        ids = list(
            sample_ids(taken, length=LENGTH, batch=BATCH, position=members.index(rank), seed=SEED)
        )
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data[ids]), wanted[ids])
        loss.backward()
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        # one number more, as the hook has: how a sum is divided among ranks depends on its length
        flat = torch.cat([each.reshape(-1) for each in gradients] + [torch.zeros(1)])
        group.allreduce([flat]).wait()
        flat /= len(members)
        at = 0
        for each in gradients:
            each.copy_(flat[at : at + each.numel()].view_as(each))
            at += each.numel()
        optimizer.step()
        taken += BATCH * len(members)
        with Path(f"{store}.rank_{rank}.txt").open("a") as told:
            names = ",".join(map(str, members))
            told.write(
                f"{done + 1} {names} {float(loss.detach()).hex()} {sum(ids)} {checksum(model)}\n"
            )


if __name__ == "__main__":
    main()
