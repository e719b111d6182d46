"""`nemesis mfu`: how long a training step takes, where the time goes, what a worse link costs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from nemesis.cli.output import JsonOption, print_json, say
from nemesis.cli.topology_check import model_of, pool_of, settings_of
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from nemesis.processors.mfu.gpus import Gpu
    from nemesis.processors.mfu.step import Job, Prediction
    from nemesis.processors.parallelism.case import Case
    from nemesis.processors.topology.pool import Pool

BAR_WIDTH = 40


class BadPlaceError(NemesisError):
    """An option about where groups lie, or on what, that cannot be."""

    exit_code = 2


def mfu(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="'TP8+PP16v8;gbs=2048'")],
    model: Annotated[str, typer.Option(help="A model file, or the name of a model.")],
    cluster: Annotated[
        Path | None, typer.Option(help="A cluster file, or the name of a shape.")
    ] = None,
    gpu: Annotated[str, typer.Option(help="Without a cluster: H100, GB200, ...")] = "",
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of the job.")] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="seq=131072, recompute=full, ..."),
    ] = None,
    precision: Annotated[Literal["bf16", "fp16", "fp8"], typer.Option()] = "bf16",
    torn: Annotated[
        list[str] | None,
        typer.Option(metavar="DIM=DOMAINS", help="tp=2: its groups lie in 2 NVLink domains."),
    ] = None,
    taper: Annotated[
        float, typer.Option(min=1, max=1000, help="Oversubscription between domains, 3 for 1:3.")
    ] = 1.0,
    compare: Annotated[
        bool, typer.Option("--compare", help="Beside it, the job at its best place.")
    ] = False,
    *,
    json: JsonOption = False,
) -> None:
    """Predict the step time of a job and its share of the GPUs' peak; nothing is placed or run.

    Exit status: 0 predicted; 1 the job could never run; 2 not in the language, or too little said.
    """
    from nemesis.processors.mfu.gpus import class_of
    from nemesis.processors.mfu.planned import job_of
    from nemesis.processors.mfu.step import predict
    from nemesis.processors.parallelism.case import Case
    from nemesis.processors.parallelism.parsing import parse

    pool = pool_of(cluster, []) if cluster else None
    own, rail_gbps = _gpu(pool, gpu)
    case = Case(
        spec=parse(spec),
        gpu_count=gpus,
        model=model_of(model),
        pool=pool,
        gpu_class=class_of(own),
        settings=settings_of(setting or []),
    )
    _check(case)
    best = job_of(case, own, rail_gbps, precision)
    job = _placed(best, torn or [], taper)
    found = predict(job)
    beside = predict(best) if compare else None
    if json:
        print_json(_document(found, beside))
        return
    _print(case, job, found, beside)


def _gpu(pool: "Pool | None", name: str) -> "tuple[Gpu, float]":
    from nemesis.processors.mfu.gpus import GPUS
    from nemesis.processors.mfu.planned import gpu_of

    if pool is not None and not name:
        return gpu_of(pool)
    if name not in GPUS:
        what = f"no GPU {name[:40]!r} is known" if name else "neither --cluster nor --gpu is said"
        raise BadPlaceError(f"{what}; expected --gpu {', '.join(GPUS)}")
    return GPUS[name], float(GPUS[name].rail_gbps)


def _check(case: "Case") -> None:
    """Stop at a description that could never run.

    Raises:
        BadPlaceError: it could not; with the checker's first error.
    """
    from nemesis.processors.parallelism.check import check

    for finding in check(case).findings:
        if finding.severity == "error" and not finding.waits:
            nearest = f"; {finding.legal}" if finding.legal else ""
            error = BadPlaceError(f"error {finding.code}: {finding.text}{nearest}")
            error.exit_code = 1
            raise error


def _placed(job: "Job", torn: list[str], taper: float) -> "Job":
    """The job with its groups where the options say.

    Raises:
        BadPlaceError: no such dim, or no number.
    """
    from nemesis.processors.mfu.fabric import MILLION
    from nemesis.processors.mfu.marginal import tapered
    from nemesis.processors.mfu.marginal import torn as over
    from nemesis.processors.mfu.planned import Dim

    for each in torn:
        dim, _, count = each.partition("=")
        if dim not in get_args(Dim) or not re.fullmatch(r"[0-9]{1,20}", count):
            names = ", ".join(get_args(Dim))
            raise BadPlaceError(f"--torn {each[:40]!r}: expected DIM=DOMAINS, DIM one of {names}")
        ranks = getattr(job.spans, dim).members
        least = -(-ranks // job.gpu.domain)
        if not least <= int(count) <= ranks:
            raise BadPlaceError(
                f"--torn {each[:40]}: expected {least} to {ranks} domains, it has {ranks} ranks"
            )
        job = over(job, dim, int(count))  # type: ignore[arg-type]
    return tapered(job, round(MILLION * taper))


def _document(found: "Prediction", beside: "Prediction | None") -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(found)
    if beside is not None:
        document["best"] = msgspec.to_builtins(beside)
        document["lost_ns"] = found.step_ns - beside.step_ns
    return document


def _print(case: "Case", job: "Job", found: "Prediction", beside: "Prediction | None") -> None:
    from nemesis.processors.parallelism.spec import printed

    name = case.model.name if case.model else ""
    say(f"{name}  {printed(case.spec)}  on {found.gpus} {job.gpu.name}")
    say(
        f"  step {_ms(found.step_ns)} ms, MFU {found.mfu_ppm / 1e4:.1f} %, "
        f"{found.tokens_per_gpu_ps:,} tokens/s a GPU; {_memory(case)}"
    )
    say(
        f"  nine in ten published runs like it, of sources no constant had seen, were within "
        f"{found.doubt_ppm / 1e4:.0f} % of what was predicted"
    )
    say(f"  {'part':<12} {'ms':>10} {'%':>6}" + (f" {'at best, ms':>12}" if beside else ""))
    largest = max(found.parts_ns.values())
    for part, ns in found.parts_ns.items():
        if not ns and not (beside and beside.parts_ns[part]):
            continue
        bar = "█" * round(BAR_WIDTH * ns / largest)
        other = f" {_ms(beside.parts_ns[part]):>12}" if beside else ""
        say(f"  {part:<12} {_ms(ns):>10} {100 * ns / found.step_ns:>6.1f}{other}  {bar}")
    if beside:
        times = found.step_ns / beside.step_ns
        best = f"{_ms(beside.step_ns)} ms, MFU {beside.mfu_ppm / 1e4:.1f} %"
        lost = 100 * (1 - 1 / times)
        say(f"  at best {best}: here {times:.2f} times as long, {lost:.1f} % of throughput lost")
    for part, transfer in found.transfers.items():
        span = transfer.span
        where = "one NVLink domain" if span.domains == 1 else f"{span.domains} NVLink domains"
        source = f"{transfer.how} from {transfer.curve}" if transfer.curve else transfer.how
        say(
            f"  {part}: {transfer.kind} of {transfer.size_bytes / 1e6:,.1f} MB, {span.members} "
            f"ranks in {where}: {transfer.ns / 1e6:,.3f} ms, {source}"
        )


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.1f}"


def _memory(case: "Case") -> str:
    from nemesis.processors.parallelism.memory import memory_of
    from nemesis.processors.parallelism.memory_rules import memory_mib

    memory = memory_of(case)
    least = (memory.state_bytes + memory.activation_bytes) / 2**30
    return f"at least {least:.0f} of {memory_mib(case) / 1024:.0f} GiB"
