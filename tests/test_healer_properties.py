"""What no order of events may break: epochs, members, replicas, an end, and a cut anywhere."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.fold import Fold, Input
from nemesis.processors.healer.healer import Healer
from nemesis.processors.healer.replicas import replica_of
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import (
    AttemptCompleted,
    AttemptFailed,
    AttemptOutcomeUnknown,
    AttemptStarted,
)
from nemesis.schemas.facts import Record
from nemesis.schemas.observed import ProcessExited
from nemesis.schemas.operated import (
    BreakerReset,
    DecisionApproved,
    DecisionVetoed,
    JobSubmitted,
    PauseSet,
)
from nemesis.schemas.policy import LIMITS
from nemesis.schemas.rank_ranges import parse_ranks
from tests.healer_cell import Cell
from tests.log_cell import SECOND_NS

RANKS = st.integers(0, 7)
CLASSES = st.sampled_from(
    ["gpu.off_bus", "gpu.memory", "nvlink", "app.program", "desync", "straggler.gpu", "unknown"]
)
STEP = st.one_of(
    st.tuples(st.just("exit"), RANKS),
    st.tuples(st.just("late_exit"), RANKS),
    st.tuples(st.just("lose_group"), st.integers(0, 2)),
    st.tuples(st.just("ready"), RANKS),
    st.tuples(st.just("blame"), RANKS, CLASSES, st.integers(0, 3)),
    st.tuples(st.just("refute"), st.integers(0, 3)),
    st.tuples(st.just("tick"), st.integers(1, 3)),
    st.tuples(st.just("tick"), st.integers(20, 70)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("claim")),
    st.tuples(st.just("complete")),
    st.tuples(st.just("fall_off"), RANKS),
    st.tuples(st.just("carry_out")),
    st.tuples(st.just("fail"), RANKS),
    st.tuples(st.just("unknown"), RANKS),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("reset"), st.sampled_from(["shrinks_max", "recoveries_max", "no_rung"])),
    st.tuples(st.just("policy"), st.sampled_from(["act", "shadow", "approve"])),
    st.tuples(st.just("predict"), RANKS, st.sampled_from(["clear", "record", "watch", "act"])),
    st.tuples(st.sampled_from(["approve", "veto"])),
)
JOBS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2]),
        "pp": st.sampled_from([1, 2]),
        "world_min": st.integers(1, 6),
        "spares": st.sampled_from([(), ("s0",), ("s0", "s1")]),
    }
)
WIDE = {"nodes_out_share_max_ppm": 1_000_000, "nodes_out_max": 100}


REVISING = (
    QuiesceDecided
    | RecoveryDecided
    | RecoveryWithheld
    | AttemptStarted
    | AttemptCompleted
    | AttemptFailed
    | AttemptOutcomeUnknown
    | JobSubmitted
)
"""What makes a decision void that was made without knowing of it."""


def newest(cell: Cell) -> Any:
    """The newest decision that an actor would carry out, as it lies in the log."""
    revision, found, claimed = 0, None, False
    for record in cell.records:
        data = Input(record).decoded()
        if isinstance(data, QuiesceDecided | RecoveryDecided):
            effective = data.mode != "shadow" and data.job_revision == revision
            found, claimed = (data, False) if effective else (found, claimed)
        claimed = claimed or isinstance(data, AttemptStarted)
        if isinstance(data, RecoveryWithheld) and not claimed:
            found = None  # nobody may begin with it any more
        if isinstance(data, REVISING):
            revision = record.seq
    return found


def play(cell: Cell, step: tuple[Any, ...]) -> None:  # noqa: C901, PLR0912 - a table
    decided = newest(cell)
    match step:
        case ("exit", rank):
            cell.exit(rank, node=f"n{rank // 2}")
        case ("late_exit", rank):
            cell.exit(rank, node=f"n{rank // 2}", late_ns=40 * SECOND_NS)
        case ("ready", rank):
            cell.ready(rank, node=f"n{rank // 2}")
        case ("lose_group", epoch):
            cell.lose_group(epoch)
        case ("blame", rank, fault_class, revision):
            cell.blame(
                fault_class,
                rank,
                node="" if fault_class in ("app.program", "desync") else f"n{rank // 2}",
                incident=f"i-{rank}",
                revision=revision,
                verdict="insufficient" if fault_class == "unknown" else "attributed",
            )
        case ("refute", revision):
            cell.blame("none", incident="i-3", revision=revision, verdict="no-fault", culprits=())
        case ("tick", seconds):
            cell.tick(seconds)
        case ("flush",):
            cell.flush()
        case ("pause", paused):
            cell.operate(PauseSet, "pause", scope="ALL", paused=paused)
        case ("reset", limit):
            cell.operate(BreakerReset, "x", limit=limit)
        case ("policy", mode):
            cell.apply(WIDE | {"mode": mode})
        case ("fall_off", rank):
            cell.exit(rank, node=f"n{rank // 2}")
            cell.blame("gpu.off_bus", rank, node=f"n{rank // 2}", incident=f"i-{rank}")
            play(cell, ("carry_out",))
        case ("predict", rank, band):
            cell.predict(band, rank, node=f"n{rank // 2}", incident=f"p-{rank}")
        case ("approve",) if decided is not None:
            name = decided.decision
            cell.operate(DecisionApproved, name, decision=name)
        case ("veto",) if decided is not None:
            name = decided.decision
            cell.operate(DecisionVetoed, name, decision=name)
        case ("carry_out",) if decided is not None:
            play(cell, ("claim",))
            play(cell, ("complete",))
        case ("claim",) if decided is not None:
            deadline_ns = cell.now_ns + 30 * SECOND_NS
            cell.attempt(AttemptStarted, decided.decision, deadline_ns=deadline_ns)
        case ("complete",) if decided is not None:
            cell.attempt(AttemptCompleted, decided.decision)
        case ("fail", rank) if decided is not None:
            cell.attempt(AttemptFailed, decided.decision, lost=str(rank))
        case ("unknown", rank) if decided is not None:
            cell.attempt(AttemptOutcomeUnknown, decided.decision, silent=str(rank))


def played(job: dict[str, Any], steps: list[tuple[Any, ...]], *, at_once: bool) -> Cell:
    cell = Cell(policy=WIDE | {"mode": "act"}, at_once=at_once)
    cell.submit(**job)
    for step in steps:
        play(cell, step)
    return cell


def check_rules(records: list[Record]) -> int:
    """Read a log as its strictest reader: how many decisions took effect."""
    revision, members = 0, frozenset(range(8))
    job: Any = None
    effective: list[RecoveryDecided] = []
    for record in records:
        data = Input(record).decoded()
        if isinstance(data, JobSubmitted):
            job = data
        elif isinstance(data, RecoveryDecided) and data.members:
            if data.job_revision == revision:
                check_membership(job, members, data)
                if data.mode != "shadow":
                    assert data.epoch > max((each.epoch for each in effective), default=0)
                    effective.append(data)
        elif isinstance(data, AttemptCompleted):
            done = [each for each in effective[-1:] if each.decision == data.decision]
            members = frozenset(parse_ranks(done[0].members)) if done else members
        if isinstance(data, REVISING):
            revision = record.seq
    return len(effective)


def check_membership(job: JobSubmitted, members: frozenset[int], data: RecoveryDecided) -> None:
    chosen = frozenset(parse_ranks(data.members))
    assert len(chosen) == data.world >= job.world_min
    assert not set(data.removed_ranks) & chosen
    assert chosen | set(data.removed_ranks) == members
    assert set(parse_ranks(data.started)) <= chosen
    assert _whole(job, chosen)


def _whole(job: JobSubmitted, members: frozenset[int]) -> bool:
    kept = {replica_of(job, rank) for rank in members}
    return set(members) == {rank for rank in range(8) if replica_of(job, rank) in kept}


@settings(max_examples=150)
@given(JOBS, st.lists(STEP, max_size=40), st.booleans())
def test_no_order_of_events_breaks_the_rules(
    job: dict[str, Any], steps: list[tuple[Any, ...]], at_once: bool
) -> None:
    cell = played(job, steps, at_once=at_once)
    cell.flush()
    check_rules(cell.records)


def check_survivors(cell: Cell) -> None:
    """No decision keeps a rank that had ended before it was made, unless it starts it anew."""
    exits: dict[int, int] = {}
    started: dict[str, tuple[int, ...]] = {}
    for record in cell.records:
        item = Input(record)
        data = item.decoded()
        if isinstance(data, ProcessExited):
            exits.setdefault(data.rank, record.seq)
        if isinstance(data, AttemptCompleted):
            for rank in started.get(data.decision, ()):
                exits.pop(rank, None)
        if isinstance(data, RecoveryDecided) and data.members:
            made_at = int(item.fact(0).id.split("/")[1])
            started[data.decision] = parse_ranks(data.started)
            going_on = set(parse_ranks(data.members)) - set(parse_ranks(data.started))
            assert not [rank for rank in going_on if exits.get(rank, made_at + 1) <= made_at]


@settings(max_examples=100)
@given(
    JOBS,
    st.lists(
        st.one_of(
            st.tuples(st.just("exit"), RANKS),
            st.tuples(st.just("blame"), RANKS, CLASSES, st.integers(0, 3)),
            st.tuples(st.just("tick"), st.integers(1, 3)),
            st.tuples(st.just("flush")),
            st.tuples(st.just("claim")),
            st.tuples(st.just("fall_off"), RANKS),
        ),
        max_size=30,
    ),
    st.booleans(),
)
def test_a_rank_that_ended_is_in_no_membership_unless_it_is_started_anew(
    job: dict[str, Any], steps: list[tuple[Any, ...]], at_once: bool
) -> None:
    cell = played(job, steps, at_once=at_once)
    cell.flush()
    check_survivors(cell)


@settings(max_examples=100)
@given(JOBS, st.lists(STEP, max_size=30), st.booleans(), st.sampled_from(["act", "shadow"]))
def test_every_story_ends_with_no_dead_member_or_a_word_to_a_person(
    job: dict[str, Any], steps: list[tuple[Any, ...]], at_once: bool, mode: str
) -> None:
    cell = played(job, steps, at_once=at_once)
    cell.operate(PauseSet, "pause", scope="ALL", paused=False)
    cell.apply(WIDE | {"mode": mode, "recoveries_max": 1000, "shrinks_max": 1000})
    for limit in (*LIMITS, "vetoed", "no_rung", "unanswered", "expired", "undeliverable"):
        cell.operate(BreakerReset, "x", limit=limit)
    cell.exit(0, node="n0")
    for _ in range(200):
        cell.flush()
        before = len(cell.said)
        decided = newest(cell)
        if decided is not None:
            cell.attempt(AttemptStarted, decided.decision, deadline_ns=cell.now_ns)
            cell.attempt(AttemptCompleted, decided.decision)
        cell.tick(12)
        cell.flush()
        if len(cell.said) == before:
            break
    else:
        raise AssertionError("it never came to rest")
    state = msgspec.msgpack.decode(cell.fold.processor.snapshot())
    (name, record), *_ = state[1].items()
    assert name == "llama"
    said = cell.said[-1] if cell.said else None
    phase = record[4]
    assert phase in ("running", "waiting"), f"{phase} after {said}"
    if mode == "act" and phase == "running":
        members = set(parse_ranks(record[2]))
        exited = set(record[9]) | set(record[10])
        answered = set(record[11])
        assert not (members & exited) - answered


@settings(max_examples=100)
@given(JOBS, st.lists(STEP, max_size=30), st.booleans(), st.data())
def test_a_state_restored_anywhere_goes_on_byte_for_byte(
    job: dict[str, Any], steps: list[tuple[Any, ...]], at_once: bool, data: st.DataObject
) -> None:
    cell = played(job, steps, at_once=at_once)
    cell.flush()
    cut = data.draw(st.integers(0, len(cell.records)))
    kept = Fold(Healer())
    for record in cell.records[:cut]:
        kept.step(Input(record))
    restored = Fold(Healer())
    restored.restore(kept.snapshot())
    for record in cell.records[cut:]:
        assert kept.step(Input(record)) == restored.step(Input(record))
        assert kept.snapshot() == restored.snapshot()
    assert kept.snapshot() == cell.fold.snapshot()
