"""`nemesis topology trace`: what the scheduler makes of jobs as they came to a real cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nemesis.cli.output import JsonOption, Progress, print_json, say
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nemesis.sim.arrivals.arrival import Trace
    from nemesis.sim.arrivals.figures import Figures
    from nemesis.sim.topology.cluster import Cluster

BARS = " ▁▂▃▄▅▆▇█"
NAMES_MAX = 5


class BadTraceUseError(NemesisError):
    """Options that do not go together."""

    exit_code = 2


def trace(
    file: Annotated[
        Path | None, typer.Argument(help="A CSV file as HeliosData and AcmeTrace have it.")
    ] = None,
    synthetic: Annotated[
        Literal["seren", "kalos", "helios", "philly"] | None,
        typer.Option(help="Jobs drawn as this cluster's are published."),
    ] = None,
    cluster: Annotated[Path, typer.Option(help="A cluster file, or the name of a shape.")] = Path(
        "superpod-h100"
    ),
    jobs: Annotated[int, typer.Option(min=1, max=1_000_000, help="The first so many.")] = 1000,
    least: Annotated[
        int, typer.Option(min=0, help="Leave out jobs of fewer GPUs; 0: than a node has.")
    ] = 0,
    load: Annotated[
        float, typer.Option(min=0.01, max=10, help="GPUs that drawn jobs ask for, of all.")
    ] = 0.9,
    said_runtime: Annotated[
        float, typer.Option(min=0, max=10, help="Runtime that jobs state, of the true; 0: none.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 1,
    json: JsonOption = False,
) -> None:
    """Run an arrival trace through the scheduler in the trace's own time, and through two others.

    Nodes are given whole; nothing but time of submission, GPUs and runtime is taken from the trace.
    All figures are simulated. Exit status: 0; 2 no such trace, or none that can be run.
    """
    from nemesis.sim.arrivals.figures import figures_of, groups_of
    from nemesis.sim.arrivals.others import FirstFit, KubernetesDefault
    from nemesis.sim.arrivals.planner import Planner, run
    from nemesis.sim.arrivals.scheduled import SchedulerPlanner
    from nemesis.sim.topology.cluster_file import load_cluster

    if (file is None) == (synthetic is None):
        raise BadTraceUseError(
            "a trace is a FILE or --synthetic, one of them",
            hint="nemesis topology trace --synthetic seren",
        )
    place = load_cluster(cluster)
    groups = groups_of(place)
    found = _trace(file, synthetic, groups.gpu_count, jobs, least or groups.size, load, seed)
    planners: dict[str, Planner] = {
        "nemesis": SchedulerPlanner(place, said_runtime=said_runtime),
        "first fit": FirstFit(place),
        "kubernetes": KubernetesDefault(place, seed=seed),
    }
    progress = Progress(len(found.arrivals), "jobs")
    try:
        rows = [
            figures_of(name, run(found.arrivals, planner, progress.at), groups)
            for name, planner in planners.items()
        ]
    finally:
        progress.end()
    if json:
        print_json(_document(found, place, groups.gpu_count, rows))
        return
    for line in _lines(found, place, groups.gpu_count, rows):
        say(line)


def _trace(
    file: Path | None,
    synthetic: str | None,
    gpus: int,
    jobs: int,
    least: int,
    load: float,
    seed: int,
) -> "Trace":
    """Raises: BadTraceError."""
    from nemesis.sim.arrivals.arrival import first
    from nemesis.sim.arrivals.published import drawn
    from nemesis.sim.arrivals.reading import read_trace

    if file is None:
        assert synthetic is not None
        return drawn(synthetic, jobs=jobs, gpus=gpus, least=least, load=load, seed=seed)
    return first(read_trace(file), jobs, least=least, most=gpus)


def _document(
    trace: "Trace", cluster: "Cluster", gpus: int, rows: "Sequence[Figures]"
) -> dict[str, Any]:
    return {
        "simulated": True,
        "trace": trace.source,
        "cluster": cluster.cluster.name,
        "gpus": gpus,
        "jobs": len(trace.arrivals),
        "left_out": {
            "no_gpus": trace.no_gpu_count,
            "never_ran": trace.never_ran_count,
            "later": trace.later_count,
            "small": trace.small_count,
            "small_share_of_gpu_time": trace.small_share,
        },
        "schedulers": rows,
    }


def _lines(trace: "Trace", cluster: "Cluster", gpus: int, rows: "Sequence[Figures]") -> list[str]:
    lines = [
        f"{len(trace.arrivals)} jobs {trace.source}, on {cluster.cluster.name}, {gpus} GPUs",
        "all figures are simulated: a job runs as long as in the trace, wherever it lies",
    ]
    out = {
        f"{trace.small_count} smaller ones with {trace.small_share:.0%} of the GPU time": (
            trace.small_count
        ),
        f"{trace.later_count} that came later": trace.later_count,
        f"{trace.no_gpu_count} without GPUs": trace.no_gpu_count,
        f"{trace.never_ran_count} that never ran": trace.never_ran_count,
    }
    if any(out.values()):
        lines.append("left out: " + ", ".join(words for words, count in out.items() if count))
    lines += [
        f"{what:<36}" + "".join(f"{each:>25}" for each in told) for what, told in _table(rows)
    ]
    lines += [f"GPUs at work, {row.scheduler:<11} |{_bars(row.utilisation_over)}|" for row in rows]
    refused = [f"{each.job} ({each.code}: {each.why})" for each in rows[0].refused]
    more = f" and {len(refused) - NAMES_MAX} more" if len(refused) > NAMES_MAX else ""
    if refused:
        lines.append(f"rejected: {', '.join(refused[:NAMES_MAX])}{more}")
    return lines


def _table(rows: "Sequence[Figures]") -> "Iterator[tuple[str, list[str]]]":
    from nemesis.cli.durations import spoken

    yield "", [row.scheduler for row in rows]
    yield "jobs that ran", [str(row.ran) for row in rows]
    yield "rejected", [str(len(row.refused)) for row in rows]
    yield "began before their turn", [str(row.backfilled) for row in rows]
    yield "GPUs at work while jobs come", [f"{row.utilisation:.1%}" for row in rows]
    yield "all are over after", [spoken(row.span_s) for row in rows]
    for at, each in enumerate(rows[0].waits):
        if each.count:
            same = [row.waits[at] for row in rows]
            told = [f"{spoken(wait.p50_s)} / {spoken(wait.p95_s)}" for wait in same]
            yield f"wait p50 / p95, {each.nodes} ({each.count})", told
    yield "somebody waits", [spoken(row.waiting_s) for row in rows]
    for what, shares in (
        ("  GPUs free meanwhile", [row.free for row in rows]),
        ("  of these, no use to any gang", [row.unusable for row in rows]),
        ("  of these, none close together", [row.unusable_close for row in rows]),
    ):
        if any(row.waiting_s for row in rows):
            pairs = zip(rows, shares, strict=True)
            yield what, [f"{share:.1%}" if row.waiting_s else "-" for row, share in pairs]
    for at, tier in enumerate(rows[0].closeness):
        share = [row.closeness[at] for row in rows]
        told = [f"{each.inside} of {each.possible}" for each in share]
        yield f"gangs inside one {tier.tier}", told


def _bars(shares: "Sequence[float]") -> str:
    """Each share as a bar of eight steps, the least of which is something."""
    top = len(BARS) - 1
    return "".join(BARS[min(top, -int(-share * top // 1))] for share in shares)
