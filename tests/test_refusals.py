"""Every refusal that a server can answer with means one thing to us: moved, full, again, never."""

import asyncio
import errno
import json
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from nemesis.schemas.errors import NemesisError
from nemesis.streams import server as server_module
from nemesis.streams.batch import Message, read_back, write
from nemesis.streams.connection import Connection
from nemesis.streams.errors import (
    DiskFullError,
    LogFullError,
    LogUnavailableError,
    PortInUseError,
    PositionMovedError,
    ServerStartError,
    StateFolderError,
    UndeliverableError,
)
from nemesis.streams.reader import Reader
from nemesis.streams.revival import DiskTrouble
from nemesis.streams.server import Server
from tests.cells import until


class Answering(Connection):
    """A connection whose server gives one answer to everything."""

    def __init__(self, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.wakes: set[asyncio.Event] = set()  # type: ignore[misc]
        self.lost_count = 0
        self._msg = Msg(_client=None, data=data, headers=headers)  # type: ignore[arg-type]

    async def request(self, *args: object, **options: object) -> Msg:
        return self._msg


@pytest.mark.parametrize(
    ("code", "err_code", "error"),
    [
        (400, 10071, PositionMovedError),
        (400, 10164, PositionMovedError),
        (400, 10201, PositionMovedError),
        (500, 10023, LogFullError),
        (500, 10047, LogFullError),
        (503, 10077, LogFullError),
        (400, 10176, LogUnavailableError),
        (429, 10167, LogUnavailableError),
        (503, 10008, LogUnavailableError),
        (503, 10076, LogUnavailableError),
        (400, 10054, UndeliverableError),
        (400, 99999, UndeliverableError),
    ],
)
def test_each_refusal_has_one_meaning(code: int, err_code: int, error: type[NemesisError]) -> None:
    answer = {"error": {"code": code, "err_code": err_code, "description": "no"}}
    message = Message(subject="nemesis.cursor.x", payload=b"")
    with pytest.raises(error, match=rf"nemesis\.cursor\.x: no \({err_code}\)"):
        asyncio.run(write(Answering(json.dumps(answer).encode()), [message]))


def test_a_direct_get_that_fails_is_no_missing_message() -> None:
    gone = Answering(headers={"Status": "404", "Description": "Message Not Found"})
    assert asyncio.run(read_back(gone, "NEMESIS", seq=1)) is None
    wrong = Answering(headers={"Status": "408", "Description": "Bad Request"})
    with pytest.raises(LogUnavailableError, match="408 Bad Request"):
        asyncio.run(read_back(wrong, "NEMESIS", seq=1))


@pytest.mark.parametrize(
    ("headers", "goes_on", "outstanding"),
    [
        ({"Status": "100", "Description": "Idle Heartbeat"}, True, 10),
        ({"Status": "408", "Nats-Pending-Messages": "7"}, True, 3),
        ({"Status": "409", "Nats-Pending-Messages": "10"}, True, 0),
        ({"Status": "409", "Description": "Consumer Deleted"}, False, 10),
        ({"Status": "503"}, False, 10),
        ({}, False, 10),
    ],
)
def test_what_the_server_says_about_a_pull(
    headers: dict[str, str], goes_on: bool, outstanding: int
) -> None:
    async def said() -> tuple[bool, int]:
        reader = Reader(Answering(), "NEMESIS", 1)
        reader._outstanding = 10
        return reader._goes_on(Answering(headers=headers)._msg), reader._outstanding

    assert asyncio.run(said()) == (goes_on, outstanding)


def delivered(seq: int, delivery: int, *, domain: str = "") -> Msg:
    """A record as JetStream delivers it."""
    start = f"$JS.ACK.{domain}.hash." if domain else "$JS.ACK."
    end = ".random" if domain else ""
    reply = f"{start}NEMESIS.consumer.1.{seq}.{delivery}.777.3{end}"
    return Msg(_client=None, subject="nemesis.cursor.x", reply=reply, data=b"%d" % seq)  # type: ignore[arg-type]


@pytest.mark.parametrize("domain", ["", "hub"])
def test_records_before_the_end_of_a_consumer_are_handed_out_and_none_behind_it(
    domain: str,
) -> None:
    async def taken(end: Msg, *, lost: bool) -> list[int]:
        connection = Answering()
        reader = Reader(connection, "NEMESIS", 5)
        connection.lost_count = int(lost)
        arrived = [delivered(5, 1, domain=domain), delivered(8, 2, domain=domain)]
        records = reader._taken([*arrived, end, delivered(10, 4, domain=domain)])
        assert all(r.stored_ns == 777 and r.payload == b"%d" % r.seq for r in records)
        assert (reader.last_seq, reader.pending_count) == (8, 3)
        return [r.seq for r in records]

    deleted = Answering(headers={"Status": "409", "Description": "Consumer Deleted"})._msg
    assert asyncio.run(taken(deleted, lost=False)) == [5, 8]
    # a gap of deliveries across a broken connection is no loss: a new consumer starts behind 8
    assert asyncio.run(taken(delivered(10, 4, domain=domain), lost=True)) == [5, 8]


@pytest.mark.parametrize(
    ("log", "error", "says"),
    [
        ("[FTL] listen tcp 127.0.0.1:7: bind: address already in use", PortInUseError, "port 7"),
        ("[FTL] write x: no space left on device", DiskFullError, "no room"),
        ("[FTL] open x: permission denied", StateFolderError, "cannot write"),
        ("[INF] a\n[FTL] something else\n", ServerStartError, "ended: something else"),
        ("", ServerStartError, "it says nothing"),
    ],
)
def test_a_server_that_does_not_start_is_explained_by_its_log(
    log: str, error: type[NemesisError], says: str
) -> None:
    explained = server_module._start_error(ServerStartError("ended"), log, 7, Path("cell"))
    assert type(explained) is error
    assert says in explained.message
    assert explained.hint


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EACCES, StateFolderError),
        (errno.EROFS, StateFolderError),
    ],
)
def test_a_folder_that_cannot_be_written_is_explained(
    number: int, error: type[NemesisError]
) -> None:
    explained = server_module._folder_error(Path("cell"), OSError(number, "why"))
    assert type(explained) is error
    assert explained.hint


