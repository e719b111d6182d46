"""Promises of `nemesis report`: a page that tells an incident and needs nothing else."""

import re
import resource
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from nemesis.schemas.decided import RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import AttemptCompleted, AttemptStarted
from nemesis.schemas.facts import Record
from nemesis.schemas.inferred import (
    Culprit,
    Evidence,
    FaultAttributed,
    IncidentClosed,
    IncidentCosted,
    IncidentOpened,
    TimeParts,
)
from nemesis.schemas.operated import NoteAdded
from nemesis.views.incidents import Incidents
from nemesis.views.report.gather import Moment, report
from nemesis.views.report.page import page
from nemesis.views.report.spans import after, span
from nemesis.views.report.text import text
from nemesis.views.report.timeline import WIDTH, timeline
from tests.commands import nemesis
from tests.replay_logs import SECOND_NS, Log, write

EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(1)> \x1b]0;pwned\x07 & \"'"


def told(*, evil: str = "NVRM: Xid 79", mode: Any = "act") -> list[Record]:
    """A GPU that fell off the bus, and a shrink."""
    log = Log()
    log.tick()
    seen = log.kernel(evil)

    def say(data: msgspec.Struct, key: str = "k") -> int:
        log.second += 1
        return log.event(data, key=key)

    base: Any = {"at_ns": log.now_ns, "reason": f"because {evil}"}
    say(
        FaultAttributed(
            **base,
            incident="i-1",
            revision=0,
            verdict="attributed",
            fault_class="gpu.off_bus",
            culprits=(Culprit(kind="gpu", id="gpu/n1/0000:1b:00.0"),),
            confidence_ppm=980_000,
            evidence=(Evidence(fact="n1/kernel/1/1", says="Xid 79", text=evil),),
            victims=("rank/llama/3",),
        )
    )
    # what the verdict was drawn from
    last = log.records[-1]
    payload = last.payload.replace(b'"data":', b'"cause":"%d","data":' % seen)
    log.records[-1] = msgspec.structs.replace(last, payload=payload)
    say(IncidentOpened(**base, incident="i-1", trigger="verdict"))
    say(
        RecoveryDecided(
            **base,
            decision="llama/1",
            incident="i-1",
            mode=mode,
            deadline_ns=0,
            action="shrink",
            target="job/llama",
            job="llama",
            rungs_refused=("restart_rank: the GPU is gone",),
        )
    )
    if mode == "act":
        attempt: Any = base | {"decision": "llama/1", "actor": "a", "job": "llama"}
        say(AttemptStarted(**attempt))
        say(AttemptCompleted(**attempt, world=7))
        log.second += 300
        costed = IncidentCosted(
            **base,
            incident="i-1",
            job="llama",
            parts=TimeParts(detection_ns=2 * SECOND_NS, recovery_ns=SECOND_NS),
            lost_ns=3 * SECOND_NS,
            lost_gpu_ms=7_200_000,
            final=True,
        )
        say(costed)
        say(IncidentClosed(**base, incident="i-1", outcome="recovered"))
    say(NoteAdded(at_ns=1, by="ann", reason="r", incident="i-1", text=f"swap ordered {evil}"))
    return log.records


