"""Where the time of each job went, in words: its newest account and what incidents cost it."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from nemesis.schemas.inferred import GoodputAccounted, IncidentCosted, TimeParts

SECOND_NS: Final = 1_000_000_000
MEANINGS: Final = {
    "start": "until the first step",
    "productive": "steps, done once",
    "degraded": "what missing ranks or a slowed part did not do",
    "redone": "steps done again after a rollback",
    "detection": "until it was known",
    "decision": "until it was decided what to do",
    "recovery": "until the first step after it",
    "waiting": "for a person",
    "stalled": "no step, and nobody knows why",
    "open": "since the last step",
}


def account_lines(account: GoodputAccounted, costs: Iterable[IncidentCosted]) -> Iterator[str]:
    """One job for a terminal."""
    wall_ns = account.until_ns - account.since_ns
    state = "ended" if account.ended else f"{account.world} of {account.world_full} ranks"
    yield f"{account.job}: {_share(account.parts.productive_ns, wall_ns)} productive, {state}"
    for part, ns in parts_of(account.parts).items():
        if ns:
            seconds = ns / SECOND_NS
            yield f"  {part:<10} {seconds:>12.1f} s {_share(ns, wall_ns):>8}  {MEANINGS[part]}"
    for cost in costs:
        so_far = "" if cost.final else " so far"
        gpu_h = cost.lost_gpu_ms / 3_600_000
        lost_s = cost.lost_ns / SECOND_NS
        yield f"  {cost.incident} cost {lost_s:.1f} s, {gpu_h:.2f} GPU hours{so_far}"


def account_document(account: GoodputAccounted, costs: Iterable[IncidentCosted]) -> dict[str, Any]:
    """The same as plain values."""
    return {
        **msgspec.to_builtins(account),
        "wall_ns": account.until_ns - account.since_ns,
        "parts": {f"{part}_ns": ns for part, ns in parts_of(account.parts).items()},
        "incidents": [msgspec.to_builtins(cost) for cost in costs],
    }


def parts_of(parts: TimeParts) -> dict[str, int]:
    """Part to nanoseconds, in the order of their meaning; the sum is wall time."""
    return {part: getattr(parts, f"{part}_ns") for part in MEANINGS}


def _share(ns: int, of_ns: int) -> str:
    return f"{100 * ns / of_ns:.1f} %" if of_ns else "-"
