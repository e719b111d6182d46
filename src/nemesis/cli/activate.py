"""`nemesis activate`: from when on which version of a processor answers, with which settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import (
    BadUsageError,
    ByOption,
    ReasonOption,
    open_as_operator,
    read_hands,
    signed,
    write,
)
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.schemas.operated import ProcessorActivated


def activate(
    processor: Annotated[str, typer.Argument(help="Its name, as `nemesis status` lists it.")],
    version: Annotated[int, typer.Option(min=0, help="0: the newest of this release.")] = 0,
    settings: Annotated[str, typer.Option(help="A JSON object; its keys are its own.")] = "{}",
    reason: ReasonOption = "",
    by: ByOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Let a version of a processor answer from here on (changes the cluster).

    The past is not decided again: what came before keeps the version and settings it had.
    """
    act = _act(processor, version, settings, signed(by, reason))
    seq = run_on_loop(_write(act, cell, server, context, credentials))
    if json:
        print_json({"seq": seq, "processor": act.name, "version": act.version, "by": act.by})
    else:
        say(f"{act.name} version {act.version} answers from sequence {seq + 1} on, by {act.by}")


def _act(name: str, version: int, settings: str, who: dict[str, str]) -> "ProcessorActivated":
    """The fact, tried on the processor itself.

    Raises:
        BadUsageError: no such processor or version here, or settings that it refuses.
    """
    import msgspec

    from nemesis.cli.models import catalogue
    from nemesis.schemas.errors import MalformedFactError
    from nemesis.schemas.operated import ProcessorActivated

    known = catalogue()
    if name not in known:
        raise BadUsageError(
            f"no processor {name[:60]!r}", hint=f"one of {', '.join(sorted(known))}"
        )
    versions = known[name]
    version = version or max(versions)
    if version not in versions:
        here = ", ".join(map(str, sorted(versions)))
        raise BadUsageError(
            f"{name} version {version} is not in this release, which has {here}",
            hint="install the release that has it, on every machine that runs it",
        )
    try:
        msgspec.json.decode(settings, type=dict[str, object])
        versions[version]().configure(settings.encode())
    except (
        msgspec.DecodeError,
        MalformedFactError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise BadUsageError(
            f"settings of {name}: {error}", hint="a JSON object, {} for none"
        ) from error
    return ProcessorActivated(
        at_ns=0, **who, name=name, version=version, settings=msgspec.Raw(settings.encode())
    )


async def _write(
    act: "ProcessorActivated", cell: str, server: str, context: str, credentials: Path | None
) -> int:
    async with await open_as_operator(cell, server, context, credentials) as log:
        return await write(log, await read_hands(log), act, act.name, once=False)
