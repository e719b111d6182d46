"""A report as people read it: what matters first, a table by class, what was taken for what."""

from collections.abc import Iterator
from typing import Final

from nemesis.sim.truth.report import ATTRIBUTABLE_PPM, GPU_DAY_MS, ClassReport, Report, Share, Times

OUTCOMES: Final = ("right", "among three", "beside", "abstained", "silent", "wrong blame")


def lines(report: Report, *, void: str = "") -> Iterator[str]:
    """The report, a line each; `void`: why it counts no more."""
    if void:
        yield f"VOID: {void}"
    yield (
        f"{report.suite or 'runs'}: {report.runs_count} runs, {report.faults_count} faults and "
        f"{report.decoys_count} decoys, all simulated; NEMESIS {report.nemesis_version}, "
        f"parameters {report.params_sha256[:12] or 'unknown'}"
    )
    if report.contradictions_count:
        yield f"LEDGERS CONTRADICT THEMSELVES in {report.contradictions_count} places: no score"
    yield ""
    yield from _rates(report)
    yield ""
    yield from _by_class(report)
    yield ""
    yield from _confusion(report)
    yield ""
    yield from _calibration(report)


def _rates(report: Report) -> Iterator[str]:
    low, high = (each // 10_000 for each in ATTRIBUTABLE_PPM)
    marked = "" if report.attributable_in_bounds else f"   OUTSIDE {low} to {high} %"
    yield f"attributable        {_share(report.attributable)}{marked}"
    yield f"ceiling (oracle)    {_share(report.ceiling_top1)}"
    yield f"detected            {_share(report.detected)}"
    yield f"named first, right  {_share(report.top1)}"
    yield f"  of attributable   {_share(report.top1_of_attributable)}"
    yield f"  of the others     {_share(report.named_though_not_attributable)}"
    yield f"among first three   {_share(report.top3)}"
    yield f"class right         {_share(report.class_right)}"
    yield f"wrong blame         {_share(report.wrong_blame)}"
    yield f"abstained or silent {_share(report.abstained)}"
    yield f"action right        {_share(report.action_right)}"
    yield f"predicted           {report.predicted_count} before they failed"
    alarms = report.alarms
    rate, most = alarms.per_1000_gpu_days_milli, alarms.at_most_per_1000_gpu_days_milli
    yield (
        f"false alarms        {alarms.count} in {alarms.gpu_ms / GPU_DAY_MS:.2f} GPU-days"
        f"{'' if rate is None else f': {rate / 1e3:.1f} per 1,000 GPU-days'}"
        f"{'' if most is None else f', at most {most / 1e3:.1f} (95 %)'}"
    )
    yield f"time to detect      {spelled(report.to_detect)}"
    yield f"time to attribute   {spelled(report.to_attribute)}"
    yield f"  of hard faults    {spelled(report.to_attribute_hard)}"
    yield f"time to recover     {spelled(report.to_recover)}"
    shown = [f"{name} {report.outcomes[name]}" for name in OUTCOMES if name in report.outcomes]
    yield f"outcomes            {', '.join(shown) or '-'}"


def _by_class(report: Report) -> Iterator[str]:
    yield (
        f"{'class':<19} {'faults':>6} {'attrib.':>8} {'top-1':>8} {'of attr.':>8} {'top-3':>8} "
        f"{'class':>8} {'abstain':>8} {'blame':>8} {'action':>8} {'median s':>9}"
    )
    for each in report.classes:
        yield _class(each)


def _class(each: ClassReport) -> str:
    shares = (
        each.attributable,
        each.top1,
        each.top1_of_attributable,
        each.top3,
        each.class_right,
        each.abstained,
        each.wrong_blame,
        each.action_right,
    )
    cells = " ".join(f"{percent(share):>8}" for share in shares)
    median_ms = each.to_attribute.median_ms
    took = "-" if median_ms is None else f"{median_ms / 1e3:.1f}"
    return f"{each.true_class:<19} {each.faults_count:>6} {cells} {took:>9}"


def _confusion(report: Report) -> Iterator[str]:
    yield "true class          said class          count"
    for each in report.confusion:
        marked = "" if each.accepted else "   *"
        yield f"{each.true_class:<19} {each.said_class:<19} {each.count:>5}{marked}"


def _calibration(report: Report) -> Iterator[str]:
    found = report.calibration
    yield f"calibration: ECE {found.ece_ppm / 1e4:.1f} % over {found.count} verdicts that name"
    for each in found.bins:
        yield (
            f"  from {each.from_ppm // 10_000:>3} %: {each.right_count} of {each.count} right, "
            f"said {each.confidence_ppm_mean / 1e4:.0f} %"
        )


def percent(share: Share) -> str:
    """`75.6 %`, or a dash of nothing."""
    return "-" if share.ppm is None else f"{share.ppm / 1e4:.1f} %"


def _share(share: Share) -> str:
    return f"{percent(share):>8}   ({share.count} of {share.of})"


def spelled(times: Times) -> str:
    """Percentiles and how often it happened at all."""
    shown = (
        ("median", times.median_ms),
        ("p90", times.p90_ms),
        ("p99", times.p99_ms),
        ("max", times.max_ms),
    )
    if not times.count:
        return f"never, of {times.of}"
    named = ", ".join(f"{name} {ms / 1e3:.1f} s" for name, ms in shown if ms is not None)
    return f"{named}   ({times.count} of {times.of})"
