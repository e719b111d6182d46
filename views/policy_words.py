"""A policy in sentences: what would happen for each fault, within which limits; what changes."""

from collections.abc import Iterator
from typing import Final

import msgspec

from nemesis.processors.healer.playbooks import LADDER, playbooks_in_force
from nemesis.schemas.codes import Action
from nemesis.schemas.decided import Mode
from nemesis.schemas.policy import LIMITS, MODES, PREDICTED_WORTH, REGROUPING, Policy, Step

_MODES: Final[dict[Mode, str]] = {
    "shadow": "is only recorded",
    "approve": "waits for a person",
    "act": "is done at once",
}
_CHECKS: Final = {
    "spares_min": "with {} spare nodes or more",
    "world_min": "where {} ranks or more go on",
    "ranks_lost_max": "where {} ranks at most are lost",
    "nodes_out_max": "while {} nodes at most are out of work",
}
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def in_full(policy: Policy) -> dict[str, object]:
    """Every field of a policy and every playbook in force, as `policy apply` takes it."""
    fields = {name: getattr(policy, name) for name in Policy.__struct_fields__}
    playbooks = {
        name: [step.action if step == Step(action=step.action) else step for step in steps]
        for name, steps in playbooks_in_force(policy.playbooks).items()
    }
    built: dict[str, object] = msgspec.to_builtins(fields | {"playbooks": playbooks})
    return built


def explained(policy: Policy) -> list[str]:
    """Sentences, then one line a playbook."""
    lines = [_whole(policy)]
    lines += [f"{action} {_MODES[mode]}." for action, mode in sorted(policy.mode_by_action.items())]
    lines += list(_limits(policy))
    lines += list(_times(policy))
    lines += list(_forecasts(policy))
    lines.append("For each fault, the first step that is safe:")
    books = playbooks_in_force(policy.playbooks)
    width = max(map(len, books))
    lines += [f"  {name:<{width}}  {_steps(policy, name, books[name])}" for name in sorted(books)]
    return lines


def difference(before: Policy, after: Policy) -> list[str]:
    """What changes, one line each; nothing where both mean the same."""
    lines = []
    for name in Policy.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if name not in ("playbooks", "mode_by_action") and old != new:
            lines.append(f"{name}: {_value(name, old)} -> {_value(name, new)}")
    for action in LADDER:
        was_mode, mode = before.mode_by_action.get(action), after.mode_by_action.get(action)
        if was_mode != mode:
            lines.append(f"mode_by_action.{action}: {was_mode or 'mode'} -> {mode or 'mode'}")
    was, will = playbooks_in_force(before.playbooks), playbooks_in_force(after.playbooks)
    for name in dict.fromkeys((*was, *will)):
        if was.get(name) != will.get(name):
            lines.append(f"playbooks.{name}: {_names(was.get(name))} -> {_names(will.get(name))}")
    return lines


def rising(before: Policy, after: Policy) -> list[str]:
    """What may do more than before, of actions that change a job and of moves by cost."""
    modes: list[tuple[str, Mode, Mode]] = [
        (action, before.mode_of(action), after.mode_of(action)) for action in REGROUPING
    ]
    modes.append(("moves by cost", before.forecast_mode, after.forecast_mode))
    return [
        f"{what} ({old} -> {new})"
        for what, old, new in modes
        if MODES.index(new) > MODES.index(old)
    ]


def _whole(policy: Policy) -> str:
    match policy.mode:
        case "shadow" if not policy.acts:
            return "Everything is decided and recorded; nothing is done to any job or node."
        case "shadow":
            return "What is decided is only recorded, but for the actions named below."
        case "approve":
            return (
                "Nothing is done to a job, it is not even held, before a person has approved;"
                f" after {seconds_text(policy.approval_timeout_ns)} a decision expires."
            )
        case "act":
            return "A job that lost a rank is held at once; what is decided is done at once."


def _limits(policy: Policy) -> Iterator[str]:
    window = seconds_text(policy.shrinks_window_ns)
    yield (
        f"At most {policy.nodes_out_max} nodes are taken out in"
        f" {seconds_text(policy.nodes_out_window_ns)}, and"
        f" {policy.nodes_out_share_max_ppm / 10_000:g} % of all nodes at one time (one always may)."
    )
    yield (
        f"A job shrinks at most {policy.shrinks_max} times and recovers at most"
        f" {policy.recoveries_max} times in {window}; none goes on with fewer than"
        f" {policy.world_min} ranks."
    )
    yield f"A limit that was reached holds until `nemesis breaker reset`: {', '.join(LIMITS)}."
    if policy.protected_nodes:
        yield f"Left alone whatever happens: {', '.join(policy.protected_nodes)}."


def _times(policy: Policy) -> Iterator[str]:
    yield (
        f"A verdict is awaited for {seconds_text(policy.silence_wait_ns)}, where ranks of several"
        f" nodes ended for {seconds_text(policy.doubt_wait_ns)}, the report of a hold for"
        f" {seconds_text(policy.hold_timeout_ns)}; a decision that nobody carries out expires after"
        f" {seconds_text(policy.decision_timeout_ns)}."
    )


_JOBS_NODES: Final = (64, 512, 4096)
"""Of jobs that a threshold is told for."""


def _forecasts(policy: Policy) -> Iterator[str]:
    chances = ", ".join(
        f"{policy.worth_ppm(count) / 10_000:.1f} % in a job of {count} nodes"
        for count in _JOBS_NODES
    )
    yield (
        f"A part that may fail within hours is left by cost alone from a chance of {chances}:"
        f" a failure stops a job for {seconds_text(policy.forecast_missed_ns)}, a move for"
        f" {seconds_text(policy.forecast_foreseen_ns)}, and a node that was left is tested for"
        f" {seconds_text(policy.forecast_test_ns)}."
    )
    yield (
        f"At most {policy.forecast_moves_max} moves by cost are made in"
        f" {seconds_text(policy.forecast_window_ns)}; what is more, or may not be done, is advice."
    )


def _steps(policy: Policy, name: str, steps: tuple[Step, ...]) -> str:
    by_cost = name == PREDICTED_WORTH
    return ", else ".join(
        f"{_step(each)} ({_fate(policy, each.action, by_cost=by_cost)})" for each in steps
    )


def _fate(policy: Policy, action: Action, *, by_cost: bool) -> str:
    if action not in REGROUPING:
        return "advice for a person"
    return _MODES[policy.mode_of(action, by_cost=by_cost)]


def _step(step: Step) -> str:
    checks = [
        words.format(value)
        for name, words in _CHECKS.items()
        if (value := getattr(step, name)) not in (None, 0) or (name.endswith("_max") and value == 0)
    ]
    return " ".join([step.action, *([" and ".join(checks)] if checks else [])])


def _names(steps: tuple[Step, ...] | None) -> str:
    return ", ".join(_step(each) for each in steps) if steps else "none of its own"


def _value(name: str, value: object) -> str:
    if name.endswith("_ns") and isinstance(value, int):
        return seconds_text(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def seconds_text(duration_ns: int) -> str:
    """A duration as a person says it: 15 min, 1.5 s."""
    for seconds, unit in _UNITS:
        if duration_ns >= seconds * 1_000_000_000 and duration_ns % (seconds * 1_000_000_000) == 0:
            return f"{duration_ns // (seconds * 1_000_000_000)} {unit}"
    return f"{duration_ns / 1e9:g} s"
