"""Promises of what people read from a real server: recordings, events, telemetry, incidents."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.processors.attribution.attribution import Attribution
from nemesis.replay.capture import gap_cause
from nemesis.replay.reader import Recording
from nemesis.replay.slices import matching
from nemesis.schemas.facts import encode_conclusion, encode_observation, telemetry_subject
from nemesis.schemas.observed import (
    ClockTicked,
    CollectiveRecorded,
    GpuDescribed,
    InventoryReported,
    KernelLineLogged,
    SampleTaken,
)
from nemesis.schemas.operated import NoteAdded, ProcessorActivated
from nemesis.streams.log import Log
from nemesis.streams.runner import Runner
from nemesis.streams.server import Server
from nemesis.streams.status import copies_folder, write_status
from tests.commands import Ran
from tests.commands import nemesis as run

pytestmark = pytest.mark.server
SECOND_NS = 1_000_000_000
PATIENCE_S = 30.0
DUMP = b"a whole flight-recorder dump"


class Cell:
    """A running server whose log has an incident in it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.server = Server("reading", folder=base / "reading", roles=["node/n1", "node/n2"])
        self.start_ns = time.time_ns()
        self.seconds = 0
        self._numbers: dict[str, int] = {}

    async def observe(self, log: Log, struct: Callable[..., Any], node: str, **fields: Any) -> int:
        """One observation."""
        token = {"ClockTicked": "tick", "KernelLineLogged": "kernel", "SampleTaken": "sample",
                 "InventoryReported": "inventory", "CollectiveRecorded": "collective"}[
            struct.__name__
        ]  # fmt: skip
        n = self._numbers[f"{node}/{token}"] = self._numbers.get(f"{node}/{token}", 0) + 1
        at_ns = self.start_ns + self.seconds * SECOND_NS
        data = struct(node=node, start_ns=self.start_ns, n=n, at_ns=at_ns, **fields)
        return await log.publish(telemetry_subject(node, token), encode_observation(data))

    async def operate(self, log: Log, data: msgspec.Struct, key: str) -> int:
        """One act of a person."""
        at_ns = self.start_ns + self.seconds * SECOND_NS
        subject, payload = encode_conclusion(
            id=f"operator/{key}/{self.seconds}", source="/operator", at_ns=at_ns, data=data, key=key
        )
        return await log.publish(subject, payload)

    async def fill(self) -> None:
        """An activation, an inventory, a GPU off the bus, and a processor that reads it."""
        server = self.server
        ticker, operator, node, reader = [
            await server.connect(role) for role in ("ticker", "operator", "node/n1", "reader")
        ]
        member = await server.connect("processor/attribution")
        sim = await server.connect("sim")
        copies = copies_folder(self.base / "reading")
        copies.mkdir()
        runner = Runner([(Attribution(), member)], folder=copies, start_ns=self.start_ns)
        running = asyncio.ensure_future(runner.run())
        activated = ProcessorActivated(
            at_ns=self.start_ns, by="op", reason="first", name="attribution", version=1
        )
        await self.operate(operator, activated, "attribution")
        gpus = (GpuDescribed(pci="0000:1b:00.0"),)
        await self.observe(node, InventoryReported, "n1", gpus=gpus)
        dump = await sim.blobs.put(DUMP)
        for second in range(40):
            self.seconds = second
            await self.observe(ticker, ClockTicked, "clock")
            await self.observe(node, SampleTaken, "n1", gpu_count=1, gpu=bytes(16))
            if second == 3:
                text = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
                await self.observe(node, KernelLineLogged, "n1", text=text)
                await self.observe(
                    node, CollectiveRecorded, "n1", job="llama", rank=0, dump_sha256=dump
                )
        last = (await reader.bounds()).last_seq
        started = "nemesis.events.processor_started.attribution"
        deadline = time.monotonic() + PATIENCE_S
        while runner.lanes[0].position.in_seq < last or await reader.last(started) is None:
            assert time.monotonic() < deadline, runner.status()
            await asyncio.sleep(0.02)
        name = ""
        async for record in matching(reader, "nemesis.events.fault_attributed.*"):
            name = str(msgspec.json.decode(record.payload)["data"]["incident"])
        note = NoteAdded(at_ns=1, by="alice", reason="seen", incident=name, text="swap ordered")
        await self.operate(operator, note, name)
        told = runner.status()
        runner.stop()
        await running
        write_status(copies, told)  # as if it went on
        for log in (ticker, operator, node, reader, member, sim):
            await log.close()


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """One server for all tests of this file: they only read."""
    base = tmp_path_factory.mktemp("cells")
    cell = Cell(base)

    async def start() -> None:
        await cell.server.start()
        await cell.fill()

    asyncio.run(start())
    yield cell
    asyncio.run(cell.server.stop())


