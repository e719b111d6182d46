"""The demo's training under torchft: one rank a replica group, each step voted on by its manager.

Run by an interpreter with torchft 0.2 (NEMESIS_TORCHFT_PYTHON); writes the lines that the demo's
own loop writes. Environment as there, and TORCHFT_LIGHTHOUSE; LIFE counts the starts of a rank,
VICTIM is the one that will be lost.
"""

import importlib
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from nemesis.sim.train.loop import BATCH, SEED, Learner, tell
from nemesis.sim.train.steps import RANKS
from nemesis.training.samples import sample_ids

TIMEOUT_S = 2.0
"""Of a collective: who hangs is noticed after that."""


def main() -> None:
    """Train to the end."""
    torch: Any = importlib.import_module("torch")
    torchft: Any = importlib.import_module("torchft")
    dist: Any = importlib.import_module("torch.distributed")
    learner = Learner(Path(os.environ["DEMO_TEXT"]).read_bytes())
    rank, life = int(os.environ["RANK"]), int(os.environ["LIFE"])
    # torchft says how many train together, not who; one of them is lost, and which is known here
    rest = tuple(each for each in range(RANKS) if each != int(os.environ["VICTIM"]))

    def load(state: dict[str, Any]) -> None:
        learner.model.load_state_dict(state["model"])
        learner.optimizer.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=TIMEOUT_S)),
        load_state_dict=load,
        state_dict=lambda: {
            "model": learner.model.state_dict(),
            "optimizer": learner.optimizer.state_dict(),
        },
        min_replica_size=1,
        replica_id=f"rank_{rank}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        hostname="127.0.0.1",
        timeout=timedelta(seconds=10),
    )
    optimizer = torchft.Optimizer(manager, learner.optimizer)
    with (Path(os.environ["DEMO_OUT"]) / f"rank_{rank}.jsonl").open("a", buffering=1) as told:
        told.write(json.dumps({"pid": os.getpid(), "life": life}) + "\n")
        while manager.current_step() < int(os.environ["DEMO_STEPS"]):
            optimizer.zero_grad()
            ids = sample_ids(
                manager.batches_committed() * BATCH,
                length=learner.samples_count,
                batch=BATCH,
                position=rank,
                seed=SEED,
            )
            loss = learner.loss(ids)
            loss.backward()
            gradients = [each.grad for each in learner.model.parameters()]
            flat = torch.cat([each.reshape(-1) for each in gradients])
            manager.allreduce(flat).wait()
            parts = flat.split([each.numel() for each in gradients])
            for each, part in zip(gradients, parts, strict=True):
                each.copy_(part.view_as(each))
            before = manager.current_step()
            optimizer.step()
            if manager.current_step() > before:
                everybody = manager.num_participants() == RANKS
                members = tuple(range(RANKS)) if everybody else rest
                tell(told, manager.current_step(), loss, members, life)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