@pytest.mark.parametrize("step", ["_write_config", "_take_lock"])
def test_a_disk_that_is_full_at_the_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "_take_lock":
        monkeypatch.setattr(server_module.os, "open", full)  # type: ignore[attr-defined]
    else:
        monkeypatch.setattr(Server, step, full)
    with pytest.raises(DiskFullError):
        asyncio.run(Server("test", folder=tmp_path / "cell").start())


def test_a_server_that_never_listens_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nats-server").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "nats-server").chmod(0o755)
    monkeypatch.setattr(server_module, "nats_server_program", lambda: tmp_path / "nats-server")
    monkeypatch.setattr(server_module, "START_TIMEOUT_S", 0.2)
    server = Server("test", folder=tmp_path / "cell")
    with pytest.raises(ServerStartError, match=r"did not come up within 0\.2 s"):
        asyncio.run(server.start())
    assert server.pid is None


def test_a_server_that_ignores_its_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\ntrap '' TERM\nwhile true; do sleep 1; done\n")
    program.chmod(0o755)
    monkeypatch.setattr(server_module, "nats_server_program", lambda: program)
    monkeypatch.setattr(server_module, "START_TIMEOUT_S", 0.2)
    monkeypatch.setattr(server_module, "STOP_TIMEOUT_S", 0.2)

    async def run() -> int:
        server = Server("test", folder=tmp_path / "cell")
        server._make_folder()
        server._take_lock()
        server._fill_folder()
        launching = asyncio.ensure_future(server._launch())
        await until(lambda: server.pid is not None, "the program runs")
        pid = server.pid
        assert pid is not None
        await server.stop()
        with pytest.raises(ServerStartError):
            await launching
        return pid

    assert not Path(f"/proc/{asyncio.run(run())}").exists()


def test_disk_trouble_is_over_only_when_there_was_some_and_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "server.log"
    trouble = DiskTrouble(tmp_path)
    assert not trouble.is_over()
    log.write_text("[INF] all is well\n")
    assert not trouble.is_over()
    log.write_text("[INF] all is well\n[ERR] write 1.blk: no space left on device\n")
    full = True

    def write_bytes(path: Path, data: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    assert not trouble.is_over()
    full = False
    assert trouble.is_over()
    log.write_text("")
    assert not DiskTrouble(tmp_path).is_over()