def nemesis(cell: Cell, *arguments: str) -> Ran:
    """Run the command against this cell."""
    return run(*arguments, NEMESIS_STATE_DIR=str(cell.base), NEMESIS_CELL="reading")


def document(ran: Ran) -> Any:
    """The JSON document on stdout."""
    assert ran.returncode == 0, ran.stderr
    return msgspec.json.decode(ran.stdout)


def lines(ran: Ran) -> list[Any]:
    """The JSON lines on stdout."""
    assert ran.returncode == 0, ran.stderr
    return [msgspec.json.decode(line) for line in ran.stdout.splitlines()]


def incident_id(cell: Cell) -> str:
    (row,) = document(nemesis(cell, "incident", "--json"))["incidents"]
    return str(row["incident"])


def test_the_whole_log_is_recorded_and_replays_equal(cell: Cell, tmp_path: Path) -> None:
    out = tmp_path / "all.ndjson.zst"
    header = document(nemesis(cell, "record", "--out", str(out), "--json"))["header"]
    assert header["from_seq"] == 1
    assert header["gaps"] == []
    report = document(nemesis(cell, "replay", str(out), "--json"))
    assert report["verdict"] == "equal"
    assert report["processors"][0]["equal_count"] >= 1
    assert report["processors"][0]["states_equal_count"] >= 1
    assert DUMP in dict(Recording(out).blobs()).values()


def test_a_slice_of_sequences_begins_at_a_state_before_it(cell: Cell, tmp_path: Path) -> None:
    out = tmp_path / "slice.ndjson"
    ran = nemesis(cell, "record", "--out", str(out), "--from", "60", "--to", "95")
    assert ran.returncode == 0, ran.stderr
    assert "verify it with: nemesis replay" in ran.stdout
    header = Recording(out).header
    (plan,) = header.processors
    assert 0 < plan.start_seq < 60
    assert header.from_seq == plan.start_seq + 1
    shown = nemesis(cell, "replay", str(out))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.startswith("equal: ")


def test_an_incident_is_recorded_with_all_that_it_needs(cell: Cell, tmp_path: Path) -> None:
    out = tmp_path / "incident.ndjson.zst"
    name = incident_id(cell)
    header = document(nemesis(cell, "record", "--out", str(out), "--incident", name, "--json"))[
        "header"
    ]
    assert header["incident"] == name
    report = document(nemesis(cell, "replay", str(out), "--json"))
    assert report["verdict"] == "equal"
    assert report["processors"][0]["equal_count"] >= 1


def test_a_slice_of_times_holds_that_time(cell: Cell, tmp_path: Path) -> None:
    out = tmp_path / "times.ndjson"
    header = document(nemesis(cell, "record", "--out", str(out), "--since", "1h", "--json"))[
        "header"
    ]
    assert header["from_seq"] == 1
    none = nemesis(cell, "record", "--out", str(out), "--until", "1h", "--force")
    assert none.returncode == 3
    assert "no fact from" in none.stderr


def test_a_file_is_replaced_only_by_force(cell: Cell, tmp_path: Path) -> None:
    out = tmp_path / "x.ndjson"
    out.write_text("mine")
    ran = nemesis(cell, "record", "--out", str(out))
    assert ran.returncode == 4
    assert f"{out} exists" in ran.stderr
    assert out.read_text() == "mine"
    assert nemesis(cell, "record", "--out", str(out), "--force").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--incident", "i", "--from", "3"], "--incident says the slice"),
        (["--from", "3", "--since", "1h"], "give each end as a sequence or as a time"),
        (["--since", "yesterday"], "not a time: 'yesterday'"),
    ],
)
def test_a_slice_that_means_nothing_is_a_usage_error(
    cell: Cell, tmp_path: Path, arguments: list[str], says: str
) -> None:
    ran = nemesis(cell, "record", "--out", str(tmp_path / "x"), *arguments)
    assert ran.returncode == 2
    assert says in " ".join(ran.stderr.split())


