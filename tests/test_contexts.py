"""Finding the log that a command means."""

import asyncio
import json
from pathlib import Path

import pytest

from nemesis.schemas.errors import NemesisError
from nemesis.streams.contexts import BadContextError, NoCellError, Target, find, selected
from nemesis.streams.errors import WrongCredentialsError
from nemesis.streams.server import Server


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.server
def test_the_running_server_of_the_cell_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(tmp_path))

    async def run() -> None:
        async with Server("test") as server:
            target = find(cell="test")
            assert target.url == server.url
            async with await target.connect("ticker") as log:
                assert await log.publish("nemesis.telemetry.clock.tick", b"x") == 1
            # a server that is named takes the cell's seeds too
            named = find(cell="test", server=server.url)
            async with await named.connect("reader") as log:
                assert (await log.bounds()).last_seq == 1

    with pytest.raises(NoCellError, match="no server of cell 'test' runs here") as raised:
        find(cell="test")
    assert (raised.value.exit_code, raised.value.code) == (3, "no_cell")
    asyncio.run(run())
    with pytest.raises(NoCellError):
        find(cell="test")


@pytest.mark.server
def test_a_nats_context_with_a_seed_signs_in(tmp_path: Path, contexts: Path) -> None:
    async def run() -> None:
        async with Server("test", folder=tmp_path / "cell") as server:
            seed = server.credentials_folder / "reader.nk"
            (contexts / "prod.json").write_text(
                json.dumps({"description": "x", "url": server.url, "nkey": str(seed)})
            )
            async with await find(context="prod").connect("reader") as log:
                assert (await log.bounds()).last_seq == 0

    asyncio.run(run())


def test_a_context_gives_what_the_nats_tool_would_take(contexts: Path) -> None:
    (contexts / "all.json").write_text(
        json.dumps(
            {
                "url": "nats://a:4222,nats://b:4222",
                "creds": "~/x.creds",
                "user": "u",
                "password": "p",
            }
        )
    )
    target = find(context="all")
    login = target.login("reader")
    assert target.url == "nats://a:4222,nats://b:4222"
    assert login.creds_path == Path.home() / "x.creds"
    assert (login.username, login.password, login.seed_path) == ("u", "p", None)
    (contexts / "bare.json").write_text("{}")
    assert find(context="bare").url == "nats://127.0.0.1:4222"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no NATS context 'bad'"),
        ("{", "NATS context 'bad'"),
        ('{"url": 7}', "NATS context 'bad'.*url"),
        ('{"token": "secret"}', "signs in by 'token'"),
    ],
)
def test_a_context_that_cannot_be_used_says_why_and_tells_no_secret(
    contexts: Path, content: str | None, says: str
) -> None:
    if content is not None:
        (contexts / "bad.json").write_text(content)
    with pytest.raises(BadContextError, match=says) as raised:
        find(context="bad")
    assert raised.value.exit_code == 2
    assert raised.value.hint
    assert "secret" not in f"{raised.value.message}{raised.value.hint}"


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden"])
def test_a_context_name_is_no_path(contexts: Path, name: str) -> None:
    with pytest.raises(NemesisError, match="not the name of a context"):
        find(context=name)


def test_a_server_without_seeds_is_tried_without_them() -> None:
    assert find(server="nats://h:1").login("reader").seed_path is None


def test_the_selected_context_is_known(contexts: Path) -> None:
    assert selected() is None
    (contexts.parent / "context.txt").write_text("prod\n")
    assert selected() == "prod"


@pytest.mark.parametrize("kind", ["node", "producer"])
def test_a_node_that_the_cell_does_not_have_is_told_how_to_be_one(
    tmp_path: Path, kind: str
) -> None:
    for name in ("n001", "n002"):
        (tmp_path / f"{kind}-{name}.nk").touch()
    target = Target(url="nats://127.0.0.1:1", credentials_folder=tmp_path)
    target.login(f"{kind}/n001")
    with pytest.raises(WrongCredentialsError) as raised:
        target.login(f"{kind}/vm")
    assert "no node vm" in str(raised.value)
    hint = raised.value.hint
    assert "--node (n001, n002)" in hint
    assert "add vm to `serve --nodes`" in hint


def test_a_switch_that_the_cell_does_not_have_is_told_how_to_be_one(tmp_path: Path) -> None:
    target = Target(url="nats://127.0.0.1:1", credentials_folder=tmp_path)
    with pytest.raises(WrongCredentialsError) as raised:
        target.login("collector/leaf03")
    assert "add leaf03 to the --switches of `serve`" in raised.value.hint


def test_a_folder_without_any_seed_of_a_node_is_another_cells(tmp_path: Path) -> None:
    login = Target(url="nats://127.0.0.1:1", credentials_folder=tmp_path).login("node/vm")
    assert login.seed_path == tmp_path / "node-vm.nk"
