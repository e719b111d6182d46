"""`nemesis record`: copies a slice of the log into one portable file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import (
    CellOption,
    ContextOption,
    CredsOption,
    ServerOption,
    open_log,
    shown_name,
)
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, Progress, print_json, say

if TYPE_CHECKING:
    from nemesis.replay.archive import Piece
    from nemesis.replay.recording import Header


def record(
    out: Annotated[Path, typer.Option("--out", help="The file; compressed if it ends in .zst.")],
    from_seq: Annotated[int, typer.Option("--from", min=0, help="First sequence.")] = 0,
    to_seq: Annotated[int, typer.Option("--to", min=0, help="Last sequence.")] = 0,
    since: Annotated[str, typer.Option(help="First time: 10m, 2h, or 2026-11-30T05:00:00Z.")] = "",
    until: Annotated[str, typer.Option(help="Last time, in the same forms.")] = "",
    incident: Annotated[str, typer.Option(help="All that one incident needs.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Write a slice of the log with all that replay needs. Without a slice: the whole log."""
    if incident and (from_seq or to_seq or since or until):
        raise typer.BadParameter("--incident says the slice, give no other")
    if (from_seq and since) or (to_seq and until):
        raise typer.BadParameter("give each end as a sequence or as a time")
    progress = Progress(0)
    if incident:
        pieces = run_on_loop(
            _pieces(incident, out, cell, server, context, credentials, progress, force=force)
        )
        progress.end()
        _tell_pieces(incident, pieces, json=json)
        return

    async def run() -> "Header":
        from nemesis.replay.capture import capture
        from nemesis.replay.slices import slice_of_times

        async with await open_log(cell, server, context, credentials) as log:
            first, last = await slice_of_times(log, since, until)
            return await capture(
                log,
                out,
                from_seq=from_seq or first,
                to_seq=to_seq or last,
                cell=shown_name(cell, server, context),
                force=force,
                progress=progress.at,
            )

    header = run_on_loop(run())
    progress.end()
    if json:
        print_json({"file": str(out), "header": header})
    else:
        _tell(out, header)


def _tell(out: Path, header: "Header") -> None:
    say(
        f"wrote {out}: {header.lines} lines (facts, states, header),"
        f" sequences {header.from_seq} to {header.to_seq}, {out.stat().st_size} bytes"
    )
    for plan in header.processors:
        start = f"from its state at {plan.start_seq}" if plan.start_seq else "from the beginning"
        say(f"  {plan.name:<14} {start if plan.startable else 'has no state to start from'}")
    if header.gaps:
        missing = sum(last - first + 1 for first, last in header.gaps)
        say(f"  {missing} sequences were no longer in the log: {header.gap_cause}")
    say(f"verify it with: nemesis replay {out}")


async def _pieces(
    incident: str,
    out: Path,
    cell: str,
    server: str,
    context: str,
    credentials: Path | None,
    progress: Progress,
    *,
    force: bool,
) -> list["Piece"]:
    from nemesis.replay.archive import bring, read_cases

    async with await open_log(cell, server, context, credentials) as log:
        case = (await read_cases(log)).found(incident)
        name = shown_name(cell, server, context)
        return await bring(log, case, out, cell=name, force=force, progress=progress.at)


def _tell_pieces(incident: str, pieces: list["Piece"], *, json: bool) -> None:
    from nemesis.replay.reader import Recording

    headers = [(piece, Recording(piece.path).header) for piece in pieces]
    if not json:
        for piece, header in headers:
            if piece.source == "archive":
                say("the log no longer has it, this is what was archived:")
            _tell(piece.path, header)
        return
    if len(headers) == 1:
        ((piece, header),) = headers
        print_json({"file": str(piece.path), "source": piece.source, "header": header})
        return
    print_json(
        {
            "incident": incident,
            "files": [
                {"file": str(piece.path), "source": piece.source, "header": header}
                for piece, header in headers
            ],
        }
    )