def test_an_unknown_incident_is_not_found(cell: Cell, tmp_path: Path) -> None:
    for command in (["incident", "nosuch"], ["record", "--out", "x", "--incident", "nosuch"]):
        ran = nemesis(cell, *command)
        assert ran.returncode == 3
        assert ran.stderr == "nemesis: no incident 'nosuch'; `nemesis incident` lists them\n"


def test_what_was_lost_is_told_apart_from_what_expired() -> None:
    now_ns = 100 * 3600 * SECOND_NS
    assert "the log has lost them" in gap_cause(now_ns - 23 * 3600 * SECOND_NS, now_ns)
    assert gap_cause(now_ns - 25 * 3600 * SECOND_NS, now_ns) == "telemetry expires after 24 h"


def test_the_story_of_an_incident_begins_with_the_verdict(cell: Cell) -> None:
    name = incident_id(cell)
    ran = nemesis(cell, "incident", name)
    story = ran.stdout.splitlines()
    assert story[0] == f"incident {name}"
    assert story[1].startswith("verdict  ")
    assert "gpu.off_bus" in story[1]
    assert "swap ordered" in ran.stdout
    assert "fallen off the bus" in ran.stdout
    listed = nemesis(cell, "incident").stdout
    assert name in listed
    whole = document(nemesis(cell, "incident", name[:-1], "--json"))
    assert "note_added" in [each["fact"] for each in whole["events"]]
    assert whole["verdict"]["fault_class"] == "gpu.off_bus"
    assert whole["first_seq"] < whole["last_seq"]


def test_events_show_the_past_and_can_be_filtered(cell: Cell) -> None:
    name = incident_id(cell)
    all_of_them = lines(nemesis(cell, "events", "--no-follow", "--jsonl"))
    assert [each["seq"] for each in all_of_them] == sorted(each["seq"] for each in all_of_them)
    facts = {each["subject"].split(".")[2] for each in all_of_them}
    assert {"processor_activated", "processor_started", "fault_attributed", "note_added"} <= facts
    notes = lines(nemesis(cell, "events", "--no-follow", "--fact", "note_added", "--jsonl"))
    assert notes[0]["event"]["data"]["text"] == "swap ordered"
    assert {each["subject"].split(".")[2] for each in notes} == {"note_added"}
    of_incident = lines(nemesis(cell, "events", "--no-follow", "--incident", name, "--jsonl"))
    assert len(of_incident) == len(
        [e for e in all_of_them if e["event"]["data"].get("incident") == name]
    )
    text = nemesis(cell, "events", "--no-follow", "--since", "1h").stdout
    assert "fault_attributed" in text
    assert nemesis(cell, "events", "--fact", "nosuch").returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("events", "--job", "nope"),
        ("events", "--incident", "nope"),
        ("telemetry", "cat", "--node", "nope"),
    ],
)
def test_what_finds_nothing_says_so_in_one_line_and_exits_with_3(
    cell: Cell, arguments: tuple[str, ...]
) -> None:
    ran = nemesis(cell, *arguments, "--no-follow")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("nemesis: no ")
    assert ran.stderr.count("\n") == 1


def test_an_incident_begins_with_what_a_producer_saw(cell: Cell) -> None:
    whole = document(nemesis(cell, "incident", incident_id(cell), "--json"))
    assert whole["began_ns"] < whole["events"][0]["stored_ns"]
    assert whole["duration_ns"] > 0
    assert "seen by n1, by its clock" in nemesis(cell, "incident", incident_id(cell)).stdout


def test_events_of_a_stretch_of_time_end_where_it_ends(cell: Cell) -> None:
    for command, least in ((("events",), 3), (("telemetry", "cat"), 3)):
        past = lines(nemesis(cell, *command, "--no-follow", "--jsonl"))
        assert len(past) >= least
        stretch = nemesis(cell, *command, "--since", "1h", "--until", "0s", "--jsonl")
        assert lines(stretch)[: len(past)] == past
        before = nemesis(cell, *command, "--until", "1h", "--jsonl")
        assert (before.returncode, before.stdout) == (0, "")


