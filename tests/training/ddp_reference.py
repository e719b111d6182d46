"""The loop of `ddp_loop` without NEMESIS: so many ranks up to a step, fewer from it on.

`python -m tests.training.ddp_reference RANK WORLD FOLDER STEPS CHANGE REST HOOKED`: those in REST
wrap their modules anew at step CHANGE and go on. HOOKED: 1, the first bucket is summed with one
number more, as the agreement has it (how a sum of more than two is divided among ranks, and so its
last bit, depends on its length); 0, by DDP alone.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from nemesis.training.samples import sample_ids
from tests.training.ddp_loop import (
    BATCH,
    LENGTH,
    SEED,
    line_of,
    module,
    samples,
    torch,
    wrapped,
)

dist: Any = importlib.import_module("torch.distributed")


def summed(bucket: Any) -> Any:
    """The mean of a bucket, the first with a number more."""
    given = bucket.buffer() * (1 / dist.get_world_size())
    flat = torch.cat([given, given.new_zeros(1)]) if bucket.index() == 0 else given
    future = dist.all_reduce(flat, async_op=True).get_future()
    return future.then(lambda done: done.value()[0][: given.numel()])


def main() -> None:
    """Train, and print a line a step as the loop does."""
    rank, world, folder, last = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    change, rest = int(sys.argv[5]), [int(each) for each in sys.argv[6].split(",")]
    members = list(range(world))
    plain = module()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)
    data, wanted = samples()
    model: Any = None
    taken = 0
    told = Path(folder, f"reference_{rank}.txt")
    for done in range(last):
        if done in (0, change):
            if model is not None:
                members = rest
                dist.destroy_process_group()
            if rank not in members:
                os._exit(0)  # the interpreter's own end waited for threads of gloo once, for good
            dist.init_process_group(
                "gloo",
                init_method=f"file://{folder}/store_{done}",
                rank=members.index(rank),
                world_size=len(members),
            )
            drawn = torch.get_rng_state()
            model = wrapped(plain)
            torch.set_rng_state(drawn)
            if int(sys.argv[7]):
                model.register_comm_hook(None, lambda state, bucket: summed(bucket))
            if done == 0:
                torch.manual_seed(SEED + rank)
        position = members.index(rank)
        ids = sample_ids(taken, length=LENGTH, batch=BATCH, position=position, seed=SEED)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data[ids]), wanted[ids])
        loss.backward()
        optimizer.step()
        taken += BATCH * len(members)
        with told.open("a") as file:
            file.write(line_of(done + 1, members, loss, model))
    os._exit(0)


if __name__ == "__main__":
    main()
