"""Promises of incident and goodput together, against what the simulator knows to be true."""

from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from nemesis.processors.fold import Input
from nemesis.replay.reader import Recording
from nemesis.schemas.inferred import (
    GoodputAccounted,
    IncidentClosed,
    IncidentCosted,
    IncidentOpened,
    JobResumed,
)
from nemesis.sim.faults.scenario import scenario_named
from nemesis.sim.offline import OfflineRun, run_offline
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed

SECOND_NS = 1_000_000_000
SLACK_NS = 3 * SECOND_NS
"""A step of a second, a sample a second, and a tick."""
S = TypeVar("S", bound=msgspec.Struct)


def said(run: OfflineRun, struct: type[S]) -> list[S]:
    return [fact.data for fact in run.facts if isinstance(fact.data, struct)]


def ran(name: str, folder: Path) -> OfflineRun:
    return run_offline(load_cluster(), scenario_named(name), seed=7, folder=folder)


@pytest.mark.parametrize("name", ["gpu-off-bus", "node-lost", "rank-exit"])
def test_a_fault_is_one_incident_that_closes_with_the_first_step_and_costs_the_outage(
    name: str, tmp_path: Path
) -> None:
    run = ran(name, tmp_path)
    (opened,) = said(run, IncidentOpened)
    (closed,) = said(run, IncidentClosed)
    (resumed,) = said(run, JobResumed)
    cost = said(run, IncidentCosted)[-1]
    assert closed.incident == cost.incident == opened.incident
    assert (closed.outcome, closed.confirmed) == ("recovered", True)

    (fault,) = (each for each in run.truths if isinstance(each, FaultInjected))
    formed = [each for each in run.truths if isinstance(each, MembershipFormed) and each.epoch]
    outage_ns = formed[0].at_ns - fault.at_ns
    assert resumed.step == formed[0].step
    assert outage_ns <= resumed.lost_ns <= outage_ns + SLACK_NS
    assert cost.lost_ns >= resumed.lost_ns


def test_a_day_with_nothing_but_decoys_has_no_incident_and_is_productive(tmp_path: Path) -> None:
    run = ran("quiet-day", tmp_path)
    assert said(run, IncidentOpened) == []
    last = said(run, GoodputAccounted)[-1]
    parts = msgspec.structs.asdict(last.parts)
    assert sum(parts.values()) == last.until_ns - last.since_ns
    assert {name for name, ns in parts.items() if ns} == {"start_ns", "productive_ns", "open_ns"}


@pytest.mark.parametrize("name", ["gpu-memory", "gpu-off-bus", "node-lost", "rank-exit"])
def test_a_golden_recording_holds_an_incident_from_its_opening_to_its_price(name: str) -> None:
    path = Path(__file__).parent / "recordings" / f"{name}.ndjson.zst"
    tokens = {Input(record).token for record in Recording(path).records()}
    told = {"incident_opened", "job_resumed", "incident_closed", "goodput_accounted"}
    assert told | {"incident_costed"} <= tokens
