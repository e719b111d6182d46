"""A loop over torch's DDP, as somebody wrote it who then added four lines.

Environment: OUT, a folder; STEPS; FATE `KIND:RANK@STEP`, what befalls whom before its backward pass
of that step; RANK and WORLD_SIZE as torchrun has them. Appends one line a step: number, members,
loss and a sum of all parameters and buffers, exactly.
"""

import importlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nemesis

torch: Any = importlib.import_module("torch")

LENGTH, WIDTH, BATCH, SEED = 512, 16, 6, 5


def module() -> Any:
    """Several buckets of gradients, running statistics, and something random."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(WIDTH, 48),
        nn.BatchNorm1d(48),
        nn.Tanh(),
        nn.Dropout(0.1),
        nn.Linear(48, 48),
        nn.Tanh(),
        nn.Linear(48, 1),
    )


def samples() -> tuple[Any, Any]:
    """What is read, and what is to be learnt of it."""
    generator = torch.Generator().manual_seed(SEED)
    data = torch.randn(LENGTH, WIDTH, generator=generator)
    return data, data.sum(1, keepdim=True).tanh()


def wrapped(model: Any) -> Any:
    """The module under DDP; buckets small enough that there are several."""
    return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.008)


def line_of(step: int, members: Sequence[int], loss: Any, model: Any) -> str:
    """What is compared between two runs."""
    total = sum(each.detach().double().sum() for each in model.state_dict().values())
    names = ",".join(map(str, members))
    return f"{step} {names} {float(loss.detach()).hex()} {float(total).hex()}\n"


def main() -> None:
    """Train to the end."""
    out, last, rank = Path(os.environ["OUT"]), int(os.environ["STEPS"]), int(os.environ["RANK"])
    fate, _, when = os.environ.get("FATE", "").partition("@")
    kind, _, whom = fate.partition(":")
    world = int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{out}/default", rank=rank, world_size=world
    )
    model = wrapped(module())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data, wanted = samples()
    torch.manual_seed(SEED + rank)
    hook = nemesis.attach(model, optimizer, seed=SEED)
    told = (out / f"rank_{rank}.txt").open("a", buffering=1)
    while hook.steps_count < last:
        with hook.step() as step:
            number = hook.steps_count + 1
            ids = step.samples(LENGTH, BATCH)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(data[ids]), wanted[ids])
            if kind and rank == int(whom) and number == int(when) + 1:
                os.kill(os.getpid(), getattr(signal, kind))
            loss.backward()
            optimizer.step()
            members = hook.members if "NEMESIS_AGENT" in os.environ else range(world)
            told.write(line_of(number, members, loss, model))
    os._exit(0)


if __name__ == "__main__":
    main()
