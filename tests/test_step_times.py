"""Promises about stragglers in tables of step times, where nothing else is known."""

import csv
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.attribution.attribution import Attribution
from nemesis.schemas.inferred import FaultAttributed
from tests.attribution_log import Log

Table = Mapping[int, Mapping[int, int]]
"""Step to {rank: time in ns}."""
USUAL_NS = 400_000_000
WINDOW = range(1801, 1942)
"""Steps in which worker 6 of job_1 is slow (alibaba/clusterdata, mini-batch-time)."""


def told(table: Table, *, world: int = 10, log: Log | None = None) -> Log:
    log = log or Log()
    for step, times in sorted(table.items()):
        log.timed(step, *(times.get(rank, 0) for rank in range(world)))
        log.tick(10)
    return log


def blamed(log: Log) -> set[str]:
    return {each.id for verdict in log.verdicts for each in verdict.culprits}


def steady(steps: int, factors: Iterable[int], *, scatter: int = 3) -> dict[int, dict[int, int]]:
    """Ranks that take so many per cent of the usual time, give or take a little."""
    each = list(factors)
    return {
        step: {
            rank: USUAL_NS * (factor + (rank * 7 + step * 5) % scatter) // 100
            for rank, factor in enumerate(each)
        }
        for step in range(1, steps + 1)
    }


def pai(shared: Path, job: int) -> dict[int, dict[int, int]]:
    """Mini-batch times of ten workers of Alibaba's PAI cluster; they have no unit."""
    path = shared / "data" / "alibaba_pai_minibatch" / f"job_{job}_norm.csv"
    table: dict[int, dict[int, int]] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        times = table.setdefault(int(row["time"]), {})
        times[int(row["worker"])] = round(float(row["batch_time_norm"]) * 1_000_000)
    return table


def test_worker_6_of_a_real_job_is_named_in_its_window(shared: Path) -> None:
    log = Log()
    named: dict[int, list[FaultAttributed]] = {}
    for step, times in sorted(pai(shared, 1).items()):
        log.timed(step, *(times.get(rank, 0) for rank in range(10)))
        before = len(log.verdicts)
        log.tick(10)
        named[step] = log.verdicts[before:]
    steps = [step for step, verdicts in named.items() if verdicts]
    assert blamed(log) == {"rank/llama/6"}
    assert steps[0] in WINDOW
    assert "from step 18" in log.verdicts[0].reason
    assert len({each.incident for each in log.verdicts}) == 1
    assert log.verdicts[-1].signature == "transient"


def test_stable_spreads_of_real_jobs_raise_at_most_one_alarm(shared: Path) -> None:
    before = {step: times for step, times in pai(shared, 1).items() if step < WINDOW.start}
    runs = [before, *(pai(shared, job) for job in (2, 3, 4))]
    alarms = [{each.incident for each in told(table).verdicts} for table in runs]
    assert [len(each) for each in alarms[:3]] == [0, 0, 0]
    assert sum(map(len, alarms)) <= 1


def test_the_reading_of_a_straggler_does_not_hang_on_how_often_it_is_polled(shared: Path) -> None:
    log, table = Log(), pai(shared, 1)
    for step, times in sorted(table.items()):
        for rank in range(10):  # each rank tells for itself
            log.timed(step, times.get(rank, 0), first_rank=rank)
        log.tick(1)
    assert blamed(log) == {"rank/llama/6"}


def test_a_rank_slow_for_four_steps_is_nothing() -> None:
    table = steady(60, [100] * 8)
    for step in range(30, 34):
        table[step][3] *= 3
    assert not told(table, world=8).verdicts


def test_a_rank_that_is_slow_to_the_end_is_no_transient() -> None:
    table = steady(60, [100] * 8)
    for step in range(30, 61):
        table[step][3] *= 2
    (verdict,) = told(table, world=8).verdicts
    assert [each.id for each in verdict.culprits] == ["rank/llama/3"]
    assert (verdict.signature, verdict.fault_class) == ("", "straggler.host")
    assert [each.says for each in verdict.ruled_out] == ["the other ranks"]


def test_a_job_that_slows_down_as_a_whole_is_nobodys_fault() -> None:
    table = steady(80, range(60, 140, 10))
    slower = {step: {r: 2 * ns for r, ns in times.items()} for step, times in table.items()}
    assert not told({s: (slower if s > 40 else table)[s] for s in table}, world=8).verdicts


def test_ranks_that_all_rose_but_few_blame_nobody() -> None:
    table = steady(80, [100] * 8)
    for step, rank in itertools.product(range(40, 81), range(5)):
        table[step][rank] *= 2
    assert not told(table, world=8).verdicts


def test_times_of_the_whole_job_name_nobody() -> None:
    log = Log()
    for step in range(60):
        log.timed(step, USUAL_NS * (3 if step > 30 else 1), first_rank=-1)
        log.tick(1)
    assert not blamed(log)
    assert "became slower" in log.verdicts[-1].reason


@settings(max_examples=40)
@given(
    factors=st.lists(st.integers(40, 300), min_size=3, max_size=12),
    scatter=st.integers(1, 12),
    common=st.lists(st.integers(50, 200), min_size=60, max_size=60),
)
def test_a_stable_spread_is_never_a_straggler(
    factors: list[int], scatter: int, common: list[int]
) -> None:
    table = {
        step: {rank: ns * common[step % 60] // 100 for rank, ns in times.items()}
        for step, times in steady(90, factors, scatter=scatter).items()
    }
    assert not told(table, world=len(factors)).verdicts


@settings(max_examples=25)
@given(order=st.permutations(range(8)), slow=st.integers(0, 7), offset=st.integers(0, 500))
def test_other_numbers_for_ranks_and_steps_change_nothing_but_the_names(
    order: list[int], slow: int, offset: int
) -> None:
    table = steady(60, range(60, 140, 10))
    for step in range(30, 61):
        table[step][slow] *= 4
    first = told(table, world=8)
    renamed = {
        step + offset: {order[rank]: ns for rank, ns in times.items()}
        for step, times in table.items()
    }
    second = told(renamed, world=8)
    assert blamed(first) == {f"rank/llama/{slow}"}
    assert blamed(second) == {f"rank/llama/{order[slow]}"}


@pytest.mark.parametrize("at", [1, 37, 63])
def test_a_snapshot_in_between_changes_nothing(at: int) -> None:
    table = steady(70, [100] * 8)
    for step in range(30, 50):
        table[step][3] *= 2
    whole = told(table, world=8)
    log = told({s: t for s, t in table.items() if s <= at}, world=8)
    kept, log.processor = log.processor.snapshot(), Attribution()
    log.processor.restore(kept)
    told({s: t for s, t in table.items() if s > at}, world=8, log=log)
    assert log.verdicts == whole.verdicts
