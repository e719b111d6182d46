"""Promises of `nemesis exporter`: what it counts, what it names, and how much it can become."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from nemesis.processors.fold import Input
from nemesis.replay.reader import Recording
from nemesis.schemas import decided, done, inferred
from nemesis.schemas.facts import Record
from nemesis.schemas.watched import CoverageReported, ProbeSeen
from nemesis.streams.server import Server
from nemesis.views.exporter.catalogue import BY_NAME, METRICS, SERIES_MAX
from nemesis.views.exporter.events import Events
from nemesis.views.exporter.exposition import page
from nemesis.views.exporter.series import Series
from nemesis.views.exporter.watching import Watching
from tests.cells import in_cell, until
from tests.commands import nemesis
from tests.exporting import exported
from tests.replay_logs import SECOND_NS, START_NS, Log
from tests.test_dashboard_board import recovery, verdict

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.zst"))
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def counted(records: list[Record]) -> Series:
    series = Series()
    events = Events(series)
    for record in records:
        item = Input(record)
        if item.space == "events":
            events.see(item)
        elif item.token == "kernel":
            events.see_kernel(item)
    return series


def told(*facts: Any) -> Series:
    log = Log()
    for number, data in enumerate(facts):
        log.event(data, key=f"k{number}")
    return counted(log.records)


def scraped(text: str) -> dict[str, Sample]:
    """Samples by what a person would write: `name{label="value"}`."""
    found = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample
    return found


def opened(**fields: Any) -> inferred.IncidentOpened:
    known: dict[str, Any] = {"at_ns": START_NS + 3 * SECOND_NS, "began_ns": START_NS}
    known |= {"reason": "x", "incident": "i-1", "trigger": "verdict"}
    return inferred.IncidentOpened(**known | fields)


def account(productive_s: int, **fields: Any) -> inferred.GoodputAccounted:
    parts = inferred.TimeParts(productive_ns=productive_s * SECOND_NS, open_ns=5)
    known: dict[str, Any] = {"since_ns": START_NS, "until_ns": START_NS + 1, "job": "llama"}
    return inferred.GoodputAccounted(at_ns=START_NS, reason="x", parts=parts, **known | fields)


def test_an_incident_is_counted_from_its_opening_to_its_end_and_named_by_an_exemplar() -> None:
    closed = inferred.IncidentClosed(
        at_ns=START_NS + 9 * SECOND_NS, reason="x", incident="i-1", outcome="recovered",
        fault_class="gpu.off_bus", began_ns=START_NS, ended_ns=START_NS + 8 * SECOND_NS,
    )  # fmt: skip
    failed = done.AttemptFailed(at_ns=START_NS, reason="x", decision="llama/1", actor="a")
    end = done.AttemptCompleted(
        at_ns=START_NS, reason="x", decision="llama/1", actor="a", restarts=2
    )
    resumed = inferred.JobResumed(
        at_ns=START_NS, reason="x", job="llama", step=4, decision="llama/1", lost_ns=SECOND_NS
    )
    facts = (opened(), verdict(), verdict(revision=1), recovery(), failed, end, resumed, closed)
    found = scraped(page(told(*facts), OPENMETRICS)[1].decode())
    for series in (
        'nemesis_incidents_opened_total{trigger="verdict"}',
        'nemesis_verdicts_total{fault_class="gpu.off_bus",verdict="attributed"}',
        'nemesis_decisions_total{action="shrink",mode="act"}',
        'nemesis_recoveries_total{action="shrink",result="failed"}',
        'nemesis_recoveries_total{action="shrink",result="completed"}',
        'nemesis_incidents_closed_total{fault_class="gpu.off_bus",outcome="recovered"}',
        'nemesis_detect_seconds_bucket{le="5.0"}',
        'nemesis_incident_seconds_bucket{le="10.0"}',
        'nemesis_pause_seconds_bucket{le="1.0"}',
    ):
        assert found[series].value == 1, series
        exemplar = found[series].exemplar
        assert exemplar is not None, series
        assert exemplar.labels == {"incident": "i-1"}, series
    assert found["nemesis_verdict_revisions_total"].value == 1
    assert found["nemesis_process_restarts_total"].value == 2
    assert found["nemesis_incidents_open"].value == 0
    assert found["nemesis_pause_seconds_sum"].value == 1
    assert found['nemesis_events_total{fact="fault_attributed"}'].value == 2


def test_a_hold_is_no_recovery() -> None:
    hold = decided.QuiesceDecided(
        at_ns=START_NS, reason="x", decision="llama/0", incident="i-1", mode="act",
        deadline_ns=START_NS, job="llama", epoch=0,
    )  # fmt: skip
    end = done.AttemptCompleted(at_ns=START_NS, reason="x", decision="llama/0", actor="a")
    series = told(hold, end)
    assert sum(series.numbers["holds"].values()) == 1
    assert sum(series.numbers["recoveries"].values()) == 0


def test_time_of_jobs_only_grows_and_a_job_that_is_told_twice_counts_once() -> None:
    again = account(3, since_ns=START_NS + 1)  # the same name, another job
    series = told(account(10), account(25), account(25), account(25, ended=True), again)
    assert series.numbers["goodput_seconds"]["productive",] == 28


def test_a_cost_is_raised_by_what_is_new_in_it() -> None:
    cost: dict[str, Any] = {"at_ns": START_NS, "reason": "x", "incident": "i-1", "job": "llama"}
    parts = inferred.TimeParts()
    costs = [
        inferred.IncidentCosted(**cost, parts=parts, lost_gpu_ms=ms, final=ms == 9000)
        for ms in (2000, 5000, 9000)
    ]
    assert told(*costs).numbers["lost_gpu_seconds"][()] == 9


def test_equal_xids_count_each_time() -> None:
    log = Log()
    for _ in range(2):
        log.kernel("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
    assert counted(log.records).numbers["xid"]["79",] == 2


def coverage(n: int, *states: Any, **fields: Any) -> CoverageReported:
    probes = tuple(ProbeSeen(f"gpu/n1/{at}", "nvml", state) for at, state in enumerate(states))
    known: dict[str, Any] = {"node": "n1", "at_ns": START_NS, "start_ns": 7, "n": n}
    return CoverageReported(**known | fields, probes=probes)


def test_a_gap_is_counted_when_it_opens_and_shown_while_its_node_is_heard() -> None:
    series = Series()
    watching = Watching(series)
    watching.see(coverage(1, "read", "denied"), START_NS)
    watching.see(coverage(2, "stalled", "denied", missed_lines_count=4), START_NS)
    watching.show(START_NS)
    gaps = {
        state: series.numbers["coverage_gaps"]["nvml", state] for state in ("stalled", "denied")
    }
    assert gaps == {"stalled": 1, "denied": 1}
    assert series.numbers["coverage_gaps_opened"]["nvml", "stalled"] == 1
    assert series.numbers["coverage_gaps_opened"]["nvml", "denied"] == 0
    assert series.numbers["producer_missed_lines"][()] == 4
    assert series.numbers["producers"]["reporting",] == 1
    watching.show(START_NS + 200 * SECOND_NS)
    assert series.numbers["coverage_gaps"]["nvml", "stalled"] == 0
    assert series.numbers["producers"]["silent",] == 1


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_what_happens_later_lowers_no_count(path: Path) -> None:
    records = list(Recording(path).records())
    before = Series()
    for upto in range(0, len(records), max(1, len(records) // 4)):
        now = counted(records[:upto])
        for metric in METRICS:
            if metric.type == "counter":
                numbers = now.numbers[metric.name]
                assert all(numbers[at] >= n for at, n in before.numbers[metric.name].items())
        before = now


def test_a_label_means_one_thing_everywhere() -> None:
    lists: dict[str, set[tuple[str, ...]]] = {}
    for metric in METRICS:
        for label in metric.labels:
            lists.setdefault(label.name, set()).add(label.values)
    assert [name for name, values in lists.items() if len(values) > 1] == []


@settings(max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(sorted(BY_NAME)), st.text()), max_size=20))
def test_no_word_of_a_cluster_makes_more_series_than_the_table_allows(
    words: list[tuple[str, str]],
) -> None:
    series = Series()
    for name, word in words:
        if BY_NAME[name].type != "histogram":
            labels = BY_NAME[name].labels
            series.add(name, *[word] * len(labels), incident=word, at_ns=START_NS)
    text = page(series, "")[1].decode()
    assert sum(not line.startswith("#") for line in text.splitlines()) <= SERIES_MAX


@pytest.mark.server
def test_a_scrape_of_a_log_answers_once_the_past_is_counted(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        async with exported(server, tmp_path) as url, aiohttp.ClientSession() as session:

            async def got(path: str) -> tuple[int, str]:
                headers = {"Accept": OPENMETRICS}
                async with session.get(f"{url}{path}", headers=headers) as answer:
                    return answer.status, await answer.text()

            async def ready() -> bool:
                return (await got("readyz"))[0] == 200

            await until(ready, "the past is counted")
            assert (await got("healthz"))[0] == 200
            status, text = await got("metrics")
            assert status == 200
            found = scraped(text)
            verdicts = 'nemesis_verdicts_total{fault_class="gpu.off_bus",verdict="attributed"}'
            assert found[verdicts].value == 1
            assert found["nemesis_log_reachable"].value == 1
            assert found["nemesis_clock_age_seconds"].value == -1

    in_cell(tmp_path, body)


def test_it_listens_beyond_this_machine_only_when_told_to() -> None:
    ran = nemesis("exporter", "--bind", "0.0.0.0")  # noqa: S104
    assert ran.returncode == 4
    assert "--expose" in ran.stderr
