"""How far the groups of a job came, as NCCL's RAS tells it, while they stand still.

Why: of a job that hangs RAS knows which ranks of a communicator launched fewer operations and whose
data nobody can get, without a recorder and without the job's help. How: the node of rank 0 asks,
once a minute, since one answer holds the whole job and asking costs every rank something. Ranks of
a job that runs differ at any moment, so nothing is told before a second look, at the next poll,
finds a group exactly as it was. Protocol: NVIDIA NCCL User Guide, RAS; NVIDIA/nccl src/ras. Not
here: who is to blame, which is for rules to say; ranks are numbered as their communicator does.
"""

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from nemesis.processors.attribution.collective_lines import launched
from nemesis.producers.counters import counters_of
from nemesis.producers.node.coverage import Seen
from nemesis.producers.node.probe import Answer, NotReadError, Probe
from nemesis.producers.node.ranks import RankProcess, job_of
from nemesis.producers.origin import Origin
from nemesis.producers.readers.documents.collectives import ras as of_document
from nemesis.producers.readers.jobs.ras_report import RasReport
from nemesis.producers.readers.notes import text_line
from nemesis.schemas.observed import LogLineWritten, Observation

SOURCE: Final = "ras"
ADDRESS: Final = "localhost:28028"
"""Where NCCL listens unless NCCL_RAS_ADDR says otherwise."""
COLLECT_S: Final = 5  # what ranks get to answer, NCCL's own default
DEADLINE_S: Final = 8.0
CONNECT_S: Final = 1.0
BYTES_MAX: Final = 8 << 20
LINE_BYTES_MAX: Final = 4096
ORIGINS: Final[Mapping[str, str]] = {
    "nccl.<communicator>.ranks": "ranks whose data were had",
    "nccl.<communicator>.least": "operations launched by those that launched the fewest",
    "nccl.<communicator>.most": "operations launched by those that launched the most",
    "nccl.<communicator>.behind.<rank>": "operations launched by a rank that RAS names as behind",
    "nccl.<communicator>.missing.<rank>": "1: nobody gets the data of this rank",
}
"""Counter to what it is, of the job, told while a group stands still."""
NAMED_MAX: Final = 8
"""Ranks that one fact names; more are no few that lag."""


class Group(NamedTuple):
    """One communicator as one answer shows it."""

    name: str
    counted: tuple[tuple[int, int], ...]
    """(operations launched, ranks that launched as many), the fewest operations first."""
    behind: tuple[int, ...]
    """Ranks that launched the fewest, where RAS names them and others launched more."""
    missing: tuple[int, ...]
    """Ranks whose data could not be had."""

    @property
    def differs(self) -> bool:
        """Whether it would be a hang if it stood still."""
        return len(self.counted) > 1 or bool(self.missing)


class Ras:
    """Asks the RAS of the job whose rank 0 runs here."""

    def __init__(
        self, origin: Origin, address: str = ADDRESS, *, deadline_s: float = DEADLINE_S
    ) -> None:
        """`address`: host:port."""
        self._origin: Final = origin
        host, _, port = address.rpartition(":")
        self._address: Final = (host.strip("[]"), int(port))
        self._deadline_s: Final = deadline_s
        component = f"node/{origin.node}"
        self._probe: Final = Probe(component, SOURCE, self._read, patience_s=deadline_s)
        self._is_asking = self._was_asked = False
        self._seen: dict[str, Group] = {}
        self._told: dict[str, Group] = {}

    @property
    def seen(self) -> Seen:
        """Whether it is asked, and answers."""
        if not self._was_asked:
            says = "rank 0 of no job runs here, whose node asks NCCL's RAS"
            return Seen(self._probe.component, SOURCE, "absent", says)
        return Seen(self._probe.component, SOURCE, self._probe.state, self._probe.says)

    def poll(self, ranks: Sequence[RankProcess], now_ns: int, *, is_due: bool) -> list[Observation]:
        """What stands still and was not told yet; then ask anew, in turn or on suspicion.

        It never waits: an answer is taken up by the first poll that finds it.
        """
        facts: list[Observation] = []
        if self._is_asking:
            self._probe.end(time.monotonic())
            if not self._probe.is_done:
                return []
            self._is_asking = False
            facts = self._judge(job_of(ranks) or "job", now_ns)
        suspects = any(group.differs for group in self._seen.values())
        if any(each.rank == 0 for each in ranks) and (is_due or suspects):
            self._is_asking = self._was_asked = True
            self._probe.begin()
        return facts

    def _judge(self, job: str, now_ns: int) -> list[Observation]:
        answer: list[Group] = self._probe.value or []
        before, self._seen = self._seen, {group.name: group for group in answer}
        stuck = [group for group in answer if group.differs and before.get(group.name) == group]
        news = [group for group in stuck if self._told.get(group.name) != group]
        self._told = {group.name: group for group in stuck}
        return [
            counters_of(self._origin, now_ns, component=f"job/{job}", counters=_counters(group))
            for group in news
        ]

    def _read(self) -> Answer:
        place = f"{self._address[0]}:{self._address[1]}"
        try:
            with socket.create_connection(self._address, CONNECT_S) as connection:
                text = _Talk(connection, time.monotonic() + self._deadline_s).status()
        except TimeoutError as error:
            raise NotReadError("stalled", f"NCCL's RAS at {place} did not finish") from error
        except OSError as error:
            says = f"nobody answers at {place}: {error.strerror}; NCCL 2.24 or later does"
            raise NotReadError("absent", says) from error
        groups = groups_of(_lines(text))
        if not groups and "ommunicator" not in text:
            raise NotReadError("broken", f"{place} does not answer as NCCL's RAS does")
        return Answer(groups)


