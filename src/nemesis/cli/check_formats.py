"""What `nemesis check` found, in the words of different monitoring systems.

Nagios: one line, `|`, then measures as `name=value[unit];warning;critical` (Nagios plug-in
guidelines, and what `nats server check` prints). Prometheus: for the textfile collector.
"""

from typing import Final, Literal

import msgspec

State = Literal["ok", "warning", "critical", "unknown"]
Format = Literal["text", "json", "nagios", "prometheus"]
EXIT: Final[dict[State, int]] = {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}


class Measure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number that was judged, and from where on it is bad."""

    name: str
    value: float
    unit: Literal["s", "%"]
    critical: float
    warning: float | None = None


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at."""

    state: State
    says: str
    measure: Measure | None = None


def worst_of(findings: list[Finding]) -> State:
    """The worst state of all."""
    return max(findings, key=lambda each: EXIT[each.state]).state


def shown(findings: list[Finding], how: Format) -> str:
    """The answer in one of the formats."""
    worst = worst_of(findings)
    if how == "json":
        return msgspec.json.encode({"state": worst, "findings": findings}).decode()
    if how == "prometheus":
        return _exposed(findings, worst)
    told = [each for each in findings if each.state == worst or each.state != "ok"]
    line = f"{worst.upper()} - {'; '.join(each.says for each in told)}"
    if how == "text":
        return line
    measures = [each.measure for each in findings if each.measure is not None]
    data = " ".join(_performance(each) for each in measures)
    return f"NEMESIS {line.replace('|', '/')}{f' | {data}' if data else ''}"


def _performance(measure: Measure) -> str:
    warning = "" if measure.warning is None else f"{measure.warning:g}"
    value = f"{measure.value:.3f}{measure.unit}"
    return f"'{measure.name}'={value};{warning};{measure.critical:g}"


def _exposed(findings: list[Finding], worst: State) -> str:
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    state = Gauge(
        "nemesis_check_state", "0 ok, 1 warning, 2 critical, 3 unknown.", registry=registry
    )
    state.set(EXIT[worst])
    seconds = Gauge(
        "nemesis_check_seconds", "What was measured, in seconds.", ["name"], registry=registry
    )
    ratio = Gauge(
        "nemesis_check_ratio", "What was measured, as a share.", ["name"], registry=registry
    )
    for each in findings:
        if each.measure is not None and each.measure.unit == "s":
            seconds.labels(each.measure.name).set(each.measure.value)
        elif each.measure is not None:
            ratio.labels(each.measure.name).set(each.measure.value / 100)
    return generate_latest(registry).decode().rstrip("\n")
