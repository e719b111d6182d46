"""One rank of a real job of four gloo processes, and what is wrong with it. Needs torch alone.

Run as a file, by an interpreter that has torch: `python rank.py FOLDER RANK CULPRIT FAULT`. Ranks
0, 1 and 2, 3 are pairs; every step is an all_gather in the pair and an all_reduce in the world.
After four good steps the culprit does what the fault says. Each rank serves its flight recorder on
a socket of its own (torch.distributed's worker server), which answers while the rank is stuck.
"""

import importlib
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

WORLD = 4
GOOD_STEPS = 4
SLOW_STEPS = 400
DELAY_S = 0.15
TIMEOUT = timedelta(seconds=120)


def group(store: Any, named: tuple[str, str], ranks: list[int], rank: int) -> Any:
    """A process group (name, description) that says in its dumps who its members are.

    torch writes what the options hold when the backend is made, so they come first.
    """
    name, desc = named
    dist = importlib.import_module("torch.distributed")
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = TIMEOUT
    options.group_name = name
    options.global_ranks_in_group = ranks
    own = dist.PrefixStore(name, store)
    backend = dist.ProcessGroupGloo(own, ranks.index(rank), len(ranks), options)
    made = dist.ProcessGroup(own, ranks.index(rank), len(ranks))
    kind = dist.ProcessGroup.BackendType.GLOO
    made._set_default_backend(kind)
    made._register_backend(importlib.import_module("torch").device("cpu"), kind, backend)
    made._set_group_name(name)
    made._set_group_desc(desc)
    return made


class Rank:
    """A rank with its two groups."""

    def __init__(self, folder: Path, rank: int, culprit: int) -> None:
        os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
        self.torch: Any = importlib.import_module("torch")
        dist = importlib.import_module("torch.distributed")
        tap = importlib.import_module("torch._C._distributed_c10d")
        self.torch.set_num_threads(1)
        self.folder, self.is_culprit = folder, rank == culprit
        self.server = tap._WorkerServer(str(folder / f"rank_{rank}.sock"))
        store = dist.FileStore(str(folder / "store"), WORLD)
        pair = rank // 2
        self.world = group(store, ("0", "default_pg"), list(range(WORLD)), rank)
        members = [2 * pair, 2 * pair + 1]
        self.pair = group(store, (str(1 + pair), f"tp_{pair}"), members, rank)
        self.gradient = self.torch.ones(1024)
        self.own = self.torch.ones(16, 8)
        self.gathered = [[self.torch.zeros(16, 8) for _ in range(2)]]

    def gather(self) -> Any:
        """The step's collective in the pair."""
        return self.pair.allgather(self.gathered, [self.own])

    def reduce(self) -> Any:
        """The step's collective in the world."""
        return self.world.allreduce([self.gradient])

    def step(self) -> None:
        """A good step."""
        self.gather().wait()
        self.reduce().wait()

    def fail(self, fault: str) -> None:
        """The step in which the culprit does something else; never comes back while it is stuck."""
        if fault == "slow":
            for _ in range(SLOW_STEPS):
                self.gather().wait()
                time.sleep(DELAY_S if self.is_culprit else 0)
                self.reduce().wait()
        elif fault == "order" and self.is_culprit:
            self.reduce().wait()
            self.gather().wait()
        elif fault == "order":
            self.step()
        else:
            self.gather().wait()
            self._reduce_wrong(fault) if self.is_culprit else self._reduce_after(fault)

    def _reduce_wrong(self, fault: str) -> None:
        if fault == "operation":
            self.world.broadcast([self.gradient]).wait()
        elif fault == "size":
            self.world.allreduce([self.torch.ones(512)]).wait()
        time.sleep(TIMEOUT.total_seconds())  # kill, stop: the launcher does the rest; skip: nothing

    def _reduce_after(self, fault: str) -> None:
        """gloo ends the process whose tensor is smaller; its recorder is to be read before."""
        while fault == "size" and not (self.folder / "go").exists():
            time.sleep(0.02)
        self.reduce().wait()


def main() -> None:
    """Four good steps, a mark that they are done, and the fault."""
    folder, rank, culprit, fault = (
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4],
    )
    own = Rank(folder, rank, culprit)
    for _ in range(GOOD_STEPS):
        own.step()
    (folder / f"rank_{rank}.good").touch()
    threading.Thread(target=own.fail, args=(fault,), daemon=True).start()
    time.sleep(TIMEOUT.total_seconds())
    os._exit(0)  # a thread that is stuck in gloo is not to be waited for


if __name__ == "__main__":
    main()
