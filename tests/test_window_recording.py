"""Promises of a recording of a processor with a window: it holds what has to be read again."""

import asyncio
from pathlib import Path

import pytest

from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.fold import first_needed
from nemesis.processors.processor import Processor
from nemesis.replay.capture import SliceExpiredError, capture
from nemesis.replay.reader import Recording
from nemesis.replay.verify import verify
from nemesis.replay.writer import RecordingWriter
from nemesis.schemas.facts import Record
from nemesis.streams.runner import Runner
from nemesis.streams.server import Server
from tests.cells import in_cell, until
from tests.commands import nemesis
from tests.ecc_log import FILES, HISTORY, MODEL, Nodes, quiet, watched

pytestmark = pytest.mark.server
SNAPSHOT_PERIOD_S = 0.05


def make(name: str, version: int) -> Processor:
    return EccModel(FILES.get)


async def publish(server: Server, records: list[Record], *, ttl_s: int | None = None) -> int:
    """Each as who may write it, the last sequence; telemetry expires after `ttl_s`."""
    last_seq = 0
    roles = {"tick": "ticker", "events": "operator", "n1": "node/n1"}
    logs = {name: await server.connect(role) for name, role in roles.items()}
    for each in records:
        _, space, name, *kind = each.subject.split(".")
        writer = "tick" if kind == ["tick"] else space if space == "events" else name
        lives_s = None if writer == "events" else ttl_s
        last_seq = await logs[writer].publish(each.subject, each.payload, ttl_s=lives_s)
    for log in logs.values():
        await log.close()
    return last_seq


async def answered(server: Server, folder: Path, records: list[Record]) -> None:
    """Written while a copy is at work, which ends when it has answered everything."""
    log = await server.connect("processor/ecc_model")
    runner = Runner(
        [(EccModel(FILES.get), log)],
        folder=folder,
        start_ns=1,
        snapshot_period_s=SNAPSHOT_PERIOD_S,
    )
    running = asyncio.ensure_future(runner.run())
    half = len(records) // 2
    last_seq = await publish(server, records[:half])
    await until(lambda: runner.lanes[0].position.in_seq >= last_seq, "half of it is answered")
    await asyncio.sleep(2 * SNAPSHOT_PERIOD_S)  # with the next input a snapshot is due
    last_seq = await publish(server, records[half:])
    await until(lambda: runner.lanes[0].position.in_seq >= last_seq, "everything is answered")
    runner.stop()
    await running
    await log.close()


def speaking() -> Nodes:
    """More than an hour in which a GPU is spoken of three times at the end."""
    log = quiet(watched("n1"), "n1", cells=2 * HISTORY)
    for code in (122, 0, 122):
        log.power("n1", code, 0)
        log.tick()
    return log


def test_a_late_slice_is_widened_to_its_window_and_replays_equal(tmp_path: Path) -> None:
    path = tmp_path / "late.ndjson.zst"

    async def body(server: Server) -> None:
        records = speaking().records
        folder = tmp_path / "copies"
        folder.mkdir()
        await answered(server, folder, records[:-10])
        await answered(server, folder, records[-10:])  # by a copy that reads again
        reader = await server.connect("reader")
        end = (await reader.bounds()).last_seq
        await capture(reader, path, from_seq=end - 60, to_seq=end, cell="test")
        await reader.close()

    in_cell(tmp_path, body, roles=["node/n1"])
    recording = Recording(path)
    (plan,) = recording.header.processors
    needed = first_needed(recording.states()[plan.start_sha256])
    assert recording.header.from_seq == needed < plan.start_seq - HISTORY
    report = verify(recording, make)
    assert report.verdict == "equal", report.first
    (own,) = report.processors
    assert own.equal_count >= 1
    assert own.states_equal_count > 0

    cut = tmp_path / "cut.ndjson"  # the same without the window
    with RecordingWriter(
        cut, cell="", made_by="", made_at="", from_seq=plan.start_seq + 1, force=False
    ) as writer:
        writer.start(
            plan.name,
            in_seq=plan.start_seq,
            version=plan.start_version,
            state=recording.states()[plan.start_sha256],
        )
        for each in recording.records():
            if each.seq > plan.start_seq:
                writer.record(each)
        writer.finish(to_seq=recording.header.to_seq)
    (own,) = verify(Recording(cut), make).processors
    assert own.unverified == (f"inputs {needed} to {plan.start_seq} are missing from the recording")
    nowhere = nemesis("replay", str(path))
    assert nowhere.returncode == 3
    assert f"not verified: ecc_model: the active model {MODEL} is" in nowhere.stdout
    (tmp_path / "my-model.msgpack").write_bytes(FILES[MODEL])
    here = nemesis("replay", str(path), NEMESIS_MODELS=str(tmp_path))
    assert here.returncode == 0, here.stdout


def test_a_slice_is_whole_also_where_some_of_what_is_read_again_has_expired(tmp_path: Path) -> None:
    path = tmp_path / "late.ndjson.zst"

    async def body(server: Server) -> None:
        records = quiet(watched("n1"), "n1", cells=60).records
        folder = tmp_path / "copies"
        folder.mkdir()
        await publish(server, records[:3])
        await publish(server, records[3:23], ttl_s=2)
        await answered(server, folder, records[23:])
        reader = await server.connect("reader")

        async def gone() -> bool:
            return await reader.get(4) is None and await reader.get(23) is None

        await until(gone, "the window's beginning has expired")
        end = (await reader.bounds()).last_seq
        await capture(reader, path, from_seq=end - 3, to_seq=end, cell="test", whole=True)
        with pytest.raises(SliceExpiredError, match="sequences 4 to 23 are no longer in the log"):
            await capture(
                reader, tmp_path / "early", from_seq=10, to_seq=end, cell="test", whole=True
            )
        await reader.close()

    in_cell(tmp_path, body, roles=["node/n1"])
    header = Recording(path).header
    assert header.gaps == [(4, 23)]
    assert header.processors[0].start_seq > 40
