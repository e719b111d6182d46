"""`nemesis topology check` and `models`: could a job run at all, before it waits for anything."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nemesis.cli.output import JsonOption, print_json, say
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from nemesis.processors.parallelism.case import Case, Finding, Settings
    from nemesis.processors.parallelism.check import Checked
    from nemesis.processors.parallelism.model import ModelShape
    from nemesis.processors.parallelism.parsing import Parsed
    from nemesis.processors.topology.pool import Pool

EXIT_CODES = {"accepted": 0, "rejected": 1, "waits": 3}


SpecArgument = Annotated[str, typer.Argument(metavar="SPEC", help="TP8_NVL18+PP4_IB2")]
ModelOption = Annotated[str, typer.Option(help="A model file, or the name of a model.")]
GpusOption = Annotated[
    int, typer.Option(min=0, help="GPUs of the job; else what degrees and cluster say.")
]
TakenOption = Annotated[
    list[str] | None, typer.Option(help="Nodes that are not free, as n[001-016]; repeatable.")
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="seq=131072, recompute=full, ..."),
]
NumberOption = Annotated[Literal["rails", "tier"], typer.Option(help="What the 2 of IB2 counts.")]


class BadSettingError(NemesisError):
    """An option that says what cannot be."""

    exit_code = 2


def models(json: JsonOption = False) -> None:
    """List the published models that `--model` takes by name."""
    from nemesis.processors.parallelism.model import published_models

    found = [*published_models().values()]
    if json:
        print_json(found)
        return
    for model in found:
        experts = f"{model.experts} experts, {model.top_k} a token" if model.experts else "dense"
        size = f"{model.total / 1e9:7.1f}B  {model.layers:>3} layers of {model.hidden:>5}"
        say(f"{model.name:<16} {size}  {model.heads:>3} heads  {experts}")


def check(
    spec: SpecArgument,
    model: ModelOption = "",
    cluster: Annotated[
        Path | None, typer.Option(help="A cluster file, or the name of a shape.")
    ] = None,
    gpus: GpusOption = 0,
    taken: TakenOption = None,
    setting: SettingOption = None,
    bare_number: NumberOption = "rails",
    json: JsonOption = False,
) -> None:
    """Check what a job needs against model and cluster; nothing is placed.

    Exit status: 0 accepted as far as the options tell, 1 rejected, 2 not in the language, 3 it
    would have to wait for GPUs that other jobs have.
    """
    parsed, case = case_of(spec, model, cluster, gpus, taken or [], setting or [], bare_number)
    checked = checked_case(case)
    if json:
        print_json(_document(parsed, case, checked))
    else:
        explain(parsed, case, checked)
    raise typer.Exit(EXIT_CODES[checked.outcome])


def case_of(
    spec: str,
    model: str,
    cluster: Path | None,
    gpus: int,
    taken: list[str],
    setting: list[str],
    bare_number: str,
) -> "tuple[Parsed, Case]":
    """The job that these options describe.

    Raises:
        BadSpecError, BadModelError, BadClusterError, BadSettingError: what is wrong with which.
    """
    from msgspec.structs import replace

    from nemesis.processors.parallelism.case import Case
    from nemesis.processors.parallelism.parsing import read
    from nemesis.processors.parallelism.reading import numbers_as_tiers

    parsed = read(spec)
    if bare_number == "tier":
        parsed = replace(parsed, spec=numbers_as_tiers(parsed.spec))
    return parsed, Case(
        spec=parsed.spec,
        gpu_count=gpus,
        model=model_of(model) if model else None,
        pool=pool_of(cluster, taken) if cluster else None,
        settings=settings_of(setting),
    )


def checked_case(case: "Case") -> "Checked":
    """What the type checker says."""
    from nemesis.processors.parallelism.check import check as checked_by

    return checked_by(case)


def model_of(name: str) -> "ModelShape":
    """A published model, or the one that a file describes."""
    from nemesis.processors.parallelism.model import BadModelError, published_models
    from nemesis.processors.parallelism.model import model_of as described
    from nemesis.streams.documents import read_toml

    known = published_models()
    if name in known:
        return known[name]
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        hint = "`nemesis topology models` lists them; a file ends in .toml"
        raise BadModelError(f"no model {name[:60]!r} is known", hint=hint)
    document = read_toml(path)
    return described(document, str(document.pop("name", path.stem)))


def pool_of(cluster: Path, taken: list[str]) -> "Pool":
    from nemesis.schemas.node_ranges import count_nodes, parse_nodes
    from nemesis.sim.topology.cluster_file import load_cluster
    from nemesis.sim.topology.pool import pool_of as seen

    pool = seen(load_cluster(cluster))
    for each in taken:
        if not count_nodes((each,)):
            raise BadSettingError(f"--taken: {each[:60]!r} names no node, expected n[001-016]")
    names = parse_nodes(taken)
    strange = [name for name in names if name not in pool.nodes]
    if strange:
        ends = f"{pool.nodes[0]} to {pool.nodes[-1]}"
        raise BadSettingError(f"--taken: no node {strange[0][:60]!r}, expected names from {ends}")
    return pool.without(names)


def settings_of(said: list[str]) -> "Settings":
    """`NAME=VALUE` pairs; commas make a list.

    Raises:
        BadSettingError: no such name, or a value that it cannot have.
    """
    import msgspec

    from nemesis.processors.parallelism.case import RANGES, Settings

    lists = {"stages", "sharp"}
    names = ", ".join(Settings.__struct_fields__)
    found: dict[str, Any] = {}
    for each in said:
        name, equals, value = each.partition("=")
        if not equals or name not in Settings.__struct_fields__:
            raise BadSettingError(f"--set {each[:60]!r}: expected NAME=VALUE, NAME one of {names}")
        found[name] = value.split(",") if name in lists else value
    try:
        settings = msgspec.convert(found, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadSettingError(f"--set: {error}") from error
    for name in (name for name in found if name in RANGES):
        least, most = RANGES[name]
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            if not least <= number <= most:
                raise BadSettingError(f"--set {name}={number}: expected {least} to {most}")
    return settings


def _document(parsed: "Parsed", case: "Case", checked: "Checked") -> dict[str, Any]:
    from nemesis.processors.parallelism.reading import meaning
    from nemesis.processors.parallelism.spec import printed

    return {
        "outcome": checked.outcome,
        "spec": printed(case.spec),
        "gpus": checked.gpu_count,
        "degrees": _degrees(case, checked),
        "meaning": [meaning(term) for term in case.spec.terms],
        "findings": [
            {
                "code": each.code,
                "severity": each.severity,
                "text": each.text,
                "legal": each.legal,
                "span": parsed.spans.get(each.part),
                "waits": each.waits,
            }
            for each in checked.findings
        ],
        "not_judged": checked.unknown,
    }


def _degrees(case: "Case", checked: "Checked") -> dict[str, int]:
    """Of every dim, where they are consistent."""
    if not checked.gpu_count or any(each.code in ("W1", "W4") for each in checked.findings):
        return {}
    layout = case.layout
    experts = {"ETP": layout.expert_tensor, "EP": layout.expert_parallel}
    return dict(layout.dense) | {name: degree for name, degree in experts.items() if degree > 1}


def explain(parsed: "Parsed", case: "Case", checked: "Checked") -> None:
    """Tell people what the checker says, and how the description was understood."""
    from nemesis.processors.parallelism.reading import meaning
    from nemesis.processors.parallelism.spec import printed

    degrees = " x ".join(f"{dim}{degree}" for dim, degree in _degrees(case, checked).items())
    limit = " as far as judged" if checked.outcome == "accepted" and checked.unknown else ""
    say(
        f"{checked.outcome}{limit}: {printed(case.spec)}"
        + (f" on {checked.gpu_count} GPUs" if degrees else "")
    )
    for finding in checked.findings:
        _show(parsed, finding)
    if degrees:
        say(f"  ranks, innermost first: {degrees}")
    for term in case.spec.terms:
        say(f"  {meaning(term)}")
    if checked.unknown:
        wanted = " and ".join(_missing(case, checked))
        say(f"  not judged: {', '.join(checked.unknown)} ({wanted} would tell)")


def _missing(case: "Case", checked: "Checked") -> list[str]:
    """The options that would let the rest be judged."""
    from nemesis.processors.parallelism.check import CLUSTER_PHASES, MODEL_PHASES

    unknown = set(checked.unknown)
    wanted = [("--model", case.model, MODEL_PHASES), ("--cluster", case.pool, CLUSTER_PHASES)]
    return [
        option for option, said, phases in wanted if said is None and not unknown.isdisjoint(phases)
    ]


def _show(parsed: "Parsed", finding: "Finding") -> None:
    """A finding in a line, the place it speaks of below it."""
    advice = f"; {finding.legal}" if finding.legal else ""
    say(f"  {finding.severity} {finding.code}: {finding.text}{advice}")
    span = parsed.spans.get(finding.part)
    if span and finding.severity == "error":
        say(f"    {parsed.text}")
        say(f"    {' ' * span[0]}{'^' * (span[1] - span[0])}")
