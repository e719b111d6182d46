"""NCCL's own documents: what its RAS client prints as JSON, and records of its Inspector.

NVIDIA NCCL User Guide, RAS; NVIDIA/nccl plugins/profiler/inspector/README.md: a record a collective
with communicator, rank and time; newer releases write the header once, before the records of it.
"""

from collections.abc import Mapping
from typing import Any, Final

from nemesis.producers.readers.documents.found import Found, line, mapping, maps, whole
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import TrialFinished

OPERATIONS_KEPT: Final = 64
"""Of one rank in one communicator: the first ones; what a rule compares is the same of all."""
US_NS: Final = 1000
TRIAL: Final = "collective"


def ras(document: object) -> Found | None:
    """`ncclras -f json`: how far each rank of each communicator came."""
    communicators = mapping(document).get("communicators")
    return _of_communicators(communicators) if isinstance(communicators, list) else None


def _of_communicators(communicators: list[Any]) -> Found:
    for each in maps(communicators):
        name = str(each.get("hash", ""))[:40].removeprefix("0x")
        yield name, line("ras", f"Communicator {name}", "")
        for rank in maps(each.get("ranks")):
            counts = rank.get("collective_counts")
            if not isinstance(counts, dict) or not isinstance(rank.get("rank"), int):
                continue
            total = sum(value for value in counts.values() if isinstance(value, int))
            text = f"Rank {rank['rank']} has launched up to operation {total}"
            yield f'"rank": {rank["rank"]}', line("ras", text, str(rank.get("host", "")))
        for rank in maps(each.get("missing_ranks")):
            text = f"missing ranks: {{{rank.get('rank', '')}}}"
            yield '"missing_ranks"', line("ras", text, str(rank.get("host", "")))


class Inspector:
    """Records of one process."""

    def __init__(self) -> None:
        self._header: Mapping[str, Any] = {}
        self._host = ""
        self._kept: dict[tuple[str, int], int] = {}

    def read(self, document: object) -> Found | None:
        """A record, or a header of those that follow."""
        own = mapping(document)
        performance = mapping(own.get("coll_perf"))
        if "n_ranks" in mapping(own.get("header")):
            self._header = mapping(own["header"])
            self._host = str(mapping(own.get("metadata")).get("hostname", ""))[:63]
        elif not (self._header and performance):
            return None
        return self._of_record(performance)

    def _of_record(self, performance: Mapping[str, Any]) -> Found:
        communicator, rank = str(self._header.get("id", ""))[:40], whole(self._header.get("rank"))
        took_us, seq = performance.get("coll_exec_time_us"), whole(performance.get("coll_sn"))
        count = self._kept.get((communicator, rank), 0)
        timed = isinstance(took_us, int | float) and 0 < took_us < 1e12
        if not timed or rank < 0 or seq < 0 or count >= OPERATIONS_KEPT:
            return
        self._kept[communicator, rank] = count + 1
        yield (
            "coll_sn",
            TrialFinished(
                **unplaced(self._host),
                trial=TRIAL,
                outcome="measured",
                components=(f"rank/job/{rank}",),
                settings=(
                    ("communicator", communicator),
                    ("operation", str(performance.get("coll", ""))[:40]),
                    ("sn", str(seq)),
                    ("ranks", str(max(whole(self._header.get("n_ranks")), 0))),
                ),
                duration_ns=int(float(took_us or 0) * US_NS),
                size_bytes=max(whole(performance.get("coll_msg_size_bytes")), 0),
            ),
        )
