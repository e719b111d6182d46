"""A scenario from its start to its score.

The score is made from the ledger as it was stored and from the log as any reader sees it.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import FaultAttributed
from nemesis.sim.cell import Options, RunningCell, running_cell
from nemesis.sim.ending import PATIENCE_NS, judged
from nemesis.sim.operator import APPROVAL_NS
from nemesis.sim.show import look_further
from nemesis.sim.stage import read_ledger
from nemesis.sim.truth.ledger import Truth
from nemesis.sim.truth.ledger_file import Ledger, ledger_of, opening, write_ledger
from nemesis.sim.truth.score import Score
from nemesis.sim.watcher import Emit


class Outcome(msgspec.Struct, kw_only=True, frozen=True):
    """What came of a run."""

    score: Score
    truths: tuple[Truth, ...]
    facts: tuple[Fact, ...]
    start_ns: int
    ready_s: float
    """Real seconds until everything had started."""
    wall_s: float
    part_restart_counts: dict[str, int]
    is_behind: bool
    """The machine did not keep up with simulated time."""
    began_wall_ns: int
    """What the wall clock showed at start_ns."""
    ended_ns: int
    """Simulated."""

    def ledger(self, options: Options) -> Ledger:
        """What the run really was."""
        opened = opening(
            options.cluster,
            options.scenario,
            seed=options.seed,
            start_ns=self.start_ns,
            params_sha256=options.weigh.sha256 if options.weigh else "",
            began_wall_ns=self.began_wall_ns,
            speed_ppm=round(options.speed * 1_000_000),
        )
        return ledger_of(opened, self.truths, self.ended_ns)


async def run(options: Options, emit: Emit, on_look: Callable[[str], None]) -> Outcome:
    """Run a scenario to its end.

    Raises: as `running_cell`.
    """
    began_s = time.monotonic()
    options = for_a_person(options)
    async with running_cell(options, emit, on_look) as cell:
        duration_ns = round(options.duration_s * 1e9)
        patience_ns = PATIENCE_NS + (APPROVAL_NS if options.mode == "approve" else 0)
        await cell.watcher.until_over(
            cell.stage.simulation,
            options.scenario,
            duration_ns=duration_ns,
            patience_ns=patience_ns,
        )
        outcome = await judge(options, cell, began_s)
        if options.ledger is not None:
            write_ledger(options.ledger, outcome.ledger(options))
        emit(cell.show.score(outcome.score, is_behind=outcome.is_behind))
        verdicts = [fact.data for fact in outcome.facts if isinstance(fact.data, FaultAttributed)]
        incidents = dict.fromkeys(verdict.incident for verdict in verdicts)
        emit(look_further(incidents, cell=options.cell, following=options.follow))
        if options.follow:
            await asyncio.Event().wait()
        return outcome


def for_a_person(options: Options) -> Options:
    """A person who is asked reads before he answers: no job need go on within a time."""
    if options.mode != "approve":
        return options
    expect = replace(options.scenario.expect, resumed_within_s=0.0)
    return replace(options, scenario=replace(options.scenario, expect=expect))


async def judge(options: Options, cell: RunningCell, began_s: float) -> Outcome:
    """Close the ledger and keep the score."""
    await cell.stage.end()
    truths = await read_ledger(cell.ledger.connection)
    return Outcome(
        score=judged(options.scenario, truths, cell.watcher.facts, ()),
        truths=tuple(truths),
        facts=tuple(cell.watcher.facts),
        start_ns=cell.clock.start_ns,
        ready_s=cell.ready_s,
        wall_s=time.monotonic() - began_s,
        part_restart_counts=dict(cell.supervisor.restart_counts),
        is_behind=cell.watcher.is_behind,
        began_wall_ns=cell.clock.began_wall_ns,
        ended_ns=cell.clock.now_ns(),
    )
