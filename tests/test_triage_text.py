"""Promises of what `nemesis triage` shows to people."""

from nemesis.views.names import in_order, in_ranges
from nemesis.views.triage_answer import Answer, Blamed, Citation, Recovery, Triage, UnreadFile
from nemesis.views.triage_text import text_of


def triage(**fields: object) -> Triage:
    basis: dict[str, object] = {
        "verdict": "attributed",
        "fault_class": "app.stall",
        "culprits": [Blamed("rank", "rank/job/3", "")],
        "confidence": 0.85,
        "evidence": [Citation("fr/_dump_3", None, "", "it is behind")],
        "recovery": Recovery("restart_job", "rank/job/3"),
        "missing": ["the Python stack of the rank"],
        "reason": "rank 3 did not call it",
        "victims": ["rank/job/0"],
    }
    return Triage(**(basis | fields))  # type: ignore[arg-type]


def test_verdict_culprit_evidence_recovery_come_in_this_order() -> None:
    assert text_of(triage()).splitlines() == [
        "app.stall: rank/job/3 is at fault (85 % sure)",
        "  rank 3 did not call it",
        "  culprit   rank/job/3",
        "  innocent  rank/job/0",
        "  evidence  fr/_dump_3: it is behind",
        "  do        restart_job rank/job/3",
        "  collect   the Python stack of the rank",
    ]


def test_several_culprits_are_named_in_the_first_line() -> None:
    both = [Blamed("rank", "rank/job/3", "host n1"), Blamed("rank", "rank/job/5", "")]
    text = text_of(triage(culprits=both))
    assert text.startswith("app.stall: rank/job/3, rank/job/5 are at fault")
    assert "rank/job/3  (host n1)" in text


def test_each_verdict_has_its_own_first_line() -> None:
    firsts = [
        text_of(triage(verdict=verdict, culprits=[])).splitlines()[0]
        for verdict in ("class-only", "insufficient", "no-fault")
    ]
    assert firsts == [
        "app.stall: the part is not named by these files (85 % sure)",
        "insufficient evidence: these files do not say what is at fault",
        "no fault found in these files",
    ]


def test_further_incidents_unread_files_and_notes_follow() -> None:
    other = Answer(
        verdict="attributed",
        fault_class="gpu.memory",
        culprits=[Blamed("gpu", "gpu/n1/0000:1b:00.0", "")],
        confidence=0.9,
        evidence=[],
        recovery=Recovery("watch", ""),
        missing=[],
        reason="",
    )
    unread = [UnreadFile("trace.pkl", "broken pickle")]
    lines = text_of(triage(others=[other], unread=unread, notes=["a note"])).splitlines()
    assert lines[8].startswith("also: gpu.memory: gpu/n1/0000:1b:00.0 is at fault")
    assert "  do        watch" in lines
    assert lines[-5:] == ["not read:", "  trace.pkl: broken pickle", "", "notes:", "  a note"]


def test_long_evidence_is_cut_and_counted() -> None:
    cited = [Citation("dmesg", k, f"line {k}\x07", "says") for k in range(1, 31)]
    text = text_of(triage(evidence=cited))
    assert "dmesg:12: says" in text
    assert "dmesg:13: says" not in text
    assert "and 18 more (--json has them all)" in text
    assert "\x07" not in text


def test_what_is_done_is_done_to_every_culprit() -> None:
    both = [Blamed("rank", "rank/job/12", ""), Blamed("rank", "rank/job/14", "")]
    recovery = Recovery("shrink", "rank/job/12")
    assert "  do        shrink rank/job/12, rank/job/14\n" in text_of(
        triage(culprits=both, recovery=recovery)
    )


def test_a_line_that_is_cut_shows_it() -> None:
    text = text_of(triage(evidence=[Citation("dmesg", 1, "x" * 161, "says")]))
    assert f"| {'x' * 159}…\n" in text
    whole = text_of(triage(evidence=[Citation("dmesg", 1, "x" * 160, "says")]))
    assert f"| {'x' * 160}\n" in whole


def test_ranks_are_told_as_people_count_them() -> None:
    names = ["rank/a/10", "rank/a/2", "rank/a/3", "gpu/n10/x", "gpu/n2/x", "rank/b/7"]
    assert in_ranges(names) == ["gpu/n2/x", "gpu/n10/x", "rank/a/2-3,10", "rank/b/7"]
    assert in_order(names)[2:5] == ["rank/a/2", "rank/a/3", "rank/a/10"]
