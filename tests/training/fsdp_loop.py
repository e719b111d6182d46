"""A loop over torch's FSDP2 with replicas, as somebody wrote it who then added four lines.

Two ranks are a replica, each with a part of all parameters. Environment as in `ddp_loop`; in the
step in which the fate comes rank 0 is late, so that the hold finds its neighbour in the middle of a
backward pass, with gradients that are not reduced yet.
"""

import importlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nemesis
from tests.training.ddp_loop import samples, torch

fsdp: Any = importlib.import_module("torch.distributed.fsdp")
meshes: Any = importlib.import_module("torch.distributed.device_mesh")

LENGTH, WIDTH, BATCH, SEED = 512, 16, 6, 5
SHARDS = 2
NORM = 0.5
LATE_S = 1.0


def module(mesh: Any) -> Any:
    """Layers that are gathered one after another, one that does not divide evenly."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(WIDTH, 33), nn.Tanh(), nn.Dropout(0.1), nn.Linear(33, 24), nn.Tanh()
    )
    model.append(nn.Linear(24, 1))
    for layer in (model[0], model[3]):
        fsdp.fully_shard(layer, mesh=mesh)
    return fsdp.fully_shard(model, mesh=mesh)


def optimizer_of(model: Any) -> Any:
    """With a state of its own for each part."""
    return torch.optim.AdamW(model.parameters(), lr=0.02)


def line_of(step: int, members: Sequence[int], loss: Any, model: Any) -> str:
    """What is compared between two runs."""
    total = sum(each.detach().to_local().double().sum() for each in model.parameters())
    names = ",".join(map(str, members))
    return f"{step} {names} {float(loss.detach()).hex()} {float(total).hex()}\n"


def mesh_of(out: Path, rank: int, world: int) -> Any:
    """Replicas and shards. Who comes back finds nobody to form a group with before it trains."""
    dist = torch.distributed
    if os.environ.get("NEMESIS_STATE_FROM") == "peer":
        dist.init_process_group("fake", rank=rank, world_size=world)
    else:
        init = {"init_method": f"file://{out}/default", "rank": rank, "world_size": world}
        dist.init_process_group("gloo", **init)
    shape = (world // SHARDS, SHARDS)
    return meshes.init_device_mesh("cpu", shape, mesh_dim_names=("replica", "shard"))


def main() -> None:
    """Train to the end."""
    out, last, rank = Path(os.environ["OUT"]), int(os.environ["STEPS"]), int(os.environ["RANK"])
    fate, _, when = os.environ.get("FATE", "").partition("@")
    kind, _, whom = fate.partition(":")
    world = int(os.environ["WORLD_SIZE"])
    model = module(mesh_of(out, rank, world)["shard"])
    optimizer = optimizer_of(model)
    data, wanted = samples()
    torch.manual_seed(SEED + rank)
    hook = nemesis.attach(model, optimizer, seed=SEED, ep=SHARDS)
    told = (out / f"rank_{rank}.txt").open("a", buffering=1)
    while hook.steps_count < last:
        with hook.step() as step:
            number = hook.steps_count + 1
            is_fatal = bool(kind) and number == int(when) + 1 and hook.world == world
            ids = step.samples(LENGTH, BATCH)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(data[ids]), wanted[ids])
            if is_fatal and rank == 0:
                time.sleep(LATE_S)
            if is_fatal and rank == int(whom):
                os.kill(os.getpid(), getattr(signal, kind))
            loss.backward()
            step.average(model.parameters())
            torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
            step.commit()
            optimizer.step()
            members = hook.members if "NEMESIS_AGENT" in os.environ else range(world)
            told.write(line_of(number, members, loss, model))
    os._exit(0)


if __name__ == "__main__":
    main()
