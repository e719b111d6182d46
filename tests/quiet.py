"""No blame where nothing is wrong: `python -m tests.quiet --node-days N`.

Simulated days of healthy clusters with decoys (tests/quiet_days.py) through the real processors in
virtual time. Every verdict that names a component or a class and every decision is a false alarm,
and is printed with the evidence that it cites. Ends with 1 if there was any.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from nemesis.cli.reports import RunBar
from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.decided import Decision
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import FailurePredicted, FaultAttributed
from nemesis.schemas.operated import JobEnded
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.symptoms import Fault
from nemesis.sim.offline import START_NS
from nemesis.sim.offline_log import OfflineLog
from nemesis.sim.operator import BY, beginning, submissions
from nemesis.sim.simulation import Simulation
from tests.quiet_days import NODES, PERIOD_MS, Day, Shift, draw_day

QUANTUM_NS: Final = 200_000_000
SECOND_NS: Final = 1_000_000_000
ENDS_NS: Final = 20 * SECOND_NS
"""Between the last step of a shift's jobs and the boot of the next."""
IDLE_ACTIONS: Final = ("none", "watch", "collect_more")
"""What hurts nobody: to look again."""
NEAR_NS: Final = 180 * SECOND_NS
"""Decoys that began so long before an alarm are told with it."""


class Alarm(msgspec.Struct, kw_only=True):
    """Something that was said or decided of a healthy cluster."""

    kind: str
    """`blame`, `decision`; or what is told and no failure: `undecided`, `advice`, `prediction`."""
    day: int
    at_s: float
    """Since the start of the day."""
    says: str
    evidence: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()
    """That began shortly before, the last one first."""

    @property
    def is_false(self) -> bool:
        """Whether it names a component or a class, or decides."""
        return self.kind in ("blame", "decision")


class DayTold(msgspec.Struct, kw_only=True):
    """What came of a day."""

    day: int
    about: str
    node_days: float
    records_count: int
    decoys: dict[str, int]
    alarms: list[Alarm]
    took_s: float
    """Of one core."""


def quiet_day(number: int, *, seed: int, hours: float) -> DayTold:
    """Run a day, or its first hours."""
    began_s = time.process_time()
    day = draw_day(seed, number, hours)
    struck: list[tuple[int, Fault]] = []
    with tempfile.TemporaryDirectory() as folder:
        log = _run(day, Path(folder), struck)
    return DayTold(
        day=number,
        about=day.about,
        node_days=NODES * (log.now_ns - START_NS) / 86_400e9,
        records_count=log.records_count,
        decoys=dict(Counter(fault.kind for _, fault in struck)),
        alarms=[each for fact in log.facts if (each := _alarm(number, fact, struck)) is not None],
        took_s=time.process_time() - began_s,
    )


def _run(day: Day, folder: Path, struck: list[tuple[int, Fault]]) -> OfflineLog:
    log: OfflineLog | None = None
    for at, shift in enumerate(day.shifts):
        start_ns = log.now_ns if log else START_NS
        faults = plan_faults(shift.cluster, shift.planned, shift.seed, lasts_s=shift.lasts_s)
        struck += ((start_ns + fault.began_ns, fault) for fault in faults)
        simulation = _simulation(shift, faults, folder / str(at), start_ns, boot=at + 1)
        if log is None:
            log = OfflineLog(CATALOGUE, simulation, START_NS)
            log.begin(beginning(shift.cluster, CATALOGUE, START_NS))
        else:
            log.turn_to(simulation)
            log.say((each, each.job) for each in submissions(shift.cluster, start_ns))
        _pass(log, start_ns + round(shift.lasts_s) * SECOND_NS)
        _finish(log, simulation)
    assert log is not None, "a day has shifts"
    return log


def _simulation(
    shift: Shift, faults: Sequence[Fault], folder: Path, start_ns: int, *, boot: int
) -> Simulation:
    return Simulation(
        shift.cluster,
        faults,
        seed=shift.seed,
        folder=folder,
        start_ns=start_ns,
        defects=shift.defects,
        params=shift.params,
        boot=boot,
    )


def _pass(log: OfflineLog, until_ns: int) -> None:
    while log.now_ns < until_ns:
        if not log.pass_calm(min(until_ns, log.now_ns + PERIOD_MS * 1_000_000), QUANTUM_NS):
            log.look(log.now_ns + QUANTUM_NS)


def _finish(log: OfflineLog, simulation: Simulation) -> None:
    """The jobs come to their end one after the other, each a little before a person is told."""
    for job in simulation.jobs:
        simulation.finish(job)
        _pass(log, log.now_ns + 2 * SECOND_NS)
        ended = JobEnded(at_ns=log.now_ns, by=BY, reason="it has come to its end", job=job)
        log.say([(ended, job)])
    _pass(log, log.now_ns + ENDS_NS)


