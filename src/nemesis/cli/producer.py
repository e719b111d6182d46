"""`nemesis producer`: what this node's devices, host and kernel show, to the log."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.output import print_json, say
from nemesis.cli.telling import Where, tell

if TYPE_CHECKING:
    from nemesis.producers.node.serve import Settings
    from nemesis.schemas.facts import Record
    from nemesis.schemas.observed import Observation
    from nemesis.schemas.watched import CoverageReported, ProbeSeen

OnceOption = Annotated[
    bool, typer.Option("--once", help="Poll twice, print what is seen, need no log.")
]
RecordOption = Annotated[
    Path | None, typer.Option(help="As --once, and copy what is read into this new folder.")
]
ScrubOption = Annotated[
    bool, typer.Option("--scrub", help="With --record: without names, serials and addresses.")
]
RootOption = Annotated[
    Path, typer.Option(help="Read /proc, /sys and /dev below this folder: a copy of a node.")
]
DcgmOption = Annotated[
    str, typer.Option(help="DCGM exporter's page, for GPUs that NVML cannot read.", metavar="URL")
]
RasOption = Annotated[
    str, typer.Option(help="Where NCCL's RAS of the job listens.", metavar="HOST:PORT")
]
InspectorOption = Annotated[
    Path | None, typer.Option(help="Folder into which NCCL's Inspector of the job writes.")
]


def producer(
    *,
    node: Annotated[
        str, typer.Option(help="Name of this node in the log; its host name if not given.")
    ] = "",
    period: Annotated[float, typer.Option(min=0.2, help="Seconds from poll to poll.")] = 5.0,
    once: OnceOption = False,
    record: RecordOption = None,
    scrub: ScrubOption = False,
    root: RootOption = Path("/"),
    dcgm: DcgmOption = "",
    ras: RasOption = "localhost:28028",
    inspector: InspectorOption = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder for the spool and what is remembered.")
    ] = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: Annotated[bool, typer.Option("--json", help="With --once: one JSON document.")] = False,
) -> None:
    """Publish what this node shows, until Ctrl-C; say once what it cannot see.

    Needs the seed producer-NAME.nk and nothing else; without root it reads what it may. While the
    log is away facts go to a spool on disk, oldest telemetry dropped first. Exit 4: a producer of
    this node runs already.
    """
    import logging
    import os
    import socket

    from nemesis.producers.node.serve import Settings
    from nemesis.schemas.errors import NemesisError
    from nemesis.schemas.tokens import token_of
    from nemesis.streams.server import state_folder

    once = once or record is not None
    if scrub and record is None:
        raise typer.BadParameter("--scrub is of --record")
    if json and not once:
        raise typer.BadParameter(
            "--json is of --once: what is published is read with telemetry cat"
        )
    if dcgm and not dcgm.startswith("http://"):
        raise typer.BadParameter("like http://127.0.0.1:9400/metrics", param_hint="--dcgm")
    if not ras.rpartition(":")[2].isdecimal():
        raise typer.BadParameter("like localhost:28028", param_hint="--ras")
    if not root.is_dir():
        raise typer.BadParameter(f"no such folder: {root}", param_hint="--root")
    name = node or socket.gethostname().partition(".")[0]
    if not name:
        raise NemesisError("this machine has no host name", hint="give one with --node")
    folder = state or state_folder(cell) / "producers" / token_of(name)
    settings = Settings(
        node=name,
        state=folder,
        root=root,
        period_ns=int(period * 1e9),
        dcgm=dcgm,
        ras=ras,
        inspector=inspector,
    )
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    if once:
        _once(settings, as_json=json, record=record, scrub=scrub)
        return
    _serve(settings, (cell, server, context, credentials))


def _serve(settings: "Settings", where: Where) -> None:
    from nemesis.producers.node.serve import Producer

    tell(
        "producer",
        settings.node,
        "watching",
        where,
        lambda target: Producer(settings, target, _tell_unseen),
    )


def _tell_unseen(coverage: "CoverageReported") -> None:
    """What of this node nobody will see, and why."""
    from nemesis.schemas.printable import one_line

    for each in coverage.probes:
        if each.state != "read":
            typer.echo(one_line(f"not seen: {_probe_line(each)}"), err=True)


def _probe_line(probe: "ProbeSeen") -> str:
    says = f": {probe.says}" if probe.says else ""
    return f"{probe.state:<12} {probe.source:<8} {probe.component}{says}"


def _once(settings: "Settings", *, as_json: bool, record: Path | None, scrub: bool) -> None:
    from nemesis.processors.fold import Input
    from nemesis.producers.node.record import RecordingRoot
    from nemesis.producers.node.serve import once
    from nemesis.schemas.observed import SampleTaken
    from nemesis.schemas.watched import CoverageReported
    from nemesis.views.shown import as_document, blocks_of, telemetry_line

    copy = None
    if record is not None:
        copy = RecordingRoot(settings.root, record, node=settings.node, scrub=scrub)
    facts = once(settings, between_s=min(settings.period_ns / 1e9, 1.0), root=copy)
    items = [Input(_record(number, fact)) for number, fact in enumerate(facts, start=1)]
    documents = [as_document(item) for item in items]
    if copy is not None:
        copy.finish(facts, documents)
    if as_json:
        print_json({"node": settings.node, "facts": documents})
        return
    for item, fact in zip(items, facts, strict=True):
        if not isinstance(fact, CoverageReported):
            say(telemetry_line(item))
    samples = [fact for fact in facts if isinstance(fact, SampleTaken)]
    for name, value in blocks_of(samples[-1])["host"][0].items():
        say(f"{name:<26} {'not read' if value is None else value}")
    coverage = [fact for fact in facts if isinstance(fact, CoverageReported)]
    for each in coverage[-1].probes:
        say(_probe_line(each))


def _record(number: int, fact: "Observation") -> "Record":
    from nemesis.schemas.facts import Record, encode_observation, telemetry_subject
    from nemesis.schemas.registry import BY_STRUCT

    subject = telemetry_subject(fact.node, BY_STRUCT[type(fact)].token)
    return Record(number, subject, fact.at_ns, encode_observation(fact))
