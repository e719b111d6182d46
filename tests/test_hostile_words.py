"""Words of others reach a terminal as words: no escape sequence, no line of their own."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nemesis.schemas.facts import encode_conclusion, encode_observation
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import KernelLineLogged
from nemesis.schemas.operated import NoteAdded
from nemesis.schemas.printable import one_line
from nemesis.sim.show import Show
from nemesis.sim.topology.cluster_file import DEFAULT, load_cluster
from nemesis.streams.server import Server
from tests.commands import nemesis
from tests.conftest import ROOT

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202etxt\r\nforged line [bold]x[/]"
SHOWN = "�[31mred�]0;title� �txt��forged line [bold]x[/]"
RECORDING = Path(__file__).parent / "recordings" / "rank-exit.ndjson.zst"


def attributed() -> FaultAttributed:
    return FaultAttributed(
        at_ns=1,
        reason=HOSTILE,
        incident="i-1",
        revision=1,
        verdict="insufficient",
        fault_class="unknown",
    )


def test_only_what_prints_as_itself_is_left() -> None:
    assert one_line(HOSTILE) == SHOWN
    assert one_line("a\ttab, é and 漢字") == "a tab, é and 漢字"


@pytest.mark.server
def test_no_command_hands_an_escape_sequence_to_the_terminal(tmp_path: Path) -> None:
    async def body() -> None:
        async with Server("local", folder=tmp_path / "local", roles=["node/n001"]) as server:
            async with await server.connect("node/n001") as log:
                line = KernelLineLogged(node="n001", start_ns=1, n=1, at_ns=1, text=HOSTILE)
                await log.publish("nemesis.telemetry.n001.kernel", encode_observation(line))
                await log.publish("nemesis.telemetry.n001.kernel", b"\x1b[31mgarbage")
            note = NoteAdded(at_ns=1, by=HOSTILE, reason="", text=HOSTILE, incident="i-1")
            facts = (("processor/attribution", attributed()), ("operator", note))
            for role, data in facts:
                async with await server.connect(role) as log:
                    subject, payload = encode_conclusion(
                        id="x", source="/x", at_ns=1, data=data, key="i-1"
                    )
                    await log.publish(subject, payload)
            here = {"NEMESIS_STATE_DIR": str(tmp_path)}
            for command in (
                ("events", "--no-follow"),
                ("telemetry", "cat", "--no-follow"),
                ("incident",),
                ("incident", "i-1"),
                ("incident", HOSTILE),
            ):
                ran = await asyncio.to_thread(nemesis, *command, **here)
                said = ran.stdout + ran.stderr
                lines = said.splitlines()
                assert lines, command
                assert all(line.isprintable() for line in lines), command
                assert not any(line.startswith("forged") for line in lines), command
                assert "forged line [bold]x[/]" in said or command == ("incident",), command

    asyncio.run(body())


def test_the_demo_shows_hostile_words_as_words() -> None:
    show = Show(load_cluster(DEFAULT), 0)
    shown = [line.body.plain for line in show._verdict(attributed(), 1)]
    assert SHOWN in shown


def test_a_newer_recording_cannot_put_words_into_a_command_to_type(tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson"
    for since, hint in (("9.1", "nemesis-gpu>=9.1"), ("0'; rm -rf ~ #", "a newer release")):
        header = {"format": "nemesis-recording", "format_version": 99, "readable_since": since}
        path.write_bytes(msgspec.json.encode(header) + b"\n")
        ran = nemesis("replay", str(path))
        assert ran.returncode == 3
        assert hint in ran.stderr
        assert "rm -rf" not in ran.stderr


def run(arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a shell, as a person types it."""
    line = f"{sys.executable} -m nemesis.cli {arguments}"
    environment = os.environ | variables
    return subprocess.run(  # noqa: S602  # redirections are what is tested
        line, shell=True, capture_output=True, text=True, env=environment, check=False, timeout=120
    )


def test_a_full_disk_behind_the_output_is_one_line() -> None:
    for command in (f"replay {RECORDING}", f"triage --json {__file__}", "schema list"):
        ran = run(f"{command} > /dev/full")
        assert ran.returncode == 1, ran.stderr
        assert len(ran.stderr.splitlines()) == 1
        assert "cannot write: No space left on device" in ran.stderr


def test_closed_standard_streams_and_readers_that_leave_are_borne() -> None:
    closed = run(f"replay {RECORDING} <&- >&- 2>&-")
    assert (closed.returncode, closed.stderr) == (0, "")
    closed = run(f"triage --json {ROOT / 'constraints.txt'} >&-")
    assert (closed.returncode, closed.stderr) == (3, "")
    left = run("schema list | head -1")
    assert left.stderr == ""


def test_a_terminal_that_cannot_spell_a_name_gets_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "漢").write_text("x")
    ran = run(f"triage {tmp_path}", PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert (ran.returncode, ran.stderr) == (3, "")
    assert r"\u6f22: no format" in ran.stdout


def test_a_recording_that_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = nemesis("replay", str(tmp_path / "pipe"))
    assert ran.returncode == 2
    assert "not a plain file" in ran.stderr


def test_a_password_in_a_url_is_not_repeated() -> None:
    ran = nemesis("status", "--server", "nats://ann:s3cret@127.0.0.1:1")
    assert ran.returncode == 3
    assert "no NATS server at nats://127.0.0.1:1" in ran.stderr
    assert "s3cret" not in ran.stdout + ran.stderr


def test_a_folder_of_seeds_that_is_not_there_is_named(tmp_path: Path) -> None:
    ran = nemesis("status", "--server", "nats://127.0.0.1:1", "--credentials", str(tmp_path / "no"))
    assert ran.returncode == 3
    assert f"no folder of seeds: {tmp_path}/no" in ran.stderr
    (tmp_path / "reader.nk").write_text("garbage")
    ran = nemesis("status", "--server", "nats://127.0.0.1:1", "--credentials", str(tmp_path))
    assert f"{tmp_path}/reader.nk" in ran.stderr
