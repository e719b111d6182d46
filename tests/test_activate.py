"""Promises of `nemesis activate`: a version and settings take effect by a fact, tried before."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from nemesis.cli.models import catalogue
from nemesis.processors.processor import NotInReleaseError
from nemesis.schemas.facts import decode_conclusion
from nemesis.streams.server import Server
from tests.commands import nemesis
from tests.ecc_log import FILES, MODEL, settings


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nobody"], "no processor 'nobody'; one of attribution, "),
        (["healer", "--version", "99"], "healer version 99 is not in this release"),
        (["healer", "--settings", "[1]"], "settings of healer: "),
        (["healer", "--settings", "{"], "settings of healer: "),
        (["scheduler", "--settings", '{"shares":' + "[" * 100_000], "settings of scheduler: "),
    ],
)
def test_what_no_processor_could_follow_is_refused_before_it_is_written(
    arguments: list[str], says: str
) -> None:
    ran = nemesis("activate", *arguments, "--reason", "r", "--by", "ann")
    assert ran.returncode == 2
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_model_that_this_release_does_not_have_is_not_activated() -> None:
    settings = f'{{"model":"{"0" * 64}"}}'
    ran = nemesis("activate", "ecc_model", "--settings", settings, "--reason", "r", "--by", "ann")
    assert ran.returncode == 3
    assert f"the active model {'0' * 64} is not in this release" in ran.stderr


def test_a_model_of_ones_own_is_found_by_its_content_in_the_folder_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "any name.msgpack").write_bytes(FILES[MODEL])
    own = catalogue()["ecc_model"][1]()
    with pytest.raises(NotInReleaseError):
        own.configure(settings(MODEL))
    monkeypatch.setenv("NEMESIS_MODELS", str(tmp_path))
    catalogue()["ecc_model"][1]().configure(settings(MODEL))
    with pytest.raises(NotInReleaseError):
        catalogue()["ecc_model"][1]().configure(settings("0" * 64))


@pytest.mark.server
def test_an_activation_is_a_fact_with_name_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(tmp_path))
    command = ["activate", "intake", "--reason", "new rules", "--by", "ann", "--json"]
    ran = asyncio.run(beside(command))
    assert msgspec.json.decode(ran) == {"seq": 1, "processor": "intake", "version": 1, "by": "ann"}


async def beside(command: list[str]) -> bytes:
    """What the command says beside a server, and that the log holds it."""
    async with Server("local") as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "nemesis.cli", *command, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        async with await server.connect("reader") as log:
            record = await log.last("nemesis.events.processor_activated.intake")
            assert record is not None
            _, data = decode_conclusion("processor_activated", record.payload)
            assert (data.by, data.reason, data.version) == ("ann", "new rules", 1)
    return said
