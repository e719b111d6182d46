"""Lanes over a stand-in for torch's ProcessGroupNCCL: what ranks in threads do, told as JSON.

`python -m tests.training.lanes SCENARIO`. The stand-in reduces over gloo, fails on any order of
calls that NCCL's documents and the reports in training/nccl_versions.py do not allow, and says so
in `wrong`; what it says of time is nothing. Groups, stores and sums are real.
"""

import importlib
import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from nemesis.schemas.layout import Degrees
from nemesis.training.gloo_group import BrokenGroupError, GivenUpError, Grounds
from nemesis.training.groups import Groups, form
from nemesis.training.nccl_lane import SHRINK_ABORT
from nemesis.training.nccl_lanes import Lanes, Nccl
from nemesis.training.nccl_versions import SYMBOLS, Version, calls_of, hazards_of

torch: Any = importlib.import_module("torch")
dist: Any = importlib.import_module("torch.distributed")

WORLD: Final = 4
DEGREES: Final = Degrees(tp=2)
GOOD: Final[Version] = (2, 30, 7)
CRASHES: Final[Version] = (2, 28, 5)


class Told:
    """What ranks did, in the order in which each did it."""

    def __init__(self, version: Version) -> None:
        self.version: Final = version
        self.calls: Final[dict[int, list[str]]] = {rank: [] for rank in range(WORLD)}
        self.wrong: Final[list[str]] = []
        self.open: Final[set[str]] = set()

    def refuse(self, what: str) -> None:
        """Remember and raise: the caller may swallow it."""
        self.wrong.append(what)
        raise RuntimeError(what)


class StandInWork:
    """Over when its communicator is aborted, as a kernel is; not when a peer dies."""

    def __init__(self, work: Any, owner: "StandIn") -> None:
        self._work: Final[Any] = work
        self._owner: Final = owner

    def is_completed(self) -> bool:
        is_done = self._work.is_completed() and self._work.is_success()
        return self._owner.is_aborted or bool(is_done)

    def wait(self, timeout: Any = None) -> None:
        if timeout is not None:
            self._owner.told.refuse("a wait with a limit ends the communicator")
        if not self._owner.is_aborted:
            self._work.wait()

    def get_future(self) -> Any:
        return self._work.get_future()


class StandIn:
    """One rank's ProcessGroupNCCL of one group, over gloo."""

    def __init__(
        self, told: Told, rank: int, store: Any, place: tuple[int, int], name: str = "made"
    ) -> None:
        """`place`: its position, and of how many."""
        self.told: Final = told
        self.is_aborted = False
        self._rank: Final = rank
        self._place: Final = place
        self._store: Final[Any] = store
        self._is_shrunk = False
        self._works: list[StandInWork] = []
        self._gloo: Final[Any] = dist.ProcessGroupGloo(store, *place)
        told.calls[rank].append(f"{name} of {place[1]}")
        told.open.add(f"{rank} {id(self)}")

    def name(self) -> str:
        return "nccl"

    def __getattr__(self, collective: str) -> Callable[..., StandInWork]:
        start = getattr(self._gloo, collective)

        def started(*given: Any) -> StandInWork:
            if self.is_aborted or self._is_shrunk:
                self.told.refuse("a collective after abort or shrink")
            work = StandInWork(start(*given), self)
            self._works.append(work)
            return work

        return started

    def shrink(self, excluded: list[int], flags: int, options: Any) -> "StandIn":
        told, (position, size) = self.told, self._place
        told.calls[self._rank].append(f"shrink of {size}")
        if self.is_aborted or self._is_shrunk:
            told.refuse("shrink after abort or shrink")
        if any(each.answer == "rebuild" for each in hazards_of(told.version, "shrink")):
            told.refuse("shrink: segmentation fault")
        if flags != SHRINK_ABORT or not excluded or position in excluded:
            told.refuse("shrink: invalid argument")
        if not all(each.is_completed() for each in self._works):
            told.refuse("shrink while something is under way")
        self._is_shrunk = True
        left = [each for each in range(size) if each not in excluded]
        store = dist.PrefixStore("shrunk", self._store)
        return StandIn(told, self._rank, store, (left.index(position), len(left)), "shrunk")

    def abort(self) -> None:
        if self.is_aborted:
            self.told.refuse("abort after abort")
        self.told.calls[self._rank].append(f"abort of {self._place[1]}")
        self.is_aborted = True
        self.told.open.discard(f"{self._rank} {id(self)}")


