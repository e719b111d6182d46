"""Promises of what runs beside a cell: who does not start is named, what fails is not hidden."""

import asyncio
from pathlib import Path

import pytest

from nemesis.streams.contexts import Target
from nemesis.streams.crew import NotReadyError, commands, until_started
from nemesis.streams.server import Server
from nemesis.streams.side_by_side import background
from tests.cells import in_cell


@pytest.mark.server
def test_processors_that_do_not_start_are_named(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        async with await server.connect("reader") as log:
            with pytest.raises(NotReadyError, match="healer, intake did not start"):
                await until_started(log, ["intake", "healer"], from_seq=1, timeout_s=0.2)

    in_cell(tmp_path, body)


def test_a_processor_that_would_keep_others_waiting_has_a_process_of_its_own() -> None:
    place = Target(url="nats://here", credentials_folder=Path("seeds"))
    names = ["ecc_model", "healer", "intake"]
    together = commands(place, names, cell="c", copies=1, job_actor=False, archivist=False)
    assert {child: line[-3:] for child, line in together.items()} == {"processors-1": names}
    alone = commands(
        place, names, cell="c", copies=2, job_actor=False, archivist=False, apart={"ecc_model"}
    )
    assert {child: line[line.index("--quiet") + 1 :] for child, line in alone.items()} == {
        "processors-1": ["healer", "intake"],
        "ecc_model-1": ["ecc_model"],
        "processors-2": ["healer", "intake"],
        "ecc_model-2": ["ecc_model"],
    }


def test_what_fails_beside_the_body_ends_it_as_itself() -> None:
    async def fails() -> None:
        raise PermissionError("the ticker may not write")

    async def body() -> None:
        async with background(fails(), asyncio.sleep(3600)):
            await asyncio.sleep(3600)

    with pytest.raises(PermissionError, match="the ticker may not write"):
        asyncio.run(body())


def test_what_runs_beside_the_body_ends_with_it() -> None:
    ended: list[str] = []

    async def beside() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("beside")

    async def body() -> None:
        async with background(beside()):
            await asyncio.sleep(0)
        ended.append("body")

    asyncio.run(body())
    assert ended == ["beside", "body"]
