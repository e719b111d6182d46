"""A loop whose groups have lanes over a stand-in for NCCL, which hangs where a peer is gone.

`python -m tests.training.lane_loop LOOP`, a module beside this one with a `main`. Writes, beside
its steps, what it asked of the stand-in to `calls_RANK.txt`.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from nemesis.training import hook
from nemesis.training.gloo_group import Grounds
from nemesis.training.nccl_lanes import Lanes, Nccl
from tests.training.lanes import GOOD, StandIn, Told, torch


def main() -> None:
    """Train to the end."""
    told, rank = Told(GOOD), int(os.environ["RANK"])
    path = Path(os.environ["OUT"], f"calls_{rank}.txt")

    def make(store: Any, *place: int) -> StandIn:
        made = StandIn(told, rank, store, (place[0], place[1]))
        path.write_text("\n".join(told.calls[rank]))
        return made

    def lanes_on(torch: Any, grounds: Grounds, things: tuple[Any, ...]) -> Lanes:
        return Lanes(
            torch,
            grounds,
            device=torch.device("cpu"),
            identity=rank,
            make=make,
            nccl=lambda: Nccl(GOOD, frozenset()),
        )

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hook, "lanes_on", lanes_on)
        importlib.import_module(f"tests.training.{sys.argv[1]}").main()


if __name__ == "__main__":
    main()
