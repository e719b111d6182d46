"""A simulated job: ranks that step together or not at all.

Pure: time comes in as an argument and compute times follow from the seed. While nothing is wrong a
step completes as a whole, once all members of an epoch run in it, agree on who the members are,
stand at the same step, call the same, have computed and can be reached; so a dead rank stalls all,
and a membership that only some were told stalls as well. The survivors of a failure stand at one
common step. How far each got inside the step is worked out only when somebody asks (stall.py).
Slowness and cut links belong to places (a node, a GPU and its NIC), not to ranks: who moves away
leaves them behind. Durations are modelled, and everything made from them is "simulated".
"""

import zlib
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from nemesis.sim.jobs.compute import JITTER_PER_MILLE, ComputeTimes
from nemesis.sim.jobs.crews import Crew, Crews
from nemesis.sim.jobs.entries import EntriesOfRanks
from nemesis.sim.jobs.layout import Layout, Ranks
from nemesis.sim.jobs.model import JobModel
from nemesis.sim.jobs.network import Network
from nemesis.sim.jobs.program import programs_of
from nemesis.sim.jobs.ranks import (
    FAILED,
    FENCED,
    HELD,
    LEFT,
    NEVER_NS,
    RUNNING,
    STARTING,
    Rank,
    RankTable,
)
from nemesis.sim.jobs.standings import Standings
from nemesis.sim.jobs.steps import STEPS_KEPT, StepDone, StepTimes
from nemesis.sim.jobs.table import ProgramTable

MS: Final = 1_000_000


