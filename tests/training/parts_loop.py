"""A loop in which each rank has a part of the model only, as Megatron-LM divides it.

Two ranks are a replica, each with half of a layer's inputs. Environment as in `ddp_loop`. Writes a
line a step: number, members, ids of the samples, loss.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nemesis
from nemesis.training.samples import sample_ids
from nemesis.training.step import Step

torch: Any = importlib.import_module("torch")

LENGTH, WIDTH, BATCH, SEED = 256, 8, 4, 5
PARTS = 2
LEARNING_RATE = 0.05


def samples() -> tuple[Any, Any]:
    """What is read, and what is to be learnt of it."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(SEED)
    data = torch.randn(LENGTH, WIDTH, generator=generator)
    return data, data.sum(1, keepdim=True).tanh()


def weights() -> Any:
    """Of the one layer, equal everywhere."""
    return torch.randn(WIDTH, 1, generator=torch.Generator().manual_seed(SEED + 1)) / WIDTH


def halves(rank: int) -> tuple[Callable[[Step, list[int]], Any], Any]:
    """A step over half of the inputs, the other half being at the neighbour's."""
    data, wanted = samples()
    part = rank % PARTS
    layer = torch.nn.Linear(WIDTH // PARTS, 1, bias=False)
    layer.weight.data.copy_(weights().chunk(PARTS)[part].T)
    optimizer = torch.optim.SGD(layer.parameters(), lr=LEARNING_RATE)
    hook = nemesis.attach(layer, optimizer, seed=SEED, tp=PARTS)

    def act(step: Step, ids: list[int]) -> Any:
        optimizer.zero_grad()
        partly = layer(data[ids].chunk(PARTS, 1)[part])
        whole = partly.detach().clone()
        hook.groups["tp"].allreduce([whole]).wait()
        loss = torch.nn.functional.mse_loss(partly + (whole - partly).detach(), wanted[ids])
        loss.backward()
        step.average(layer.parameters())
        step.commit()
        optimizer.step()
        return loss

    return act, hook


def main() -> None:
    """Train to the end."""
    out, last, rank = Path(os.environ["OUT"]), int(os.environ["STEPS"]), int(os.environ["RANK"])
    whom, _, when = os.environ.get("FATE", "").partition("@")
    act, hook = halves(rank)
    with (out / f"rank_{rank}.txt").open("a", buffering=1) as told:
        while hook.steps_count < last:
            with hook.step() as step:
                number = hook.steps_count + 1
                if whom and rank == int(whom) and number == int(when) + 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                ids = step.samples(LENGTH, BATCH)
                loss = act(step, ids)
                members = ",".join(map(str, hook.members))
                told.write(f"{number} {members} {ids} {float(loss.detach())}\n")
    os._exit(0)


def reference() -> None:
    """The same in one process, with all of the model: `parts_loop STEPS CHANGE BEFORE AFTER`.

    BEFORE and AFTER: in how many parts a step's samples are taken. Prints a line a part of a step:
    number, ids, loss.
    """
    last, change, before, after = (int(each) for each in sys.argv[1:5])
    data, wanted = samples()
    layer = torch.nn.Linear(WIDTH, 1, bias=False)
    layer.weight.data.copy_(weights().T)
    optimizer = torch.optim.SGD(layer.parameters(), lr=LEARNING_RATE)
    taken = 0
    for done in range(last):
        parts = before if done < change else after
        optimizer.zero_grad()
        for place in range(parts):
            ids = sample_ids(taken, length=LENGTH, batch=BATCH, position=place, seed=SEED)
            loss = torch.nn.functional.mse_loss(layer(data[ids]), wanted[ids])
            (loss / parts).backward()
            sys.stdout.write(f"{done + 1} {ids} {float(loss.detach())}\n")
        optimizer.step()
        taken += BATCH * parts


if __name__ == "__main__":
    main() if "RANK" in os.environ else reference()
