"""The loop of `fsdp_loop` by torch alone, its own HSDP: two replicas up to a step, one from it on.

`python -m tests.training.fsdp_reference RANK WORLD FOLDER STEPS CHANGE REST`: the ranks in REST,
one replica, shard a module anew at step CHANGE, with the same parts, and go on.
"""

import os
import sys
from pathlib import Path
from typing import Any

from nemesis.training.samples import sample_ids
from tests.training.ddp_loop import samples, torch
from tests.training.fsdp_loop import (
    BATCH,
    LENGTH,
    NORM,
    SEED,
    line_of,
    mesh_of,
    module,
    optimizer_of,
)


def moved(model: Any, optimizer: Any, mesh: Any) -> tuple[Any, Any]:
    """The same parts of a module that has no replicas."""
    drawn = torch.get_rng_state()
    new = module(mesh)
    torch.set_rng_state(drawn)
    after = optimizer_of(new)
    for old, own in zip(model.parameters(), new.parameters(), strict=True):
        own.detach().to_local().copy_(old.detach().to_local())
        state = optimizer.state[old]
        after.state[own] = {"step": state["step"]} | {
            name: torch.zeros_like(own).detach() for name in ("exp_avg", "exp_avg_sq")
        }
        for name in ("exp_avg", "exp_avg_sq"):
            after.state[own][name].to_local().copy_(state[name].to_local())
    return new, after


def main() -> None:
    """Train, and write a line a step as the loop does."""
    rank, world, folder, last = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    change, rest = int(sys.argv[5]), [int(each) for each in sys.argv[6].split(",")]
    members = list(range(world))
    mesh = mesh_of(Path(folder), rank, world)
    model = module(mesh)
    optimizer = optimizer_of(model)
    data, wanted = samples()
    torch.manual_seed(SEED + rank)
    taken = 0
    told = Path(folder, f"reference_{rank}.txt")
    for done in range(last):
        if done == change:
            members = rest
            if rank not in members:
                break
            model, optimizer = moved(model, optimizer, mesh["shard"])
        position = members.index(rank)
        ids = sample_ids(taken, length=LENGTH, batch=BATCH, position=position, seed=SEED)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data[ids]), wanted[ids])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        taken += BATCH * len(members)
        with told.open("a") as file:
            file.write(line_of(done + 1, members, loss, model))
    os._exit(0)


if __name__ == "__main__":
    main()
