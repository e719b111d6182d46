"""Facts of a bundle, and where each came from.

A fact keeps its origin in a table beside the log, so that a verdict can cite file and line.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from nemesis.processors.attribution.kernel_signs import is_telling
from nemesis.producers.readers.bundle import Bundle, DumpFile
from nemesis.producers.readers.earlier_boots import without_earlier_boots
from nemesis.producers.readers.kernel_log import WHOLE_LINES_MAX
from nemesis.producers.readers.placing import newest_wall_ns, placed
from nemesis.producers.readers.runs import DEFAULT_JOB, Run, sort_runs
from nemesis.producers.readers.seats import seats_of
from nemesis.producers.readers.text_hosts import hosts_of_texts
from nemesis.producers.readers.timeline import EPOCH_NS, Event, Timeline, arrange
from nemesis.schemas.components import UNKNOWN_HOST
from nemesis.schemas.facts import observation_id
from nemesis.schemas.observed import CollectiveRecorded, KernelLineLogged, Observation
from nemesis.schemas.rank_ranges import format_ranks

TOLD_WHOLE_MAX: Final = 10_000
"""Of more kernel lines than this only those become facts that say something to a processor."""
START_NS: Final = 1  # the reader's life: all facts of a bundle are one producer's


class Origin(msgspec.Struct, frozen=True):
    """Where a fact was read."""

    file: str
    line: int | None
    """From 1; None for a dump."""
    missing: bool = False
    """The fact is that a dump is not there; the file is that of a rank beside it."""


class BundleFacts:
    """Everything a bundle says, as facts in order."""

    def __init__(self, bundle: Bundle) -> None:
        self.notes: list[str] = []
        self.runs: Final = sort_runs(bundle.dumps, bundle.unread, self.notes)
        newest_ns = max((run.at_ns for run in self.runs), default=0)
        newest_ns = max(newest_ns, newest_wall_ns(bundle.texts))
        self.timeline: Final[Timeline] = arrange(bundle.logs, newest_ns)
        self.timeline.events = without_earlier_boots(
            self.timeline.events, bundle.texts, self.timeline.notes
        )
        self._texts: Final = bundle.texts
        self._end_ns: Final = max([newest_ns, *(each.at_ns for each in self.timeline.events)]) or (
            EPOCH_NS
        )
        self._places: Final = _places(self.timeline.events)
        known = {event.host for event in self.timeline.events} - {UNKNOWN_HOST}
        self._hosts: Final = hosts_of_texts(self._texts, known)
        self._seats: Final = seats_of(self._texts, self._hosts)
        self._origins: dict[str, Origin] = {}
        self.notes.extend(self.timeline.notes)
        for run in self.runs:
            if run.absent:
                ranks = format_ranks(run.absent)
                self.notes.append(f"{run.job}: no dumps of ranks {ranks} among these files")
        if self.timeline.repeated_count:
            count = self.timeline.repeated_count
            self.notes.append(f"{count} lines stand in two files of one host and count once")
        skimmed = [each.file for each in bundle.logs if each.skimmed]
        skimmed += [each.file for each in bundle.texts if each.skimmed]
        for file in skimmed:
            self.notes.append(
                f"{file}: after line {WHOLE_LINES_MAX} only lines that may tell of a fault"
                " were read"
            )

    def __iter__(self) -> Iterator[Observation]:
        numbers: Counter[tuple[str, str]] = Counter()
        events = self.timeline.events
        if len(events) > TOLD_WHOLE_MAX:
            events = [each for each in events if is_telling(each.line.text, each.line.priority)]
        kernel = (self._kernel_fact(event, numbers) for event in events)
        collective = (
            fact
            for run in sorted(self.runs, key=lambda run: run.at_ns)
            for fact in self._collective_facts(run, numbers)
        )
        noted = self._noted_facts(numbers)
        return heapq.merge(kernel, collective, noted, key=lambda fact: fact.at_ns)

    def origin(self, fact_id: str) -> Origin | None:
        """Where the fact of this id was read; None for an id that is not one of these."""
        return self._origins.get(fact_id)

    def _kernel_fact(self, event: Event, numbers: Counter[tuple[str, str]]) -> Observation:
        numbers[event.host, "kernel"] += 1
        fact = KernelLineLogged(
            node=event.host,
            start_ns=START_NS,
            n=numbers[event.host, "kernel"],
            at_ns=event.at_ns,
            clock_error_ns=event.error_ns,
            boot_id=event.line.boot_id,
            text=event.line.text,
            priority=event.line.priority,
        )
        self._origins[observation_id("kernel", fact)] = Origin(event.file, event.number)
        return fact

    def _collective_facts(
        self, run: Run, numbers: Counter[tuple[str, str]]
    ) -> Iterator[Observation]:
        anyone = next(iter(run.dumps.values()))
        for rank in sorted({*run.dumps, *run.missing}):
            file = run.dumps.get(rank)
            node = self._node_of(run, rank, file or anyone)
            numbers[node, "collective"] += 1
            fact = _recorded(run, rank, file, node, numbers[node, "collective"])
            origin = Origin((file or anyone).file, None, missing=file is None)
            self._origins[observation_id("collective", fact)] = origin
            yield fact

    def _noted_facts(self, numbers: Counter[tuple[str, str]]) -> Iterator[Observation]:
        job = self.runs[0].job if len(self.runs) == 1 else DEFAULT_JOB
        for each in placed(self._texts, self._hosts, job, self._end_ns, numbers):
            origin = Origin(each.file, each.number)
            self._origins[observation_id(each.token, each.observation)] = origin
            yield each.observation

    def _node_of(self, run: Run, rank: int, file: DumpFile) -> str:
        """The host on which the rank ran, or beside whose log its dump lies; runs of unknown hosts
        share none."""
        if len(self.runs) == 1 and rank in self._seats:
            return self._seats[rank]
        place = self._places.get(file.file.rpartition("/")[0])
        return place or (UNKNOWN_HOST if len(self.runs) == 1 else run.job)


def _recorded(run: Run, rank: int, file: DumpFile | None, node: str, n: int) -> CollectiveRecorded:
    if file is None:
        return CollectiveRecorded(
            node=node,
            start_ns=START_NS,
            n=n,
            at_ns=run.at_ns,
            job=run.job,
            rank=rank,
            dump_missing=True,
        )
    return CollectiveRecorded(
        node=node,
        start_ns=START_NS,
        n=n,
        at_ns=run.at_ns,
        job=run.job,
        rank=rank,
        trace_version=file.dump.version,
        comm_lib_version=file.dump.comm_lib_version,
        entry_count=file.dump.entry_count,
        groups=file.dump.groups,
        dump_sha256=file.sha256,
    )


def _places(events: Iterable[Event]) -> Mapping[str, str]:
    """The host of a folder: where a kernel log of one host lies, its dumps are of that host."""
    hosts: dict[str, set[str]] = {}
    for event in events:
        if folder := event.file.rpartition("/")[0]:
            hosts.setdefault(folder, set()).add(event.host)
    return {folder: next(iter(each)) for folder, each in hosts.items() if len(each) == 1}