class _Talk:
    """One conversation; every step within the same deadline."""

    def __init__(self, connection: socket.socket, until_s: float) -> None:
        self._connection: Final = connection
        self._until_s: Final = until_s
        self._read = b""

    def status(self) -> str:
        """The answer to STATUS: a JSON document, from NCCL before 2.28.7 its text.

        Raises:
            OSError: the other end is gone, or does not do as it should.
            TimeoutError: it was not done in time.
        """
        self._ask("CLIENT PROTOCOL 2")
        self._ask(f"TIMEOUT {COLLECT_S}")
        self._ask("SET FORMAT json")  # who does not know it answers ERROR and goes on
        self._send("VERBOSE STATUS")
        while self._receive():
            if len(self._read) > BYTES_MAX:
                raise OSError(0, "an answer without end")
        return self._read.decode(errors="replace")

    def _ask(self, line: str) -> None:
        """Send a line and pass over the one that comes back."""
        self._send(line)
        while b"\n" not in self._read:
            if not self._receive() or len(self._read) > LINE_BYTES_MAX:
                raise OSError(0, f"no answer to {line}")
        self._read = self._read.partition(b"\n")[2]

    def _send(self, line: str) -> None:
        self._wait()
        self._connection.sendall(f"{line}\n".encode())

    def _receive(self) -> bool:
        self._wait()
        piece = self._connection.recv(1 << 16)
        self._read += piece
        return bool(piece)

    def _wait(self) -> None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)


def _lines(text: str) -> list[str]:
    """The words with which RAS tells of groups and ranks."""
    found: list[Observation] = []
    if text.lstrip().startswith("{"):
        try:
            found += [each for _, each in of_document(msgspec.json.decode(text)) or ()]
        except (msgspec.DecodeError, RecursionError):
            raise NotReadError("broken", "NCCL's RAS broke off in its answer") from None
    else:
        report = RasReport()
        lines = enumerate(text.splitlines(), start=1)
        notes = [note for at, raw in lines for note in report.take(text_line(at, raw))]
        found += [note.observation for note in (*notes, *report.end())]
    return [each.text for each in found if isinstance(each, LogLineWritten)]


def groups_of(lines: Iterable[str]) -> list[Group]:
    """Communicators in the order in which they are told of."""
    groups: dict[str, _Growing] = {}
    growing = _Growing()
    for line in lines:
        message = launched(line)
        match message.kind if message else "":
            case "communicator" if message:
                growing = groups.setdefault(message.device, _Growing())
            case "launched" if message and message.rank < 0:
                growing.crowds[message.seq] = growing.crowds.get(message.seq, 0) + message.number
            case "launched" if message:
                growing.ranks[message.rank] = message.seq
            case "missing_rank" if message:
                growing.missing |= {int(each) for each in message.what.split(",") if each}
            case _:
                pass
    return [growing.group(name) for name, growing in groups.items()]


class _Growing(msgspec.Struct):
    crowds: dict[int, int] = {}
    ranks: dict[int, int] = {}
    missing: set[int] = set()

    def group(self, name: str) -> Group:
        counted = dict(self.crowds)
        if not counted:
            for seq in self.ranks.values():
                counted[seq] = counted.get(seq, 0) + 1
        least = min(counted, default=0)
        behind = sorted(rank for rank, seq in self.ranks.items() if seq == least)
        few = behind if len(counted) > 1 else []
        return Group(name, tuple(sorted(counted.items())), tuple(few), tuple(sorted(self.missing)))


def _counters(group: Group) -> Iterable[tuple[str, int]]:
    own = f"nccl.{group.name}"
    yield f"{own}.ranks", sum(count for _, count in group.counted)
    if group.counted:
        yield f"{own}.least", group.counted[0][0]
        yield f"{own}.most", group.counted[-1][0]
    for rank in group.behind[:NAMED_MAX]:
        yield f"{own}.behind.{rank}", group.counted[0][0]
    for rank in group.missing[:NAMED_MAX]:
        yield f"{own}.missing.{rank}", 1
