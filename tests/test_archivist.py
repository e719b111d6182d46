"""Promises of the archivist: an incident of the past replays after its telemetry has expired."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.actors.archivist import Archivist
from nemesis.processors.attribution.attribution import Attribution
from nemesis.replay.archive import read_cases
from nemesis.replay.reader import Recording
from nemesis.schemas.facts import (
    decode_conclusion,
    encode_conclusion,
    encode_observation,
    telemetry_subject,
)
from nemesis.schemas.inferred import IncidentClosed, IncidentOpened
from nemesis.schemas.kept import IncidentArchived
from nemesis.schemas.observed import (
    ClockTicked,
    GpuDescribed,
    InventoryReported,
    KernelLineLogged,
    Observation,
    SampleTaken,
)
from nemesis.schemas.operated import ProcessorActivated
from nemesis.streams.batch import write
from nemesis.streams.log import Log, Message
from nemesis.streams.lookup import subjects
from nemesis.streams.provision import Limits, wanted_streams
from nemesis.streams.runner import Runner
from nemesis.streams.server import Server
from tests.cells import until
from tests.commands import Ran

pytestmark = pytest.mark.server
SECOND_NS = 1_000_000_000
SNAPSHOT_PERIOD_S = 0.1
INCIDENTS = "nemesis.events.incident_archived.*"


class Site:
    """A cell with attribution at work."""

    def __init__(self, folder: Path, *, store_bytes: int = 64 * 2**20) -> None:
        self.limits = Limits(log_bytes=2**28, store_bytes=store_bytes)
        self.server = Server("a", folder=folder / "a", roles=["node/n1"], limits=self.limits)
        self.folder = folder
        self.start_ns = time.time_ns()
        self.second = self.sample_seq = 0
        self.logs: dict[str, Log] = {}
        self.alarms: list[str] = []
        self.runner: Runner
        self._numbers: dict[str, int] = {}

    async def observe(self, struct: Any, node: str, **fields: Any) -> int:
        """One observation."""
        token = {ClockTicked: "tick", KernelLineLogged: "kernel", SampleTaken: "sample",
                 InventoryReported: "inventory"}[struct]  # fmt: skip
        n = self._numbers[f"{node}/{token}"] = self._numbers.get(f"{node}/{token}", 0) + 1
        data: Observation = struct(
            node=node, start_ns=self.start_ns, n=n, at_ns=self.now_ns, **fields
        )
        log = self.logs["ticker" if token == "tick" else "node/n1"]
        subject = telemetry_subject(node, token)
        return await log.publish(subject, encode_observation(data))

    async def say(self, role: str, data: msgspec.Struct, key: str, cause: str = "") -> int:
        """One event."""
        subject, payload = encode_conclusion(
            id=f"{role}/{self.second}/{key}",
            source="/test",
            at_ns=self.now_ns,
            data=data,
            key=key,
            cause=cause,
        )
        return await self.logs[role].publish(subject, payload)

    @property
    def now_ns(self) -> int:
        return self.start_ns + self.second * SECOND_NS

    async def pass_time(self, seconds: int) -> None:
        """Ticks and samples."""
        for _ in range(seconds):
            self.second += 1
            await self.observe(ClockTicked, "clock")
            self.sample_seq = await self.observe(SampleTaken, "n1", gpu_count=1, gpu=bytes(136))

    async def answered(self) -> None:
        """Attribution has read what there is."""
        last = (await self.logs["reader"].bounds()).last_seq
        await until(lambda: self.runner.lanes[0].position.in_seq >= last, "attribution reads")

    async def break_gpu(self) -> str:
        """A GPU falls off the bus and is named; the incident's name."""
        text = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
        await self.pass_time(5)
        before = (
            self.sample_seq
        )  # counters that announced it, and that the log keeps for hours only
        await self.observe(KernelLineLogged, "n1", text=text)
        await self.pass_time(20)
        await self.answered()
        verdict = await self.logs["reader"].last("nemesis.events.fault_attributed.*")
        assert verdict is not None
        event, data = decode_conclusion("fault_attributed", verdict.payload)
        opened = IncidentOpened(
            at_ns=self.now_ns, reason="r", incident=data.incident, trigger="verdict"
        )
        cause = f"{before} {event.cause} {verdict.seq}"
        await self.say("processor/incident", opened, data.incident, cause)
        return str(data.incident)

    async def close(self, incident: str) -> int:
        """It is over."""
        await self.pass_time(1)
        closed = IncidentClosed(
            at_ns=self.now_ns, reason="r", incident=incident, outcome="recovered"
        )
        return await self.say("processor/incident", closed, incident)

    async def archived(self, incident: str, parts: int = 1) -> list[IncidentArchived]:
        """What is kept of an incident, once so many parts are."""

        async def there() -> bool:
            cases = await read_cases(self.logs["reader"])
            return len(cases.case(incident).parts) == parts

        await until(there, f"{parts} parts of {incident} are archived", every_s=0.1)
        return (await read_cases(self.logs["reader"])).case(incident).parts

    async def expire(self) -> None:
        """All samples and ticks expire, now: nobody has to be quicker than they are."""
        admin = (await self.server.connect("admin")).connection
        wanted = wanted_streams(self.limits)[0]

        async def gone() -> bool:
            return await self.logs["reader"].get(self.sample_seq) is None

        for age_ns in (SECOND_NS // 10, 0):
            change = msgspec.json.encode({**wanted, "max_age": age_ns})
            answer = await admin.request("$JS.API.STREAM.UPDATE.NEMESIS", change)
            assert b'"error"' not in answer.data
            await until(gone, "all samples have expired", every_s=0.1)
        await admin.close()

    async def nemesis(self, *arguments: str) -> Ran:
        """A command against this cell, in a process of its own: this one has a loop."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "nemesis.cli", *arguments,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"NEMESIS_STATE_DIR": str(self.folder), "NEMESIS_CELL": "a"},
        )  # fmt: skip
        stdout, stderr = await process.communicate()
        return Ran(process.returncode or 0, stdout.decode(), stderr.decode())

    def archivist(self, name: str = "1", **options: float) -> Archivist:
        """One copy, in this process."""
        folder = self.folder / "archivist" / name
        log = self.logs["archivist"]
        return Archivist(log, folder, cell="a", alarm=self.alarms.append, **options)


@asynccontextmanager
async def site(folder: Path, **options: int) -> AsyncIterator[Site]:
    made = Site(folder, **options)
    roles = ("reader", "operator", "ticker", "node/n1", "archivist", "processor/incident")
    async with made.server as server:
        made.logs = {role: await server.connect(role) for role in roles}
        member = await server.connect("processor/attribution")
        copies = folder / "copies"
        copies.mkdir()
        made.runner = Runner(
            [(Attribution(), member)],
            folder=copies,
            start_ns=made.start_ns,
            snapshot_period_s=SNAPSHOT_PERIOD_S,
        )
        running = asyncio.ensure_future(made.runner.run())
        activated = ProcessorActivated(
            at_ns=made.start_ns, by="op", reason="first", name="attribution", version=1
        )
        await made.say("operator", activated, "attribution")
        gpus = (GpuDescribed(pci="0000:1b:00.0"),)
        await made.observe(InventoryReported, "n1", gpus=gpus)
        try:
            yield made
        finally:
            made.runner.stop()
            await running
            for log in (*made.logs.values(), member):
                await log.close()


@asynccontextmanager
async def at_work(*archivists: Archivist) -> AsyncIterator[None]:
    running = [asyncio.ensure_future(each.run()) for each in archivists]
    try:
        yield
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def test_a_closed_incident_replays_after_its_telemetry_has_expired(tmp_path: Path) -> None:
    async def body() -> None:
        async with site(tmp_path) as cell:
            incident = await cell.break_gpu()
            await cell.close(incident)
            async with at_work(cell.archivist("1"), cell.archivist("2")):
                (part,) = await cell.archived(incident)
            assert part.missing_count == 0
            fresh = await cell.nemesis("replay", incident)
            assert fresh.returncode == 0, fresh.stdout + fresh.stderr
            assert fresh.stdout.startswith(f"{incident}, from the log:\nequal: ")
            assert len(await subjects(cell.logs["reader"], INCIDENTS)) == 1
            await cell.expire()
            old = await cell.nemesis("replay", incident)
            assert old.returncode == 0, old.stdout + old.stderr
            assert old.stdout.startswith(f"{incident}, from the archive:\nequal: ")
            assert "attribution    version 1: 1 conclusions equal" in old.stdout
            for name in ("x.ndjson.zst", "x.ndjson"):
                out = tmp_path / name
                taken = await cell.nemesis("record", "--incident", incident, "--out", str(out))
                assert taken.returncode == 0, taken.stderr
                assert taken.stdout.startswith(
                    "the log no longer has it, this is what was archived"
                )
                header = Recording(out).header
                assert (header.incident, header.gaps) == (incident, [])
                assert [each.seq for each in Recording(out).records()] == list(
                    range(header.from_seq, header.to_seq + 1)
                )
            again = await cell.nemesis("record", "--incident", incident, "--out", str(out))
            assert again.returncode != 0
            assert f"{out} exists" in again.stderr
            told = await cell.nemesis("report", incident, "--json")
            assert msgspec.json.decode(told.stdout)["source"] == "the log and the archive"
            assert "seen by n1, by its clock" in told.stdout
            listed = await cell.nemesis("incident", "--archived", "--json")
            (row,) = msgspec.json.decode(listed.stdout)["incidents"]
            assert row["parts"][0]["sha256"] == part.sha256

    asyncio.run(body())


def test_a_killed_archivist_goes_on_and_what_is_open_for_long_is_kept_in_parts(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with site(tmp_path) as cell:
            incident = await cell.break_gpu()
            command = [sys.executable, "-m", "nemesis.cli", "act", "archivist", "--cell", "a"]
            environment = os.environ | {"NEMESIS_STATE_DIR": str(tmp_path)}
            left = tmp_path / "a" / "archivist" / "archivist-1" / "part.ndjson.zst"
            left.parent.mkdir(parents=True)
            left.write_bytes(b"of an earlier life")
            process = await asyncio.create_subprocess_exec(*command, env=environment)

            async def looks() -> bool:
                return not left.exists()

            await until(looks, "the archivist is up")
            process.kill()
            await process.wait()
            async with at_work(cell.archivist(age_s=0.0)):
                (first,) = await cell.archived(incident)
            assert (first.part_index, first.closed) == (0, False)
            await cell.expire()
            listed = await cell.nemesis("incident", "--archived")
            assert listed.stdout.startswith(f"{incident}  open, sequences ")
            await cell.pass_time(12)
            await cell.answered()
            await cell.close(incident)
            process = await asyncio.create_subprocess_exec(*command, env=environment)

            async def is_in_the_middle() -> bool:
                kept = (await read_cases(cell.logs["reader"])).case(incident).parts
                return any(left.parent.glob("*")) or len(kept) > 1

            await until(is_in_the_middle, "it is about to archive")
            process.kill()
            await process.wait()
            left.parent.mkdir(exist_ok=True)
            left.write_bytes(b"of a life that was killed")
            process = await asyncio.create_subprocess_exec(*command, env=environment)
            # the killed one may have archived: only a copy that is up can be told to end
            await until(looks, "the archivist is up again")
            _, second = await cell.archived(incident, 2)
            process.terminate()
            assert await process.wait() == 0
            assert (second.part_index, second.closed) == (1, True)
            assert second.object == f"{incident}/1"
            await cell.expire()
            ran = await cell.nemesis("replay", incident, "--json")
            assert ran.returncode == 0, ran.stdout + ran.stderr
            reports = msgspec.json.decode(ran.stdout)["parts"]
            assert [each["verdict"] for each in reports] == ["equal", "equal"]
            out = tmp_path / "x.ndjson.zst"
            ran = await cell.nemesis("record", "--incident", incident, "--out", str(out), "--json")
            files = msgspec.json.decode(ran.stdout)["files"]
            assert [each["file"] for each in files] == [
                str(tmp_path / f"x-{number}.ndjson.zst") for number in (1, 2)
            ]

    asyncio.run(body())


def test_a_full_store_is_told_once_and_a_lost_or_damaged_object_by_name(tmp_path: Path) -> None:
    async def body() -> None:
        async with site(tmp_path, store_bytes=600) as cell:
            incident = await cell.break_gpu()
            archivist = cell.archivist()
            await cell.close(incident)
            async with at_work(archivist):
                await until(lambda: bool(cell.alarms), "the store is full")
                await asyncio.sleep(0)
            (alarm,) = cell.alarms
            assert alarm.startswith(f"{incident} is not archived yet: $O.NEMESIS_INCIDENTS.C.")
            assert "maximum bytes exceeded" in alarm
            listed = await cell.nemesis("incident", "--archived")
            assert listed.stdout == f"{incident}  over, not archived\n"
            await cell.expire()
            lost = await cell.nemesis("replay", incident)
            assert lost.returncode == 3
            assert lost.stderr.startswith(f"nemesis: {incident} was not archived, and sequences ")
            assert lost.stderr.count("\n") == 1
            cut = f"$O.NEMESIS_INCIDENTS.C.archivist.{'1' * 64}"
            await write(cell.logs["archivist"].connection, [Message(subject=cut, payload=b"cut")])
            for name, key, code, says in (
                ("i-00", "0" * 64, 3, f"holds no object {'0' * 64}"),
                ("i-11", "1" * 64, 1, f"object {'1' * 64} of archivist has the hash"),
            ):
                claimed = IncidentArchived(
                    at_ns=1,
                    reason="r",
                    incident=name,
                    object="x",
                    sha256=key,
                    size_bytes=1,
                    from_seq=1,
                    to_seq=cell.sample_seq,
                    closed=True,
                )
                await cell.say("archivist", claimed, name)
                ran = await cell.nemesis("replay", name)
                assert ran.returncode == code
                assert ran.stderr.startswith(f"nemesis: archive of {name}: NEMESIS_INCIDENTS")
                assert says in ran.stderr
                assert ran.stderr.count("\n") == 1

    asyncio.run(body())