class Job:
    """All ranks of one job."""

    def __init__(
        self,
        model: JobModel,
        nodes: Iterable[str],
        width: int,
        seed: int,
        *,
        start_ns: int,
        network: Network | None = None,
        jitter_per_mille: int = JITTER_PER_MILLE,
    ) -> None:
        """Rank r is on the r // width-th of `nodes`, on GPU r % width.

        Raises:
            BadLayoutError: degrees of parallelism that do not fit.
        """
        self.model: Final = model
        self.name: Final = model.name
        places = [(node, index) for node in nodes for index in range(width)]
        self.layout: Final = Layout(len(places), tp=model.tp, cp=model.cp, pp=model.pp, ep=model.ep)
        self.programs: Final = ProgramTable(
            programs_of(self.layout, model.microbatches, model.chunks)
        )
        self.entries: Final = EntriesOfRanks(self.layout, self.programs.programs)
        self.table: Final = RankTable(places, start_ns)
        self.ranks: Final = {number: Rank(self.table, number) for number in range(len(places))}
        self._on_node: Final[dict[str, list[Rank]]] = {}
        for rank in self.ranks.values():
            self._on_node.setdefault(rank.node, []).append(rank)
        self.network: Final = network or Network()
        self.history: Final[list[StepDone]] = []
        self.recent: Final[deque[StepTimes]] = deque(maxlen=STEPS_KEPT)
        self.readings: Final[dict[int, dict[str, int]]] = {}
        """What a rank's training code reads otherwise than all others', by channel."""
        self.restarts_count = 0
        """Processes that were started anew."""
        self.changes_count: Final[dict[str, int]] = {}
        """By node: changes of a rank's stage or epoch, its first step in one among them."""
        self._seed: Final = seed
        self._redone_count = 0
        self._steps_done: Final[set[int]] = set()
        self._best_step = 0
        self._compute: Final = ComputeTimes(
            model.step_ms * MS,
            len(places),
            (seed << 32) | zlib.crc32(model.name.encode()),
            jitter_per_mille=jitter_per_mille,
        )
        self._now_ns = start_ns
        self._crews: Final = Crews(
            self.table, self.layout, self.programs, self.network, model.allreduce_ms * MS
        )
        self.standings: Final = Standings(
            self.table,
            self.layout,
            self.programs,
            self._crews,
            microbatches=model.microbatches * model.chunks,
            last_ns=model.allreduce_ms * MS,
        )
        self._oldest_ns: int | None = None
        self._waits: tuple[int, Ranks] | None = None
        self._begin(np.arange(len(places)), start_ns)

    def advance(self, now_ns: int) -> None:
        """Let ranks start, and complete every step whose time has come."""
        self._now_ns = max(self._now_ns, now_ns)
        table = self.table
        starts = np.flatnonzero((table.stage == STARTING) & (table.ready_ns <= now_ns))
        if starts.size:
            table.stage[starts] = RUNNING
            self._begin(starts, table.ready_ns[starts])
            self._changed(starts)
        while True:
            due = min(self._crews.working(), key=lambda crew: crew.due_ns, default=None)
            if due is None or due.due_ns > now_ns:
                return
            self._complete(due)

    def waiting_since_ns(self, number: int, now_ns: int) -> int | None:
        """When a running rank arrived at the collective that it waits in, or None."""
        since_ns = int(self.waits_ns(now_ns)[number])
        return since_ns if since_ns < NEVER_NS else None

    def waits_ns(self, now_ns: int) -> Ranks:
        """For each rank: since when it waits in a collective; NEVER_NS: it does not."""
        if self._waits is not None and self._waits[0] == now_ns:
            return self._waits[1]
        arrived_ns = self.arrived_ns()
        waits = (self.table.stage == RUNNING) & (arrived_ns <= now_ns)
        self._waits = (now_ns, np.where(waits, arrived_ns, NEVER_NS))
        return self._waits[1]

    def arrived_ns(self) -> Ranks:
        """For each rank that runs: when it arrives, or did, where it waits as things are."""
        if not self.layout.is_plain and self.is_stalled:
            return self.standings.now().waiting_since_ns()
        return self.table.ready_ns

    def waits_longer(self, limit_ns: int, now_ns: int) -> bool:
        """Whether any rank may wait for longer than this: False is certain, and cheap."""
        if self._oldest_ns is None:
            running = self.table.stage == RUNNING
            self._oldest_ns = int(np.where(running, self.table.began_ns, NEVER_NS).min())
        return now_ns - self._oldest_ns > limit_ns

    @property
    def due_ns(self) -> int:
        """When the next step completes as things are; NEVER_NS: none does."""
        return min((crew.due_ns for crew in self._crews.working()), default=NEVER_NS)

    def is_steady(self, since_ns: int) -> bool:
        """Whether every rank trains, in a step begun after that which takes no longer than usual;
        or all have ended."""
        table = self.table
        if not (table.stage == RUNNING).all():
            return not np.isin(table.stage, (RUNNING, HELD, STARTING)).any()
        longest_ns = self.model.step_ns + self.model.save_ms * MS
        return (
            4 * longest_ns < 3 * self.model.stall_ns
            and bool((table.began_ns > since_ns).all() and table.completed_count.all())
            and all(
                4 * (crew.due_ns - int(table.began_ns[crew.ranks].min())) < 3 * self.model.stall_ns
                for crew in self._crews.working()
            )
        )

    @property
    def is_stalled(self) -> bool:
        """Whether nobody will finish another step as things are."""
        return all(crew.due_ns == NEVER_NS for crew in self._crews.working())

    def on_node(self, node: str) -> list[Rank]:
        """The ranks whose processes run, or ran last, on a node."""
        return list(self._on_node.get(node, ()))

    def numbers_on(self, node: str) -> list[int]:
        """Their numbers."""
        return [rank.number for rank in self._on_node.get(node, ())]

    def stick(self, number: int) -> None:
        """The rank's GPU computes no more: it never finishes what it is at."""
        self._stop(number)
        self.table.ready_ns[number] = NEVER_NS

    def halt(self, number: int) -> None:
        """The rank's host enqueues no more; its GPU finishes what it has."""
        self.table.halted_ns[number] = min(self._now_ns, self.table.halted_ns[number])
        self.table.ready_ns[number] = NEVER_NS
        self._moved()

    def blind(self, number: int) -> None:
        """The rank's CUDA context is in error: what its GPU completes is not seen any more."""
        self.table.blind_ns[number] = min(self._now_ns, self.table.blind_ns[number])

    def stray(self, number: int, differs_in: str) -> None:
        """The rank calls another collective than the others, and does so again after a rejoin."""
        self.table.strays[number] = differs_in
        if differs_in == "absent":
            self.halt(number)
            return
        due_ns = self.due_ns
        self.table.strays_ns[number] = self._now_ns
        self._moved()
        passes = not self.layout.is_plain and not self.standings.now().strays[number]
        if passes and due_ns < NEVER_NS:  # it is through with its calls: it strays in the next step
            self.table.strays_ns[number] = due_ns
            self._moved()

    def delay(self, number: int, delay_ns: int, waits_for: str = "") -> None:
        """The rank's next step takes so much longer: for what it does alone, "" if nobody knows."""
        self._compute.delay(number, delay_ns, waits_for)

    def congest(self, node: str, index: int, per_mille: int) -> None:
        """Collectives that cross a place's NIC take this much longer from here on; 0: as ever."""
        self.network.congest(node, index, per_mille)
        self._moved()

    def checksum(self, step: int) -> int:
        """Of the parameters after a step, equal over all replicas."""
        return (self._seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9) >> 1 & (2**62 - 1)

    def slow(self, node: str, index: int, per_mille: int) -> None:
        """Compute at a place takes this much longer from the next step on; index -1: the node."""
        self._compute.slow(node, index, per_mille)

    def cut(self, node: str, index: int) -> None:
        """The rank at a place reaches no other node."""
        self.network.cut_nic(node, index)
        self.rewired(0)

    def mend(self, node: str, index: int, now_ns: int) -> None:
        """It reaches them again; what waited is sent again."""
        self.network.mend_nic(node, index)
        self.rewired(now_ns)

    def rewired(self, mended_ns: int) -> None:
        """The network has changed; what goes on now was sent again at `mended_ns`."""
        self._crews.mended_ns = max(self._crews.mended_ns, mended_ns)
        self._moved()

    def kill(self, number: int, returncode: int) -> bool:
        """A process ends by itself; whether it was alive until now."""
        if self.table.stage[number] in (FENCED, FAILED, LEFT):
            return False
        self.table.returncodes[number] = returncode
        self._stop(number)
        self._to(number, FAILED)
        return True

    def fence(self, number: int) -> None:
        """Nothing of the rank can run on."""
        self._stop(number)
        self._to(number, FENCED)

    def leave(self, number: int) -> None:
        """The rank's process ends on request."""
        self._stop(number)
        self._to(number, LEFT)

    def hold(self, number: int) -> None:
        """Abort what the rank waits in and keep it at its last finished step."""
        if self.table.stage[number] == RUNNING:
            self._to(number, HELD)

    def join(self, number: int, epoch: int, members: Iterable[int], now_ns: int) -> None:
        """A rank with its state in memory goes on in a new epoch."""
        before = self.ranks[number].epoch
        assert epoch > before, f"rank {number} is in epoch {before}, got {epoch}"
        self._enter(number, epoch, members)
        self._to(number, RUNNING)
        self._begin(np.array([number]), now_ns + self.model.shrink_ms * MS)

    def start(
        self,
        number: int,
        node: str,
        epoch: int,
        members: Iterable[int],
        now_ns: int,
        *,
        step: int,
    ) -> None:
        """Start a rank's process anew at a step, with the state of a peer or a checkpoint."""
        table, rank = self.table, self.ranks[number]
        self._on_node[rank.node].remove(rank)
        self._changed([number])
        table.places[number] = (node, table.places[number][1])
        insort(self._on_node.setdefault(node, []), rank, key=lambda each: each.number)
        table.strays_ns[number] = NEVER_NS
        table.strays.pop(number, None)
        table.returncodes.pop(number, None)
        self._enter(number, epoch, members)
        table.step[number], table.completed_count[number] = step, 0
        table.ready_ns[number] = now_ns + self.model.start_ms * MS
        self._to(number, STARTING)
        self.restarts_count += 1

    @property
    def step(self) -> int:
        """The newest step that a whole membership finished."""
        return self.history[-1].step if self.history else 0

    @property
    def checkpoint_step(self) -> int:
        """The newest step whose state lies in storage."""
        return self._best_step - self._best_step % self.model.checkpoint_steps

    @property
    def redone_count(self) -> int:
        """Steps that were finished more than once."""
        return self._redone_count

    def took_part(self, rank: int, times: StepTimes) -> bool:
        """Whether a finished step was one of the process group that a rank is in."""
        epoch, members = self.table.crews[self.table.crew[rank]]
        return times.done.epoch == epoch and times.done.members is members

    def _complete(self, crew: Crew) -> None:
        table, ranks, at_ns = self.table, crew.ranks, crew.due_ns
        epoch, members = table.crews[crew.number]
        done = StepDone(epoch, int(table.step[ranks[0]]) + 1, at_ns, members)
        self.history.append(done)
        self.recent.append(StepTimes(done, table.began_ns.copy(), table.compute_ns.copy()))
        self._redone_count += done.step in self._steps_done
        self._steps_done.add(done.step)
        self._best_step = max(self._best_step, done.step)
        if (first := ranks[table.completed_count[ranks] == 0]).size:
            self._changed(first)
        table.completed_count[ranks] += 1
        table.step[ranks] += 1
        table.step_ns[ranks] = at_ns - table.began_ns[ranks]
        table.own_ns[ranks] = table.compute_ns[ranks]
        table.data_wait_ns[ranks] = table.due_data_ns[ranks]
        table.save_ns[ranks] = table.due_save_ns[ranks]
        self._begin(ranks, at_ns)

    def _begin(self, ranks: Ranks, began_ns: int | Ranks) -> None:
        """Ranks begin the next step."""
        table = self.table
        table.began_ns[ranks] = began_ns
        table.compute_ns[ranks] = self._compute.of(ranks, table.step, self._places_on)
        table.due_data_ns[ranks] = table.due_save_ns[ranks] = 0
        for rank, delay_ns, waits_for in self._compute.delays_of(ranks):
            table.delay(rank, delay_ns, waits_for)
        if self.model.save_ms:
            saves = (table.step[ranks] + 1) % self.model.checkpoint_steps == 0
            table.due_save_ns[ranks] += saves * self.model.save_ms * MS
            table.compute_ns[ranks] += saves * self.model.save_ms * MS
        table.ready_ns[ranks] = table.began_ns[ranks] + table.compute_ns[ranks]
        works = (table.stopped_ns == NEVER_NS) & (table.halted_ns == NEVER_NS)
        table.ready_ns[~works] = NEVER_NS
        self._oldest_ns = self._waits = None
        self.standings.forget()
        self._crews.forget()

    def _places_on(self, node: str) -> Iterator[tuple[int, int]]:
        for rank in self._on_node.get(node, ()):
            yield rank.number, self.table.places[rank.number][1]

    def _enter(self, number: int, epoch: int, members: Iterable[int]) -> None:
        """A new process group counts its collectives from zero."""
        table = self.table
        table.crew[number] = table.crew_of(epoch, frozenset(members))
        table.completed_count[number] = 0
        table.stopped_ns[number] = table.halted_ns[number] = table.blind_ns[number] = NEVER_NS
        if table.strays.get(number) == "absent":
            table.halted_ns[number] = 0

    def _stop(self, number: int) -> None:
        self.table.stopped_ns[number] = min(self._now_ns, self.table.stopped_ns[number])
        self._moved()

    def _to(self, number: int, stage: int) -> None:
        self.table.stage[number] = stage
        self._changed([number])
        self._moved()

    def _changed(self, ranks: Iterable[int]) -> None:
        for number in ranks:
            node = self.table.places[number][0]
            self.changes_count[node] = self.changes_count.get(node, 0) + 1

    def _moved(self) -> None:
        """How far ranks get has changed."""
        self._oldest_ns = self._waits = None
        self.standings.forget()
        self._crews.forget(places=True)
