"""The archivist: keeps what an incident needs before its samples expire, for ever.

Reads the log's events; what is due (cases.py) is copied with the states before it as one recording
through a file, streamed into NEMESIS_INCIDENTS, and said in `incident_archived`. Killed anywhere it
begins the part again: the same slice gives the same bytes, an object is kept once under its hash,
and the fact is refused if another copy has said it. What it knows is a fold of the log.
"""

import asyncio
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from nemesis import __version__
from nemesis.processors.fold import Input
from nemesis.replay.capture import Made, capture
from nemesis.replay.cases import Cases, Due
from nemesis.replay.slices import answered_after, unanswered
from nemesis.schemas.envelope import rfc3339
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import EVENTS_SUBJECT, encode_conclusion
from nemesis.schemas.kept import IncidentArchived
from nemesis.streams.errors import LogUnavailableError, PositionMovedError
from nemesis.streams.log import TELEMETRY_TTL_S, Log

LOOK_S: Final = 1.0
RETRY_S: Final = 60.0  # a full store, a full disk: a person has to do something first
ANSWER_S: Final = 60.0  # a processor that is away for longer is not waited for
AGE_S: Final = TELEMETRY_TTL_S / 2  # time enough for several tries, and for a store that is full


class Archivist:
    """One copy; `run` goes on until it is cancelled."""

    def __init__(
        self,
        log: Log,
        folder: Path,
        *,
        cell: str,
        alarm: Callable[[str], None],
        age_s: float = AGE_S,
    ) -> None:
        """`folder`: this copy's own, for the recording in hand; `alarm` gets one sentence."""
        self.cases: Final = Cases()
        self._log: Final = log
        self._folder: Final = folder
        self._cell: Final = cell
        self._alarm: Final = alarm
        self._age_ns: Final = int(age_s * 1e9)
        self._due_since_s: Final[dict[tuple[str, int], float]] = {}
        self._again_s: Final[dict[str, float]] = {}
        self._said_seq = 0
        self._caught_up = False

    async def run(self) -> None:
        """Read, copy, say."""
        shutil.rmtree(self._folder, ignore_errors=True)  # of an earlier life that was killed
        self._folder.mkdir(mode=0o700, parents=True)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read())
                while True:
                    if self._caught_up and self.cases.seq >= self._said_seq:
                        for due in list(self.cases.due(time.time_ns() - self._age_ns)):
                            await self._keep(due)
                    await asyncio.sleep(LOOK_S)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _read(self) -> None:
        async with self._log.reader(1, subject=EVENTS_SUBJECT) as reader:
            await reader.start()
            self._caught_up = reader.pending_count == 0
            async for records in reader:
                for record in records:
                    self.cases.take(Input(record))
                self._caught_up = self._caught_up or reader.pending_count == 0

    async def _keep(self, due: Due) -> None:
        """Archive one part, or say once why it cannot be done now."""
        now_s = time.monotonic()
        if now_s < self._again_s.get(due.incident, 0.0):
            return
        since_s = self._due_since_s.setdefault((due.incident, due.last_seq), now_s)
        try:
            if now_s - since_s < ANSWER_S and await unanswered(self._log, due.last_seq):
                return
            await self._archive(due)
        except LogUnavailableError:
            return
        except NemesisError as error:
            if due.incident not in self._again_s:
                self._alarm(f"{due.incident} is not archived yet: {error.message}")
            self._again_s[due.incident] = now_s + RETRY_S
            return
        self._again_s.pop(due.incident, None)
        self._due_since_s.pop((due.incident, due.last_seq), None)

    async def _archive(self, due: Due) -> None:
        path = self._folder / "part.ndjson.zst"
        header = await capture(
            self._log,
            path,
            from_seq=due.from_seq,
            to_seq=await answered_after(self._log, due.last_seq),
            cell=self._cell,
            incident=due.incident,
            force=True,
            # of the facts, not of the moment: a second copy, or life, makes the same bytes
            made=Made(f"nemesis archivist {__version__}", rfc3339(due.last_stored_ns)),
        )
        name = f"{due.incident}/{due.part_index}"
        sha256 = await self._log.incidents.put_file(path, name=name)
        size_bytes = path.stat().st_size
        path.unlink()
        missing_count = sum(last - first + 1 for first, last in header.gaps)
        if missing_count:
            self._alarm(f"{due.incident} is archived without {missing_count} expired sequences")
        why = "It is over" if due.closed else "It goes on and its samples come of age"
        data = IncidentArchived(
            at_ns=due.last_at_ns,
            reason=f"{why}: sequences {header.from_seq} to {header.to_seq} are kept as {name}.",
            incident=due.incident,
            object=name,
            sha256=sha256,
            size_bytes=size_bytes,
            from_seq=header.from_seq,
            to_seq=header.to_seq,
            part_index=due.part_index,
            closed=due.closed,
            missing_count=missing_count,
        )
        await self._say(data, due.expected_seq)

    async def _say(self, data: IncidentArchived, expected_seq: int) -> None:
        subject, payload = encode_conclusion(
            id=f"archivist/{data.object}",
            source="/archivist",
            at_ns=data.at_ns,
            data=data,
            key=data.incident,
        )
        # refused: another copy said it, or an earlier try of ours did
        with suppress(PositionMovedError):
            await self._log.publish(subject, payload, expected_last_subject_seq=expected_seq)
        last = await self._log.last(subject)
        self._said_seq = max(self._said_seq, last.seq if last is not None else 0)