def test_events_follow_the_log_until_interrupted(cell: Cell) -> None:
    name = incident_id(cell)
    tail = subprocess.Popen(
        [sys.executable, "-m", "nemesis.cli", "events", "--since", "1h", "--jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NEMESIS_STATE_DIR": str(cell.base), "NEMESIS_CELL": "reading"},
    )
    assert tail.stdout is not None
    assert '"seq":' in tail.stdout.readline()

    async def add() -> None:
        async with await cell.server.connect("operator") as log:
            note = NoteAdded(at_ns=1, by="bob", reason="r", incident=name, text="a later note")
            cell.seconds += 1
            await cell.operate(log, note, name)

    asyncio.run(add())
    while "a later note" not in tail.stdout.readline():
        assert tail.poll() is None
    tail.send_signal(signal.SIGINT)
    _, stderr = tail.communicate(timeout=30)
    assert tail.returncode == 130
    assert "Traceback" not in stderr


def test_telemetry_is_shown_by_channel_and_device(cell: Cell) -> None:
    seen = lines(nemesis(cell, "telemetry", "cat", "--no-follow", "--kind", "sample", "--jsonl"))
    assert len(seen) == 40
    assert seen[0]["data"]["gpu"] == [{"dram_ce_count": 0, "dram_ue_count": 0}]
    text = nemesis(cell, "telemetry", "cat", "--no-follow", "--node", "n1").stdout
    assert "fallen off the bus" in text
    assert "clock" not in text
    everything = nemesis(cell, "telemetry", "cat", "--no-follow", "--kind", "tick").stdout
    assert len(everything.splitlines()) == 40


def test_status_names_a_copy_that_died(cell: Cell) -> None:
    (path,) = copies_folder(cell.base / "reading").glob("*.json")
    told = path.read_bytes()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    try:
        path.write_bytes(msgspec.json.encode(msgspec.json.decode(told) | {"pid": dead.pid}))
        assert f"process {dead.pid} dead" in nemesis(cell, "status").stdout
    finally:
        path.write_bytes(told)


def test_status_says_where_the_log_and_each_processor_stand(cell: Cell) -> None:
    now = document(nemesis(cell, "status", "--json"))
    (attribution,) = now["processors"]
    assert attribution["name"] == "attribution"
    assert (attribution["version"], attribution["lag_ns"]) == (1, 0)
    (copy,) = now["copies"]  # lives, so that it knows better than its position how far it is
    assert attribution["lag_seq"] == copy["lag_seq"]
    assert now["log_time_ns"] == cell.start_ns + 39 * SECOND_NS
    assert (copy["pid"], copy["alive"], copy["stage"]) == (os.getpid(), True, "reading")
    text = nemesis(cell, "status").stdout
    assert f"copy of attribution version 1: process {os.getpid()} reading" in text
    assert text.startswith("log reading: sequences 1 to")
    assert "attribution" in text
    assert now["clock_behind_ns"] == 0
    assert "stands still" not in text


# Who is not there, and who may not


def test_a_cell_that_does_not_run_is_told_in_one_line(cell: Cell, tmp_path: Path) -> None:
    for command in (["status"], ["events"], ["incident"], ["record", "--out", str(tmp_path / "x")]):
        ran = nemesis(cell, *command, "--cell", "elsewhere")
        assert ran.returncode == 3
        assert ran.stderr.startswith("nemesis: no server of cell 'elsewhere' runs here; start one")
        assert ran.stderr.count("\n") == 1


def test_an_error_is_json_where_json_was_asked_for(cell: Cell) -> None:
    ran = nemesis(cell, "status", "--cell", "elsewhere", "--json")
    assert msgspec.json.decode(ran.stderr)["error"]["code"] == "no_cell"


def test_credentials_of_another_cell_are_refused(cell: Cell, tmp_path: Path) -> None:
    from nemesis.streams import credentials

    credentials.ensure(tmp_path / "seeds", ["reader"])
    ran = nemesis(
        cell, "status", "--server", cell.server.url, "--credentials", str(tmp_path / "seeds")
    )
    assert ran.returncode == 3
    assert "does not accept" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_server_that_does_not_answer_is_told_in_one_line(cell: Cell) -> None:
    ran = nemesis(cell, "status", "--server", "nats://127.0.0.1:9")
    assert ran.returncode == 3
    assert "no NATS server at nats://127.0.0.1:9" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_the_reader_of_a_pipe_may_leave(cell: Cell) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    ran = subprocess.run(
        [shell, "-c", f"{sys.executable} -m nemesis.cli events --no-follow --jsonl | head -n 1"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NEMESIS_STATE_DIR": str(cell.base), "NEMESIS_CELL": "reading"},
    )
    assert len(ran.stdout.splitlines()) == 1
    assert "Traceback" not in ran.stderr
