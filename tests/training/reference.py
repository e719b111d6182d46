"""The same training without anything that fails: who trains for how many steps, one after another.

`python -m tests.training.reference '[[[0, 1, 2, 3], 12], [[0, 1, 3], 18]]'` prints, as JSON, the
lines that each rank's loop would write. Ranks are threads of one process over real groups: how a
sum is divided among them depends on their number and its length alone. Who comes later takes the
state of the others.
"""

import importlib
import json
import sys
from collections.abc import Sequence
from threading import Thread
from typing import Any

from nemesis.training.samples import sample_ids
from tests.training.loop import BATCH, LENGTH, SEED, checksum, parts, torch

Schedule = list[tuple[list[int], int]]
"""(members, how many steps they take)."""


def main() -> None:
    """Train, and print."""
    schedule: Schedule = json.loads(sys.argv[1])
    dist: Any = importlib.import_module("torch.distributed")
    store = dist.HashStore()
    ranks = {
        rank: parts() for rank in sorted({rank for members, _ in schedule for rank in members})
    }
    lines: dict[int, list[str]] = {rank: [] for rank in ranks}
    taken = done = 0
    before: list[int] = []
    for turn, (members, steps) in enumerate(schedule):
        for rank in set(members) - set(before) if before else ():
            for own, others in zip(ranks[rank][:2], ranks[before[0]][:2], strict=True):
                own.load_state_dict(others.state_dict())
        shared = dist.PrefixStore(str(turn), store)
        threads = [
            Thread(
                target=_train,
                args=(ranks[rank], lines[rank], shared, members, rank),
                kwargs={"steps": range(done, done + steps), "taken": taken},
            )
            for rank in members
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        taken += BATCH * len(members) * steps
        done += steps
        before = members
    sys.stdout.write(json.dumps(lines))


def _train(
    of_rank: tuple[Any, Any, Any, Any],
    lines: list[str],
    store: Any,
    members: Sequence[int],
    rank: int,
    *,
    steps: Sequence[int],
    taken: int,
) -> None:
    model, optimizer, data, wanted = of_rank
    position, names = members.index(rank), ",".join(map(str, members))
    dist: Any = importlib.import_module("torch.distributed")
    group = dist.ProcessGroupGloo(store, position, len(members))
    for done in steps:
        ids = sample_ids(taken, length=LENGTH, batch=BATCH, position=position, seed=SEED)
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
        lines.append(
            f"{done + 1} {names} {float(loss.detach()).hex()} {sum(ids)} {checksum(model)}"
        )


if __name__ == "__main__":
    main()