class Rank:
    """One rank, with groups over real gloo and lanes over the stand-in."""

    def __init__(self, told: Told, rank: int, port: int, identity: int) -> None:
        self.rank: Final = rank
        self.groups: Groups | None = None
        self._told: Final = told
        self._store: Final = f"127.0.0.1:{port}"
        self._grounds: Final = Grounds(torch, "127.0.0.1")
        symbols = frozenset(name for call in calls_of(told.version) for name in SYMBOLS[call])
        self._lanes: Final = Lanes(
            torch,
            self._grounds,
            device=torch.device("cpu"),  # the type of the tensors that lanes carry
            identity=identity,
            make=lambda store, *place: StandIn(told, rank, store, place),
            nccl=lambda: Nccl(told.version, symbols),
        )

    def enter(self, epoch: int, members: tuple[int, ...]) -> None:
        """The groups of an epoch, and their lanes."""
        new = form(
            self._grounds,
            str(epoch),
            members,
            self.rank,
            degrees=DEGREES,
            store=self._store,
            given_up=lambda: False,
        )
        self._lanes.lay(self.groups, epoch - 1, new, lambda: False)
        self.groups = new

    def total(self) -> float:
        """One of each member of the group that has this part, and who carried it."""
        assert self.groups is not None
        tensor = torch.ones(3)
        self.groups["dp"].reduce(tensor, lambda: False)
        return float(tensor[0])


def together(ranks: list[Rank], act: Callable[[Rank], None]) -> None:
    """All at once."""
    failed: list[BaseException] = []

    def run(rank: Rank) -> None:
        try:
            act(rank)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in ranks]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failed:
        raise failed[0]


def main() -> None:
    """One scenario: two replicas of two, the second of which goes or comes."""
    scenario = sys.argv[1]
    told = Told(CRASHES if scenario == "crashes" else GOOD)
    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    shares = scenario == "two on one GPU"
    ranks = [Rank(told, rank, store.port, 7 if shares else rank) for rank in range(WORLD)]
    sums: dict[int, list[float]] = {rank: [] for rank in range(WORLD)}
    begins = ranks[:2] if scenario == "joins" else ranks
    ends = ranks if scenario == "joins" else ranks[:2]

    def step(rank: Rank) -> None:
        sums[rank.rank].append(rank.total())

    for epoch, there in enumerate([begins, ends]):
        members = tuple(each.rank for each in there)
        if scenario == "gives up" and epoch:
            hangs(ranks[0], told)
            for each in there:  # as each rank's own agent tells it
                assert each.groups is not None
                each.groups.abort_lanes()
        together(there, partial(Rank.enter, epoch=epoch, members=members))
        together(there, step)
    for each in ranks:
        if each.groups is not None:
            each.groups.close_lanes()
    said = {"calls": told.calls, "sums": sums, "wrong": told.wrong, "open": sorted(told.open)}
    sys.stdout.write(json.dumps(said))
    sys.stdout.flush()
    importlib.import_module("os")._exit(0)


def hangs(rank: Rank, told: Told) -> None:
    """A reduction to which nobody else comes ends by the abort, and its numbers are nobody's."""
    assert rank.groups is not None
    timer = threading.Timer(0.3, rank.groups.abort_lanes)
    timer.start()
    try:
        rank.total()
    except GivenUpError:
        told.calls[rank.rank].append("given up")
    except BrokenGroupError as error:
        told.wrong.append(str(error))


if __name__ == "__main__":
    main()
