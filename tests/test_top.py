"""Promises of the page in a terminal: what is wrong comes first, and it never overflows."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from nemesis.schemas import operated
from nemesis.streams.server import Server
from nemesis.views.dashboard.board import Board
from nemesis.views.dashboard.terminal import screen
from tests.cells import in_cell
from tests.commands import nemesis
from tests.test_dashboard_board import board_of, recovery, told, verdict

HOSTILE = "\x1b[31mred\r\nforged [bold]x[/]"


def shown(board: Board, *, width: int = 100, height: int = 30) -> list[str]:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(screen(board.document(), height=height))
    return capture.get().splitlines()


def test_what_waits_and_what_is_wrong_stand_above_the_feed() -> None:
    lines = shown(board_of(told(verdict(), recovery("approve"))))
    text = "\n".join(lines)
    assert "nemesis approve llama/1" in text
    assert "at fault" in text
    assert text.index("incidents") < text.index("feed")
    assert lines[2].startswith("Shadow")


@pytest.mark.parametrize("height", [12, 24, 60])
def test_it_fits_where_it_can(height: int) -> None:
    notes = [
        operated.NoteAdded(at_ns=1, by="ann", reason="", text=f"note {n}", incident="")
        for n in range(100)
    ]
    lines = shown(board_of(told(*notes)), height=height)
    assert len(lines) <= height
    assert any("note 99" in line for line in lines)


def test_words_of_others_cannot_command_the_terminal() -> None:
    note = operated.NoteAdded(at_ns=1, by="eve", reason="", text=HOSTILE, incident="")
    lines = shown(board_of(told(note, verdict(reason=HOSTILE))))
    assert all(line.isprintable() for line in lines)
    assert any("forged [bold]x[/]" in line for line in lines)


async def said_by(command: str, server: Server, *options: str) -> bytes:
    """What a command prints in a process of its own."""
    where = ("--server", server.url, "--credentials", str(server.credentials_folder))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "nemesis.cli", command, *where, *options, stdout=PIPE, stderr=PIPE
    )
    stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr
    return stdout


@pytest.mark.server
def test_top_shows_a_cell_once_where_nobody_watches(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        text = await said_by("top", server)
        assert text.startswith(b"NEMESIS")
        document = msgspec.json.decode(await said_by("top", server, "--json"))
        assert document["mode"] == "shadow"

    in_cell(tmp_path, body)


def test_no_cell_is_said_in_one_line() -> None:
    ran = nemesis("top")
    assert ran.returncode == 3
    assert len(ran.stderr.splitlines()) == 1
