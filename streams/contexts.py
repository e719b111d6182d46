"""Which log a command talks to: a server that is named, a NATS context, or the cell's own server.

Contexts are the files of the `nats` command line tool (github.com/nats-io/jsm.go, natscontext):
one JSON file each below `~/.config/nats/context/`, the selected one named in `context.txt`.
"""

import asyncio
import os
from pathlib import Path
from typing import Final

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.streams import credentials
from nemesis.streams.connection import CONNECT_TIMEOUT_S, Connection, Login
from nemesis.streams.errors import LogUnavailableError, WrongCredentialsError
from nemesis.streams.log import Log
from nemesis.streams.permissions import user_of
from nemesis.streams.server import DEFAULT_CELL, running, state_folder

NAMED_MAX: Final = 4
RETRY_S: Final = 1.0
_NODES_OWN: Final = ("node", "producer")
_UNSUPPORTED: Final = ("token", "user_jwt", "user_seed", "nsc", "cert")


class NoCellError(NemesisError):
    """Nothing runs that a command could talk to."""

    exit_code = 3


class BadContextError(NemesisError):
    """A NATS context that is missing or cannot be used."""

    exit_code = 2


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server and how to sign in to it."""

    url: str
    credentials_folder: Path | None = None
    """Seeds of a cell, one a role."""
    creds_path: Path | None = None
    seed_path: Path | None = None
    username: str = ""
    password: str = ""

    def login(self, role: str) -> Login:
        """How this role signs in.

        Raises:
            BadNameError: no such role.
            WrongCredentialsError: the cell has seeds of nodes, and none of this one.
        """
        seed = self.seed_path
        if self.credentials_folder is not None:
            seed = credentials.seed_path(self.credentials_folder, role)
            _expect_known(seed, role)
        return Login(
            user_of(role),
            seed_path=seed,
            creds_path=self.creds_path,
            username=self.username,
            password=self.password,
        )

    async def connect(
        self, role: str, *, name: str = "", timeout_s: float = CONNECT_TIMEOUT_S
    ) -> Log:
        """The log, signed in as a role.

        Raises:
            WrongCredentialsError: refused, or no such seed.
            LogUnavailableError: no server answers.
        """
        login = self.login(role)
        return Log(await Connection.open(self.url, login, name=name or role, timeout_s=timeout_s))

    async def reach(self, role: str) -> Log:
        """The log, signed in as a role, however long it is away.

        Raises:
            WrongCredentialsError: refused, or no such seed.
        """
        while True:
            try:
                return await self.connect(role)
            except LogUnavailableError:
                await asyncio.sleep(RETRY_S)


class _Context(msgspec.Struct):
    """The fields of a context file that matter here."""

    url: str = "nats://127.0.0.1:4222"
    user: str = ""
    password: str = ""
    creds: str = ""
    nkey: str = ""


def _expect_known(seed: Path, role: str) -> None:
    """Who takes his host's name for the node's finds no seed of it among those of the cell."""
    kind, _, node = role.partition("/")
    if seed.exists():
        return
    if kind == "collector":
        raise WrongCredentialsError(
            f"no credentials of collector-{node}: no {seed}",
            hint=f"add {node} to the --switches of `serve` or `credentials`",
        )
    if kind not in _NODES_OWN:
        return
    prefix = f"{kind}-"
    others = sorted(path.stem.removeprefix(prefix) for path in seed.parent.glob(f"{prefix}*.nk"))
    if others:
        named = ", ".join(others[:NAMED_MAX]) + (", ..." if others[NAMED_MAX:] else "")
        raise WrongCredentialsError(
            f"this cell has no node {node}: no {seed}",
            hint=f"name one of its nodes with --node ({named}), or add {node} to `serve --nodes`",
        )


def find(
    *,
    server: str | None = None,
    context: str | None = None,
    cell: str = DEFAULT_CELL,
    credentials_folder: Path | None = None,
) -> Target:
    """The server a command means: `server`, else `context`, else the running server of the cell.

    With `server`, a folder of seeds may be named; the cell's own is taken if it has one.

    Raises:
        NoCellError: nothing runs.
        BadContextError: no such context, or one that needs what we do not have.
    """
    if context is not None:
        return _of_context(context)
    folder = state_folder(cell)
    if credentials_folder is not None and not credentials_folder.is_dir():
        raise WrongCredentialsError(
            f"no folder of seeds: {credentials_folder}",
            hint="--credentials names a folder with files like reader.nk",
        )
    seeds = credentials_folder or (folder / "credentials")
    if server is not None:
        return Target(url=server, credentials_folder=seeds if seeds.is_dir() else None)
    info = running(folder)
    if info is None:
        raise NoCellError(
            f"no server of cell {cell!r} runs here",
            hint="start one with `nemesis serve`, or name one with --server or --context",
        )
    return Target(url=info.url, credentials_folder=seeds)


def selected() -> str | None:
    """The context that the `nats` tool has selected, if any."""
    try:
        return (_contexts_folder() / "context.txt").read_text().strip() or None
    except OSError:
        return None


def _of_context(name: str) -> Target:
    path = _contexts_folder() / "context" / f"{name}.json"
    if "/" in name or name.startswith("."):
        raise BadContextError(f"not the name of a context: {name[:60]!r}")
    try:
        raw = path.read_bytes()
        fields = msgspec.json.decode(raw, type=dict[str, object])
        context = msgspec.json.decode(raw, type=_Context)
    except OSError:
        raise BadContextError(
            f"no NATS context {name!r}: {path}", hint="`nats context ls`"
        ) from None
    except msgspec.DecodeError as error:
        raise BadContextError(f"NATS context {name!r}: {error}", hint=f"see {path}") from error
    for field in _UNSUPPORTED:
        if fields.get(field):
            raise BadContextError(
                f"NATS context {name!r} signs in by {field!r}",
                hint="use one with creds, nkey, or user and password",
            )
    return Target(
        url=context.url,
        creds_path=Path(context.creds).expanduser() if context.creds else None,
        seed_path=Path(context.nkey).expanduser() if context.nkey else None,
        username=context.user,
        password=context.password,
    )


def _contexts_folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "nats"
