"""Promises of published rates: what is drawn comes as often as was counted; a trace is kept."""

import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import pytest

from nemesis.sim.faults.planned import KINDS
from nemesis.sim.faults.rates import (
    BadRatesError,
    arrivals,
    distribution_named,
    distributions,
    draw_kind,
)
from nemesis.sim.faults.schedule import (
    BadTraceError,
    Span,
    at_rates,
    of_trace,
    read_trace,
)
from nemesis.sim.topology.cluster_file import load_cluster
from tests.commands import nemesis

TRACE = Path(__file__).parent.parent / "data" / "infinitehbd_trace" / "fault_trace.json"
NODES = tuple(f"n{number:03d}" for number in range(1, 401))
NAMES = sorted(distributions())
DRAWS = 10_000


def chi_square(counts: Counter[str], shares: dict[str, float], total: int) -> float:
    return sum(
        (counts[name] - total * share) ** 2 / (total * share) for name, share in shares.items()
    )


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_drawn_as_often_as_they_were_counted(name: str) -> None:
    drawn_from = distribution_named(name)
    random = Random("rates")
    counts = Counter(draw_kind(drawn_from, random)[0].what for _ in range(DRAWS))
    total = sum(row.count for row in drawn_from.simulated)
    shares = {row.what: row.count / total for row in drawn_from.simulated}
    free = len(shares) - 1
    # the mean of chi-square is `free`, its standard deviation the root of twice that
    assert chi_square(counts, shares, DRAWS) <= free + 4 * math.sqrt(2 * free) + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_faults_come_as_often_per_node_day_as_was_published(name: str) -> None:
    drawn_from = distribution_named(name)
    days = 5_000 / (drawn_from.per_node_day * 2_048)
    came = list(
        arrivals(drawn_from, nodes_count=2_048, lasts_s=days * 86_400, random=Random("poisson"))
    )
    assert abs(len(came) - 5_000) < 4 * math.sqrt(5_000)
    gaps = [after.at_s - before.at_s for before, after in pairwise(came)]
    # of a Poisson process the gaps' deviation is their mean
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert abs(deviation / mean - 1) < 0.1


def test_the_published_totals_are_kept() -> None:
    assert sum(row.count for row in distribution_named("llama3").rows) == 419
    # 419 in 54 days on 2,048 nodes: one in 3.09 hours
    assert round(24 / (distribution_named("llama3").per_node_day * 2_048), 2) == 3.09
    assert round(1_000 * distribution_named("rsc1").per_node_day, 2) == 6.5
    assert round(1_000 * distribution_named("rsc2").per_node_day, 2) == 2.34


def test_every_kind_that_stands_for_a_row_is_a_kind_of_fault() -> None:
    named = {kind for each in distributions().values() for row in each.rows for kind in row.kinds}
    assert named <= set(KINDS)


def test_the_table_counts_what_is_in_the_trace() -> None:
    started = [each for each in read_trace(TRACE) if each.event_type == "fault_start"]
    rows = {row.what: row.count for row in distribution_named("infinitehbd").rows}
    assert Counter(each.what for each in started) == rows


def test_the_days_that_the_documentation_replays_hold_faults_of_the_built_in_cluster() -> None:
    text = (Path(__file__).parent.parent / "docs" / "suites.md").read_text()
    (shown,) = re.findall(r"--trace \S+ --from-day (\d+) --days (\d+) --faster (\d+)", text)
    from_day, days, faster = map(float, shown)
    nodes = load_cluster().node_names
    found = of_trace(
        read_trace(TRACE), nodes, Span(from_day=from_day, days=days, faster=faster), seed=7
    )
    assert found.scenario.faults


def test_a_trace_on_as_many_nodes_as_it_had_keeps_every_fault_and_its_time() -> None:
    events = read_trace(TRACE)
    found = of_trace(events, NODES, Span(days=349.0, faster=400.0), seed=1)
    faults = found.scenario.faults
    assert len(faults) + sum(found.skipped.values()) == 584
    starts = [each.event_time for each in events if each.event_type == "fault_start"]
    assert faults[0].after_s >= 10.0 + starts[0] * 86_400 / 400 - 1e-3
    assert found.scenario.duration_s > faults[-1].after_s
    assert found == of_trace(events, NODES, Span(days=349.0, faster=400.0), seed=1)


def test_fewer_nodes_fail_as_often_each() -> None:
    events = read_trace(TRACE)
    counts = [
        len(
            of_trace(events, NODES[:100], Span(days=349.0, faster=400.0), seed=seed).scenario.faults
        )
        for seed in range(40)
    ]
    whole = len(of_trace(events, NODES, Span(days=349.0, faster=400.0), seed=1).scenario.faults)
    assert abs(sum(counts) / len(counts) - whole / 4) < 0.1 * whole / 4


def test_what_cannot_be_replayed_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(BadRatesError, match="no rates 'llama4', expected one of"):
        distribution_named("llama4")
    with pytest.raises(BadTraceError, match="nothing breaks that can be simulated"):
        at_rates("rsc2", NODES[:2], Span(days=0.001, faster=1.0), seed=1)
    path = tmp_path / "trace.json"
    path.write_text('[{"node_id": "a", "event_time": -1}]')
    with pytest.raises(BadTraceError, match=r"no trace: .*event_time"):
        read_trace(path)


def test_a_day_of_a_trace_is_run_and_scored(tmp_path: Path) -> None:
    down = {"Class": "Parameter Plane Cable", "Desc": "Link Down"}
    event = {"event_time": 0.001, "event_type": "fault_start", "fault_type": down}
    path = tmp_path / "trace.json"
    path.write_bytes(msgspec.json.encode([{"node_id": str(at), **event} for at in range(40)]))
    ran = nemesis("sim", "--trace", str(path), "--days", "0.01", "--faster", "1000", "--json")
    document = msgspec.json.decode(ran.stdout)
    assert {each["kind"] for each in document["score"]["faults"]} == {"port-down"}
    both = nemesis("sim", "--trace", str(path), "--rates", "llama3")
    assert (both.returncode, "expected one of" in both.stderr) == (2, True)
