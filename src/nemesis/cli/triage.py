"""`nemesis triage PATH...`: which part is at fault, from files alone."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from nemesis.processors.processor import Processor
    from nemesis.producers.readers.bundle import Bundle
    from nemesis.producers.readers.bundle_facts import BundleFacts
    from nemesis.schemas.inferred import FaultAttributed
    from nemesis.views.triage_answer import Alternative, Citation, Triage

_TEXT_CHARS_MAX = 2000
_LONG_BYTES = 200_000_000  # some seconds


def triage(
    paths: list[Path] = typer.Argument(
        ..., metavar="PATH...", help="Files or folders of one incident.", show_default=False
    ),
    html: Path | None = typer.Option(None, "--html", help="Write one self-contained page there."),
    force: bool = typer.Option(False, "--force", help="Replace the page."),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Name the part at fault from what people have of a dead job.

    Reads what is in the files, whatever their names: kernel logs in any form, flight-recorder
    dumps, the job's output, nvidia-smi, DCGM, port counters, settings of hosts, step times and
    tests; docs/triage.md has the list. A dash is the standard input: dmesg | nemesis triage -.
    Files that it cannot read are named. Needs no server and changes nothing.

    Exit status: 0 no fault, 1 a finding (a part, a class, or insufficient evidence), 2 wrong usage
    or no such path, 3 nothing could be read.
    """
    import msgspec

    from nemesis.producers.readers.bundle import read_bundle
    from nemesis.views.triage_text import text_of

    with _progress(paths) as on_read:
        bundle = read_bundle(paths, on_read)
    answer = answer_to(bundle)
    if html is not None:
        from nemesis.views.report.place import place_page
        from nemesis.views.triage_page import page_of

        place_page(page_of(answer), html, force=force)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=1).decode())
    else:
        typer.echo(text_of(answer))
    if not bundle.read_count:
        raise typer.Exit(3)
    raise typer.Exit(0 if answer.verdict == "no-fault" else 1)


@contextmanager
def _progress(paths: list[Path]) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, where there is so much to read that somebody would wait for it."""
    files = [each for path in paths for each in (path.rglob("*") if path.is_dir() else [path])]
    size_bytes = sum(each.stat().st_size for each in files if each.is_file())
    if size_bytes < _LONG_BYTES or not sys.stderr.isatty():
        yield lambda read_bytes: None
        return
    with typer.progressbar(length=size_bytes, label="reading", file=sys.stderr) as bar:
        yield bar.update


def triage_paths(paths: list[Path]) -> "Triage":
    """The answer to these files and folders.

    Raises:
        NoSuchPathError: one of them does not exist.
    """
    from nemesis.producers.readers.bundle import read_bundle

    return answer_to(read_bundle(paths))


def answer_to(bundle: "Bundle") -> "Triage":
    """The answer to a bundle that was read."""
    import msgspec

    from nemesis.producers.readers.bundle_facts import BundleFacts
    from nemesis.producers.readers.memory_log import MemoryLog
    from nemesis.producers.readers.own_answer import OWN_ANSWER
    from nemesis.views.triage_answer import (
        Triage,
        UnreadFile,
        answer_of,
        newest_verdicts,
        nothing_found,
        once_each,
    )

    facts = BundleFacts(bundle)
    log = MemoryLog(_processors())
    log.run(facts)
    answers = once_each(
        [
            answer_of(
                each, _citations(each, facts, bundle), _alternatives(each, facts), log.conclusions
            )
            for each in newest_verdicts(log.conclusions)
        ]
    )
    if not answers:
        absent_count = sum(len(run.absent) for run in facts.runs)
        unread_count = sum(each.why != OWN_ANSWER for each in bundle.unread)
        health = _health(facts, bundle)
        answers = [nothing_found(bundle.read_count, unread_count, absent_count, health)]
    first, *others = answers
    return Triage(
        **msgspec.structs.asdict(first),
        others=others,
        unread=[UnreadFile(each.file, each.why) for each in bundle.unread],
        notes=facts.notes,
    )


def _processors() -> list["Processor"]:
    """The newest version of each."""
    from nemesis.processors.catalogue import CATALOGUE

    return [versions[max(versions)]() for _, versions in sorted(CATALOGUE.items())]


def _citations(
    verdict: "FaultAttributed", facts: "BundleFacts", bundle: "Bundle"
) -> list["Citation"]:
    return _quotations(
        [(each.fact, each.says, each.text) for each in verdict.evidence], facts, bundle
    )


def _health(facts: "BundleFacts", bundle: "Bundle") -> list["Citation"]:
    """What shows that something works, as it lies in the files."""
    from nemesis.processors.attribution.health import signs_of_health
    from nemesis.schemas.facts import observation_id
    from nemesis.schemas.registry import BY_STRUCT

    signs = signs_of_health(facts)
    ids = [
        observation_id(BY_STRUCT[type(each.observation)].token, each.observation) for each in signs
    ]
    told = [(fact, each.says, "") for fact, each in zip(ids, signs, strict=True)]
    return _quotations(told, facts, bundle)


def _quotations(
    told: Sequence[tuple[str, str, str]], facts: "BundleFacts", bundle: "Bundle"
) -> list["Citation"]:
    """(id of a fact, what it says, its text), each where it was read; the line is read again, so
    that it is quoted raw."""
    from nemesis.producers.readers.text_lines import lines_at
    from nemesis.views.triage_answer import Citation

    found = [(each, origin) for each in told if (origin := facts.origin(each[0]))]
    numbers: dict[str, set[int]] = {}
    for _, origin in found:
        if origin.line is not None:
            numbers.setdefault(origin.file, set()).add(origin.line)
    lines = {file: lines_at(bundle.paths[file], each) for file, each in numbers.items()}
    return [
        Citation(
            file=origin.file,
            line=origin.line,
            text=(lines.get(origin.file, {}).get(origin.line or 0, "") or text)[:_TEXT_CHARS_MAX],
            says=says,
        )
        for (_, says, text), origin in found
    ]


def _alternatives(verdict: "FaultAttributed", facts: "BundleFacts") -> list["Alternative"]:
    """What was ruled out, with the place of the fact that did."""
    from nemesis.views.triage_answer import Alternative

    found = [(each, facts.origin(each.fact)) for each in verdict.ruled_out]
    return [
        Alternative(each.says, each.because, origin.file, origin.line)
        if origin
        else Alternative(each.says, each.because)
        for each, origin in found
    ]