def _alarm(day: int, fact: Fact, struck: Sequence[tuple[int, Fault]]) -> Alarm | None:
    """What a fact says that is wrong, or nothing."""
    data = fact.data
    if isinstance(data, FaultAttributed):
        if data.verdict == "no-fault":
            return None
        kind = "undecided" if data.verdict == "insufficient" else "blame"
        named = ", ".join(each.id for each in data.culprits) or "nobody"
        says = f"{data.verdict} {data.fault_class}, {named}: {data.reason}"
    elif isinstance(data, Decision):
        action = getattr(data, "action", "")
        kind = "advice" if action in IDLE_ACTIONS else "decision"
        says = f"{fact.kind} {action}: {data.reason}"
    elif isinstance(data, FailurePredicted):
        if data.band == "clear":
            return None
        kind, says = "prediction", f"{data.band} {data.component}: {data.reason}"
    else:
        return None
    evidence: Sequence[Any] = getattr(data, "evidence", ())
    return Alarm(
        kind=kind,
        day=day,
        at_s=round((fact.at_ns - START_NS) / 1e9, 1),
        says=says,
        evidence=tuple(f"{each.fact} {each.says} {each.text}".strip() for each in evidence),
        decoys=tuple(
            f"{fault.kind} of {fault.culprit or fault.node}, {(fact.at_ns - at_ns) / 1e9:.1f} s ago"
            for at_ns, fault in reversed(struck)
            if 0 <= fact.at_ns - at_ns <= NEAR_NS
        ),
    )


def quiet_days(
    node_days: float, *, seed: int, first_day: int, hours: float, jobs_count: int
) -> Iterator[DayTold]:
    """As many days as that takes, in order."""
    numbers = range(first_day, first_day + math.ceil(round(node_days / (NODES * hours / 24), 6)))
    work = partial(quiet_day, seed=seed, hours=hours)
    if jobs_count == 1:
        yield from map(work, numbers)
        return
    with ProcessPoolExecutor(jobs_count) as pool:
        yield from pool.map(work, numbers)


def upper_per_1000(alarms_count: int, node_days: float) -> float:
    """The rate per 1,000 node-days that 95 % of such runs would have shown more alarms at.

    Exact for counts of a Poisson process (Garwood, Biometrika 28, 1936); of none it is 3.0 divided
    by the exposure, the rule of three.
    """
    low, high = 0.0, 10.0 * (alarms_count + 3)
    for _ in range(100):
        mean = (low + high) / 2
        terms = [math.exp(-mean)]
        for number in range(1, alarms_count + 1):
            terms.append(terms[-1] * mean / number)
        low, high = (mean, high) if sum(terms) > 0.05 else (low, mean)
    return 1_000 * high / node_days


def summary(told: Sequence[DayTold]) -> dict[str, Any]:
    """What is printed, as one document."""
    node_days = sum(each.node_days for each in told)
    alarms = [alarm for each in told for alarm in each.alarms]
    false_count = sum(each.is_false for each in alarms)
    decoys: Counter[str] = Counter()
    for each in told:
        decoys.update(each.decoys)
    return {
        "simulated": True,
        "node_days": round(node_days, 1),
        "records_count": sum(each.records_count for each in told),
        "decoys": dict(sorted(decoys.items())),
        "false_alarms_count": false_count,
        "upper_per_1000_node_days": round(upper_per_1000(false_count, node_days), 2),
        "told": dict(sorted(Counter(each.kind for each in alarms).items())),
        "alarms": msgspec.to_builtins(alarms),
        "core_s": round(sum(each.took_s for each in told), 1),
    }


def main() -> int:
    """Run, print as it goes, and end with 1 if there was a false alarm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node-days", type=float, default=250.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first-day", type=int, default=1)
    parser.add_argument("--hours", type=float, default=24.0, help="of each day; its jobs shrink")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="one document")
    asked = parser.parse_args()
    told: list[DayTold] = []
    days = quiet_days(
        asked.node_days,
        seed=asked.seed,
        first_day=asked.first_day,
        hours=asked.hours,
        jobs_count=asked.jobs,
    )
    count = math.ceil(round(asked.node_days / (NODES * asked.hours / 24), 6))
    with RunBar("quiet days", count) as bar:
        for each in days:
            told.append(each)
            bar.advance()
            if not asked.json:
                print(_line(each), flush=True)
                for alarm in each.alarms:
                    print(_text(alarm), flush=True)
    document = summary(told)
    if asked.json:
        print(msgspec.json.encode(document).decode())
    else:
        print(_last(document))
    return int(document["false_alarms_count"] > 0)


def _line(told: DayTold) -> str:
    false_count = sum(each.is_false for each in told.alarms)
    return (
        f"day {told.day}: {told.about}: {told.node_days:.1f} node-days, "
        f"{told.records_count} records, {sum(told.decoys.values())} decoys, "
        f"{false_count} false alarms ({told.took_s:.0f} s)"
    )


def _text(alarm: Alarm) -> str:
    mark = "FALSE " if alarm.is_false else ""
    lines = [f"  {mark}{alarm.kind} at {alarm.at_s:.1f} s: {alarm.says}"]
    lines += [f"    {each}" for each in alarm.evidence]
    lines += [f"    decoy: {each}" for each in alarm.decoys[:3]]
    return "\n".join(lines)


def _last(document: dict[str, Any]) -> str:
    told = ", ".join(f"{count} {kind}" for kind, count in document["told"].items()) or "nothing"
    return (
        f"{document['node_days']} node-days, {document['records_count']} records, "
        f"{sum(document['decoys'].values())} decoys, "
        f"{document['false_alarms_count']} false alarms; "
        f"at most {document['upper_per_1000_node_days']} in 1,000 node-days (95 %, one-sided); "
        f"said in all: {told}   (simulated)"
    )


if __name__ == "__main__":
    sys.exit(main())
