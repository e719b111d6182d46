"""The page's document for a terminal: what is wrong first, then as much of the feed as fits."""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from nemesis.schemas.envelope import rfc3339
from nemesis.views.dashboard.feed import Row

NAMES: Final = {
    "F": "at fault",
    "O": "out of work",
    "P": "likely to fail",
    "R": "rank at fault",
    "S": "silent",
}
_STYLES: Final = {"F": "bold red", "O": "magenta", "P": "yellow", "R": "blue", "S": "dim"}
_LEVELS: Final = {"alarm": "bold red", "warn": "yellow", "info": "blue"}
_KINDS: Final = {"inferred": "yellow", "decided": "cyan", "done": "green", "operated": "magenta"}
INCIDENTS_SHOWN: Final = 8
UNWELL_SHOWN: Final = 6
FEED_LINES_MIN: Final = 3


def screen(document: dict[str, Any], *, height: int) -> RenderableType:
    """Everything in at most `height` lines; the feed takes what is left."""
    parts = [*_head(document), *_alarms(document), *_waiting(document), *_incidents(document)]
    parts += _unwell(document)
    lines_count = sum(_height_of(part) for part in parts)
    left = max(FEED_LINES_MIN, height - lines_count - 2)
    rows = document["feed"][-left:]
    return Group(*parts, Rule("feed", style="dim", align="left"), *map(_row, reversed(rows)))


def _head(document: dict[str, Any]) -> Iterator[Text]:
    log = document["log"]
    gpus = "".join(node[2] for node in document["nodes"])
    well = gpus.count(".") + gpus.count("R")
    open_count = sum(each["open"] for each in document["incidents"])
    at = rfc3339(log["log_time_ms"] * 1_000_000)[:19].replace("T", " ")
    yield _line(
        ("NEMESIS ", "bold"), f"{log['cell']}  ", (f"{document['mode']}  ", "bold cyan"),
        (f"log time {at} UTC, sequence {log['last_seq']:,}", "dim"),
        ("" if document.get("connected", True) else "  log away", "bold red"),
    )  # fmt: skip
    yield _line(
        ("GPUs well ", "dim"), (f"{well:,}", "yellow" if well < len(gpus) else "green"),
        f"/{len(gpus):,}   ", ("incidents open ", "dim"),
        (str(open_count), "bold red" if open_count else "green"), "   ",
        ("waiting for a person ", "dim"), str(len(document["waiting"])), *_jobs(document),
    )  # fmt: skip


def _jobs(document: dict[str, Any]) -> Iterator[str]:
    for job in document["jobs"][:3]:
        yield f"   {job['job']} {job['world']}/{job['world_submitted']} ranks"
        if job["account"]:
            yield f", {job['account']['productive_ppm'] / 10_000:.1f} % productive"


def _alarms(document: dict[str, Any]) -> Iterator[Text]:
    if document["mode"] == "shadow":
        yield _line(("Shadow ", "bold blue"), "decides and records, does not act")
    for alarm in document["alarms"]:
        yield _line((f"{alarm['title']}  ", _LEVELS[alarm["level"]]), alarm["text"])


def _waiting(document: dict[str, Any]) -> Iterator[Text]:
    for each in document["waiting"]:
        left_s = max(0, (each["deadline_ms"] - document["log"]["log_time_ms"]) // 1000)
        what = f"{each['action']} {each['target']}, {left_s} s left: "
        yield _line(("waits  ", "bold yellow"), what, (each["approve"], "bold"))


def _incidents(document: dict[str, Any]) -> Iterator[RenderableType]:
    newest = sorted(document["incidents"], key=lambda each: each["opened_ms"], reverse=True)
    if not newest:
        return
    yield Rule("incidents", style="dim", align="left")
    table = Table.grid(padding=(0, 2))
    for no_wrap in (True, True, True, False):
        table.add_column(no_wrap=no_wrap, overflow="ellipsis")
    for each in newest[:INCIDENTS_SHOWN]:
        style = "bold red" if each["open"] else "green"
        at = rfc3339(each["opened_ms"] * 1_000_000)[11:19]
        outcome = Text(each["outcome"], style)
        table.add_row(at, outcome, Text(each["id"]), Text(each["title"], no_wrap=True))
    yield table


def _unwell(document: dict[str, Any]) -> Iterator[RenderableType]:
    unwell = document["unwell"]
    if not unwell:
        return
    yield Rule("not well", style="dim", align="left")
    for part, letter, incident in unwell[:UNWELL_SHOWN]:
        yield _line((f"{NAMES[letter]:<15}", _STYLES[letter]), f"{part}  ", (incident, "dim"))
    if len(unwell) > UNWELL_SHOWN:
        yield Text(f"and {len(unwell) - UNWELL_SHOWN} more", "dim")


def _row(row: Row) -> Text:
    at = rfc3339(row.stored_ms * 1_000_000)[11:23]
    kind = (f"{row.fact.replace('_', ' '):<22} ", _KINDS.get(row.certainty, "dim"))
    return _line((f"{at} ", "dim"), kind, f"{row.key:<14} {row.text}")


def _line(*parts: str | tuple[str, str]) -> Text:
    line = Text.assemble(*parts)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _height_of(part: RenderableType) -> int:
    return part.row_count if isinstance(part, Table) else 1
