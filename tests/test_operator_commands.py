"""Promises of the operator's commands on a real server: what they write, and what they refuse."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.schemas.registry import EVENTS
from nemesis.streams.server import Server
from tests.commands import Ran
from tests.commands import nemesis as run
from tests.healer_cell import Cell
from tests.test_hands import asked

pytestmark = pytest.mark.server
NODES = ("n0", "n1", "n2", "n3")


class Room:
    """A server whose log is a story of the healer, and a terminal on it."""

    def __init__(self, base: Path, server: Server) -> None:
        self.base = base
        self.server = server
        self.copied_count = 0

    async def tell(self, cell: Cell) -> None:
        """Bring the log up to the story; sequences are the same, so nothing is void."""
        for record in cell.records[self.copied_count :]:
            async with await self.server.connect(_role(record.subject)) as log:
                assert await log.publish(record.subject, record.payload) == record.seq
        self.copied_count = len(cell.records)

    def __call__(self, *arguments: str, by: str = "ann") -> Ran:
        signed = ("--by", by, "--reason", "tried") if arguments[0] not in _READING else ()
        if arguments[:2] in (("breaker", "show"), ("policy", "show"), ("policy", "explain")):
            signed = ()
        state = {"NEMESIS_STATE_DIR": str(self.base), "NEMESIS_CELL": "hands"}
        return run(*arguments, *signed, **state)

    def document(self, *arguments: str, status: int = 0) -> Any:
        ran = self(*arguments, "--json")
        assert ran.returncode == status, ran.stderr
        return msgspec.json.decode(ran.stdout)


_READING = ("decisions", "status")


def _role(subject: str) -> str:
    _, space, token, *_ = subject.split(".")
    if space == "events":
        return EVENTS[token].owners[0].replace(":", "/", 1)
    return "ticker" if token == "clock" else f"node/{token}"


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    """A server in whose log llama/2, a shrink, waits for a person."""
    server = Server("hands", folder=tmp_path / "hands", roles=[f"node/{n}" for n in NODES])
    room = Room(tmp_path, server)

    async def start() -> None:
        await server.start()
        await room.tell(asked())

    asyncio.run(start())
    yield room
    asyncio.run(server.stop())


def check_refusal(ran: Ran, status: int, *words: str) -> None:
    """It failed with one line that says all of this."""
    assert ran.returncode == status, ran.stdout + ran.stderr
    assert ran.stderr.count("\n") == 1, ran.stderr
    for word in words:
        assert word in ran.stderr


def test_an_approval_is_written_once_and_whoever_comes_second_is_told(room: Room) -> None:
    assert room("decisions").returncode == 1
    assert "WAITS FOR APPROVAL llama/2: shrink" in room("decisions").stdout
    assert "WAITS FOR APPROVAL llama/2" in room("status").stdout
    (row,) = room.document("decisions", status=1)["decisions"]
    assert (row["decision"], row["state"], row["world"]) == ("llama/2", "waiting", 7)
    check_refusal(room("approve", "llama/3"), 3, "no decision 'llama/3'", "do you mean llama/2")
    check_refusal(room("approve", "llama/1"), 4, "only recorded")
    assert "goes ahead, 7 ranks go on" in room("approve", "llama/2").stdout
    check_refusal(room("approve", "llama/2", by="bob"), 4, "approved by ann", "tried")
    assert room("decisions").returncode == 0
    assert room.document("veto", "llama/2")["decision"]["state"] == "vetoed"
    check_refusal(room("approve", "llama/2"), 4, "vetoed by ann")
    listed = room("decisions", "--all").stdout
    assert "vetoed" in listed
    assert "recorded" in listed


def test_of_two_who_approve_at_once_one_does_and_the_other_is_told(room: Room) -> None:
    command = [sys.executable, "-m", "nemesis.cli", "approve", "llama/2", "--reason", "tried"]
    variables = {"NEMESIS_STATE_DIR": str(room.base), "NEMESIS_CELL": "hands"}
    both = [
        subprocess.Popen(
            [*command, "--by", by], env=os.environ | variables, stderr=subprocess.PIPE, text=True
        )
        for by in ("ann", "bob")
    ]
    told = {process.communicate()[1]: process.returncode for process in both}
    assert sorted(told.values()) == [0, 4]
    (loser,) = [said for said, code in told.items() if code]
    assert "llama/2 was approved by" in loser


def test_a_pause_keeps_an_approval_waiting_and_is_lifted_by_its_name(room: Room) -> None:
    check_refusal(room("resume"), 3, "nothing is paused")
    check_refusal(room("pause", "lama"), 3, "no job or node 'lama'", "llama")
    assert "job/llama is paused" in room("pause", "llama").stdout
    assert "was paused already, by ann" in room("pause", "job/llama", by="bob").stdout
    assert room.document("pause", "n1")["written"] == ["node/n1"]
    assert "job/llama is paused: nothing happens before" in room("approve", "llama/2").stdout
    check_refusal(room("resume"), 2, "more than one", "node/n1")
    check_refusal(room("resume", "n2"), 3, "n2 is not paused")
    assert "node/n1 is still paused" in room("resume", "llama").stdout
    assert room.document("resume")["paused"] == {}
    assert room.document("pause")["written"] == ["ALL"]
    assert "PAUSED ALL, by ann: tried" in room("status").stdout


def test_a_node_is_protected_by_its_name_and_a_misspelt_one_is_not(room: Room) -> None:
    check_refusal(room("protect", "n9"), 3, "no node 'n9'", "do you mean")
    check_refusal(room("unprotect", "n1"), 3, "n1 is not protected by hand")
    assert "node n1 is protected, by ann" in room("protect", "n1").stdout
    assert room.document("protect", "n1")["protected"]["n1"]["by"] == "ann"
    assert "no longer protected" in room("unprotect", "n1").stdout


def test_a_breaker_that_did_not_trip_cannot_be_reset(room: Room) -> None:
    check_refusal(room("breaker", "reset", "shrink_max"), 2, "no limit 'shrink_max'", "shrinks_max")
    check_refusal(room("breaker", "reset"), 3, "no limit has tripped")
    check_refusal(room("breaker", "reset", "expired"), 3, "expired has not tripped")
    assert room.document("breaker", "show")["tripped"] == []


def test_what_expired_is_loud_and_can_be_decided_again(room: Room) -> None:
    cell = asked()
    cell.tick(902)
    asyncio.run(room.tell(cell))
    check_refusal(room("approve", "llama/2"), 4, "llama/2 expired", "breaker reset expired")
    ran = room("decisions")
    assert ran.returncode == 1
    assert "A PERSON MUST LOOK at llama (expired)" in ran.stdout
    assert "A PERSON MUST LOOK at llama (expired)" in room("status").stdout
    assert room.document("breaker", "reset", "expired")["reset"] == ["expired"]


def test_a_tripped_limit_is_shown_until_it_is_reset(room: Room) -> None:
    cell = asked()
    cell.apply({"mode": "approve", "shrinks_max": 0})
    cell.exit(5, node="n2")
    cell.tick(2)
    asyncio.run(room.tell(cell))
    ran = room("breaker", "show")
    assert ran.returncode == 1
    assert "TRIPPED by llama" in ran.stdout
    assert "shrinks_max has tripped, by llama" in room("policy", "explain").stdout
    assert "shrinks_max is reset" in room("breaker", "reset").stdout
    assert room("breaker", "show").returncode == 0


def test_a_policy_is_shown_explained_compared_and_applied(room: Room, tmp_path: Path) -> None:
    shown = room("policy", "show")
    path = tmp_path / "policy.json"
    path.write_text(shown.stdout)
    assert "applied" in shown.stderr
    assert "means the same" in room("policy", "explain", str(path)).stdout
    assert "nothing changes" in room("policy", "apply", str(path)).stdout
    toml = tmp_path / "policy.toml"
    toml.write_text('mode = "act"\nnodes_out_max = 2\n')
    explained = room("policy", "explain", str(toml)).stdout
    assert "mode: approve -> act" in explained
    check_refusal(room("policy", "apply", str(toml)), 4, "shrink (approve -> act)", "--yes")
    applied = room.document("policy", "apply", str(toml), "--yes")
    assert applied["changes"] == ["mode: approve -> act", "nodes_out_max: 4 -> 2"]
    assert room.document("policy", "show")["applied"]["by"] == "ann"
    assert room.document("policy", "show")["policy"]["nodes_out_max"] == 2


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("p.json", '{"mode":"acts"}', "acts"),
        ("p.json", '{"nodes_max":1}', "nodes_max"),
        ("p.json", '{"world_min":0}', "world_min must be at least 1"),
        ("p.toml", "mode = ", "p.toml"),
        ("p.toml", f"mode = {'[' * 9999}", "nested too deeply"),
        ("p.toml", f"world_min = {'9' * 5000}", "p.toml"),
        ("p.toml", f"world_min = {2**70}", "p.toml"),
        ("p.json", "[" * 99_999, "p.json"),
        ("p.json", " " * (2**20 + 1), "more than 1048576 bytes"),
        ("none.json", None, "No such file"),
    ],
)
def test_a_file_that_is_no_policy_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, content: str | None, says: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    state = {"NEMESIS_STATE_DIR": str(tmp_path)}
    check_refusal(run("policy", "apply", str(path), "--by", "a", "--reason", "b", **state), 2, says)


def test_who_gives_no_reason_and_cannot_be_asked_is_told_to(tmp_path: Path) -> None:
    ran = run("approve", "llama/2", "--by", "ann", NEMESIS_STATE_DIR=str(tmp_path))
    check_refusal(ran, 2, "--reason")


@pytest.mark.parametrize("option", ["--by", "--reason"])
def test_bytes_that_are_no_text_are_no_word_of_a_person(tmp_path: Path, option: str) -> None:
    said = {"--by": "ann", "--reason": "seen"} | {option: "\udcff"}
    words = [word for pair in said.items() for word in pair]
    ran = run("pause", "ALL", *words, NEMESIS_STATE_DIR=str(tmp_path))
    check_refusal(ran, 2, "is not UTF-8")
