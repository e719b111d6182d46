"""Verifies a recording: every processor folded again, every conclusion compared byte for byte.

Nothing but the file is read. Each processor runs in the version and with the settings that the log
says were in force, by the same readers' rule as live (processors/fold.py).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from nemesis import __version__
from nemesis.processors.fold import Input, first_needed
from nemesis.replay.course import Course, Difference, MakeProcessor, recorded_conclusion
from nemesis.replay.plan import Planner
from nemesis.replay.reader import Recording
from nemesis.replay.recording import Header, ProcessorPlan
from nemesis.schemas.facts import Record
from nemesis.schemas.registry import EVENTS, SCHEMA, TELEMETRY

_PROGRESS_EVERY: Final = 4096
_OBSERVED: Final = ("telemetry", "unknown")


class ProcessorReport(msgspec.Struct, kw_only=True):
    """What replay says of one processor."""

    name: str
    versions: list[int]
    equal_count: int
    """Conclusions that are the same, byte for byte."""
    states_equal_count: int
    unanswered_count: int
    """Conclusions that the slice ends before; nothing is wrong with that."""
    unverified: str
    """Why it, or its rest, could not be verified; empty where all was."""
    difference: Difference | None


class Report(msgspec.Struct, kw_only=True):
    """What replay says."""

    verdict: str
    """equal, different or unverified."""
    facts_count: int
    samples_count: int
    unknown_facts: dict[str, int]
    """Facts that this release does not know, by token."""
    notes: list[str]
    processors: list[ProcessorReport]

    @property
    def first(self) -> ProcessorReport | None:
        """The processor whose difference comes first in the log."""
        differing = [each for each in self.processors if each.difference is not None]
        return min(
            differing, key=lambda each: each.difference.seq if each.difference else 0, default=None
        )


def verify(
    recording: Recording,
    make: MakeProcessor,
    *,
    only: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Replay a recording; `progress` is told now and then how many facts have passed.

    Raises:
        CorruptRecordingError: the file is damaged.
    """
    header = recording.header
    plans = [plan for plan in header.processors if not only or plan.name in only]
    states = recording.states()
    report = verify_log(
        recording.records(),
        plans,
        states,
        make,
        newer=newer(header.schema),
        progress=progress,
    )
    _excuse(header, plans, states, report)
    report.notes.extend(_notes(header, report))
    return report


def _excuse(
    header: Header,
    plans: Sequence[ProcessorPlan],
    states: Mapping[str, bytes],
    report: Report,
) -> None:
    """A difference behind inputs that were no longer there proves nothing."""
    starts = {plan.name: _read_from(plan, states) - 1 for plan in plans}
    for each in report.processors:
        found = each.difference
        if found is None:
            continue
        start_seq = starts[each.name]
        unread = [(start_seq + 1, header.from_seq - 1)] if header.from_seq > start_seq + 1 else []
        before = unread + [gap for gap in header.gaps if start_seq < gap[0] < found.seq]
        if before:
            first, last = before[0]
            each.unverified = f"inputs {first} to {last} are missing from the recording"
            each.difference = None
    if report.verdict == "different" and not any(each.difference for each in report.processors):
        report.verdict = "unverified"


def _read_from(plan: ProcessorPlan, states: Mapping[str, bytes]) -> int:
    """The first record that it must read: its window may begin before its state."""
    return first_needed(states.get(plan.start_sha256, b"")) or plan.start_seq + 1


def verify_log(
    records: Iterable[Record],
    plans: Iterable[ProcessorPlan],
    states: Mapping[str, bytes],
    make: MakeProcessor,
    *,
    newer: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Replay records in order; `newer`: a later release wrote them."""
    courses = {plan.name: Course(plan, states.get(plan.start_sha256, b""), make) for plan in plans}
    every = tuple(courses.values())
    unknown: Counter[str] = Counter()
    facts_count = samples_count = 0
    for record in records:
        item = Input(record)
        facts_count += 1
        if item.token == "sample":
            samples_count += 1
        elif not known(item):
            unknown[item.token] += 1
            if newer and item.space == "telemetry":
                continue  # its own release understood it: ours must not call it malformed
        recorded = recorded_conclusion(item) if item.space == "events" else None
        own = courses.get(recorded.name) if recorded is not None else None
        malformed = item.space in _OBSERVED and item.decoded() is None
        token, seq = item.token, record.seq
        for course in every:
            if course is own:
                course.step(item, recorded)
            elif (
                token in course.heeds
                or (malformed and course.heeds_malformed)
                or seq >= course.awaits_seq
            ):
                course.step(item, None)
        if progress is not None and facts_count % _PROGRESS_EVERY == 0:
            progress(facts_count)
    for course in courses.values():
        course.finish()
    return _report(list(courses.values()), facts_count, samples_count, unknown)


def plans_of(records: Iterable[Record]) -> list[ProcessorPlan]:
    """Plans for a whole log that lies in memory."""
    planner = Planner(from_beginning=True)
    for record in records:
        planner.see(record)
    return planner.plans()


def known(item: Input) -> bool:
    """This release has the record's kind in its table."""
    if item.space == "telemetry":
        return item.token in TELEMETRY
    return item.token in EVENTS if item.space == "events" else item.space == "cursor"


def newer(release: str) -> bool:
    """The facts of that release are newer than ours."""
    return _numbers(release) > _numbers(SCHEMA)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdigit())


def _report(
    courses: list[Course], facts_count: int, samples_count: int, unknown: Counter[str]
) -> Report:
    verdict = "equal"
    if not courses or any(course.unverified for course in courses):
        verdict = "unverified"
    if any(course.difference for course in courses):
        verdict = "different"
    return Report(
        verdict=verdict,
        facts_count=facts_count,
        samples_count=samples_count,
        unknown_facts=dict(sorted(unknown.items())),
        notes=[],
        processors=[
            ProcessorReport(
                name=course.plan.name,
                versions=course.versions,
                equal_count=course.equal_count,
                states_equal_count=course.states_equal_count,
                unanswered_count=course.unanswered_count,
                unverified=course.unverified,
                difference=course.difference,
            )
            for course in courses
        ],
    )


def _notes(header: Header, report: Report) -> list[str]:
    notes = []
    if newer(header.schema):
        notes.append(
            f"written by NEMESIS {header.nemesis_version} with the facts of {header.schema}, this"
            f" is {__version__} and knows those up to {SCHEMA}:"
            f" pip install 'nemesis-gpu>={header.schema}' to know all"
        )
    for token, count in report.unknown_facts.items():
        notes.append(f"unknown fact {token!r}, {count} times: passed over")
    if header.gaps:
        missing = sum(last - first + 1 for first, last in header.gaps)
        first, last = header.gaps[0]
        notes.append(
            f"{missing} sequences of the slice were no longer in the log, the first"
            f" {first} to {last}: {header.gap_cause or 'cause unknown'}"
        )
    if not report.processors:
        notes.append("no processor in it ever took a position or was activated")
    return notes