class Seen(HTMLParser):
    """What a browser would be told to do."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_page_needs_nothing_else_and_lets_nothing_in(tmp_path: Path) -> None:
    path, out = write(tmp_path / "x.ndjson", told(evil=EVIL)), tmp_path / "r.html"
    ran = nemesis("report", str(path), "--html", str(out))
    assert ran.returncode == 0, ran.stderr
    document = out.read_text()
    seen = Seen(document)
    assert not seen.tags & {"script", "img", "link", "iframe", "object", "base", "form"}
    names = {name for name, _ in seen.attributes}
    assert not names & {"src", "href", "style", "onerror", "onload", "srcset", "action"}
    assert "url(" not in document
    assert "@import" not in document
    assert any(
        value and value.startswith("default-src 'none'; style-src 'sha256-")
        for _, value in seen.attributes
    )
    assert "\x1b" not in document
    assert "<script>alert(1)</script>" in seen.words  # quoted as the text that it was
    assert out.stat().st_mode & 0o777 == 0o600
    again = nemesis("report", str(path), "--html", str(out))
    assert again.returncode == 4
    assert nemesis("report", str(path), "--html", str(out), "--force").returncode == 0
    before = out.read_text()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # as a disk that is full half way
    try:
        full = nemesis("report", str(path), "--html", str(out), "--force")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (full.returncode, out.read_text() == before) == (1, True)
    assert f"cannot write {out}: File too large" in full.stderr
    assert sorted(tmp_path.iterdir()) == sorted((path, out))


def test_it_says_culprit_evidence_decision_cost_and_how_to_prove_it(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ndjson", told())
    shown = nemesis("report", str(path)).stdout
    words = Seen(
        page(report(next(iter(Incidents(told()).by_id.values())), source="x", replay=["p"]))
    ).words
    for said in (
        "gpu/n1/0000:1b:00.0",
        "98 %",
        "NVRM: Xid 79",
        "shrink on job/llama",
        "restart_rank: the GPU is gone",
        "2.00 GPU hours",
        "rank/llama/3",
        "ann: swap ordered",
        "recovered",
        "have gpu/n1/0000:1b:00.0 seen to",
    ):
        assert said in shown, said
        assert said in words, said
    assert f"nemesis replay {path}" in shown
    whole = msgspec.json.decode(nemesis("report", str(path), "--json").stdout)
    assert whole["culprits"] == ["gpu/n1/0000:1b:00.0"]
    assert whole["costs"][0]["parts_ns"] == {"detection": 2 * SECOND_NS, "recovery": SECOND_NS}
    assert whole["moments"][0]["lane"] == "seen"


def test_what_waits_for_a_person_is_what_to_do_first() -> None:
    for mode, says in (("approve", "llama/1, shrink on job/llama, waits"), ("shadow", "in shadow")):
        (one,) = Incidents(told(mode=mode)).by_id.values()
        assert says in report(one, source="x", replay=[]).to_do[0]
    log = Log()
    withheld = RecoveryWithheld(
        at_ns=1, reason="r", incident="i-2", action="shrink", target="job/a", limit="shrinks_max"
    )
    log.event(withheld, key="i-2")
    (one,) = Incidents(log.records).by_id.values()
    found = report(one, source="x", replay=[])
    assert found.to_do == [
        "shrink on job/a was withheld by shrinks_max: look before more is allowed"
    ]
    assert "No verdict was reached." in page(found)
    assert "withheld by shrinks_max" in "\n".join(text(found))


def test_a_recording_without_an_incident_or_with_several_says_so(tmp_path: Path) -> None:
    log = Log()
    log.tick()
    ran = nemesis("report", str(write(tmp_path / "none.ndjson", log.records)))
    assert (ran.returncode, ran.stderr.count("\n")) == (3, 1)
    assert "holds 0 incidents: none" in ran.stderr
    for name in ("i-1", "i-2"):
        log.event(NoteAdded(at_ns=1, by="a", reason="", incident=name, text="t"), key=name)
    path = write(tmp_path / "two.ndjson", log.records)
    assert "holds 2 incidents: i-1, i-2" in nemesis("report", str(path)).stderr
    assert nemesis("report", str(path), "--incident", "i-2").returncode == 0


@pytest.mark.parametrize("count", [1, 2, 15, 400])
def test_a_time_line_is_well_formed_in_order_and_within_its_width(count: int) -> None:
    pauses = [0, 10**7, 40 * SECOND_NS, 10**6, 7200 * SECOND_NS]
    moments, at_ns = [], 0
    for number in range(count):
        at_ns += pauses[number % len(pauses)]
        lane: Any = ("seen", "concluded", "decided", "done", "people")[number % 5]
        moments.append(Moment(at_ns, lane, "f", number, "<&>", ()))
    drawn = ElementTree.fromstring(timeline(moments))  # noqa: S314 - our own
    places = [float(each.get("cx", "nan")) for each in drawn.iter("circle")]
    assert len(places) == count
    assert places == sorted(places)
    assert 0 < min(places) <= max(places) <= WIDTH
    for box in drawn.iter("rect"):
        assert float(box.get("x", "nan")) + float(box.get("width", "nan")) <= WIDTH
    hours_count = sum(number % len(pauses) == 4 for number in range(count))
    assert len(list(drawn.iter("rect"))) >= hours_count


def test_a_pause_is_drawn_small_and_said() -> None:
    moments = [
        Moment(at, "concluded", "f", at, "t", ())
        for at in (0, SECOND_NS, 2 * SECOND_NS, 3000 * SECOND_NS, 3001 * SECOND_NS)
    ]
    drawn = timeline(moments)
    assert drawn.count('class="idle"') == 1
    assert "49 min 58 s" in drawn


def test_lengths_of_time_read_well() -> None:
    lengths = (73_000_000, 2_600_000_000, 59_960_000_000, 298 * SECOND_NS, 11_520 * SECOND_NS)
    said = ["73 ms", "2.6 s", "1 min", "4 min 58 s", "3 h 12 min"]
    assert [span(each) for each in lengths] == said
    assert span(50 * 3600 * SECOND_NS) == "2 d 2 h"
    assert (after(0), after(-SECOND_NS)) == ("+0 ms", "-1.0 s")


def test_ink_reads_on_its_ground_in_both_schemes() -> None:
    from nemesis.views.report.style import STYLE

    colours = dict(re.findall(r"--([a-z-]+): light-dark\((#\w{6}, #\w{6})\)", STYLE))
    pairs = {name: value.split(", ") for name, value in colours.items()}
    for ink in ("ink", "soft", "dim", "seen", "concluded", "decided", "done", "people"):
        for scheme in (0, 1):
            assert contrast(pairs[ink][scheme], pairs["card"][scheme]) >= 4.5, (ink, scheme)
    for ground in ("seen", "concluded", "decided", "done", "people"):
        for scheme in (0, 1):
            assert contrast(pairs["on-mark"][scheme], pairs[ground][scheme]) >= 4.5, ground


def contrast(one: str, other: str) -> float:
    """WCAG 2.1, relative luminance."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
