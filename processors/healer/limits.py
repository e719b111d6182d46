"""Blast radius: how much may be taken down before a person must look.

Each limit has a name; a recovery that would exceed one is withheld under that name. From then on
the limit is a breaker that tripped: whatever it concerns is withheld, also when the window that
filled it is over, until a person resets it. So a fault that keeps coming back takes down no more
than the limit allows before somebody has looked.
"""

from nemesis.processors.healer.ladder import Choice
from nemesis.processors.healer.state import HealerState, JobState
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.policy import CELL_LIMITS, JOB_LIMITS, Policy


def exceeded(
    state: HealerState, job: JobState, choice: Choice, now_ns: int, *, by_cost: bool = False
) -> str:
    """The name of the limit that this choice would exceed, or that tripped before, or nothing."""
    policy = state.policy
    since_ns = now_ns - policy.shrinks_window_ns
    moved = _since(state.moved_ns, now_ns - policy.forecast_window_ns)
    if by_cost and moved >= policy.forecast_moves_max:
        return "forecast_moves_max"
    if (
        "recoveries_max" in job.tripped
        or _since(job.recovered_ns, since_ns) >= policy.recoveries_max
    ):
        return "recoveries_max"
    if choice.action == "shrink" and (
        "shrinks_max" in job.tripped or _since(job.shrunk_ns, since_ns) >= policy.shrinks_max
    ):
        return "shrinks_max"
    leaving = [node for node in choice.nodes_out if not state.nodes.get(node, False)]
    if not leaving:
        return ""
    if state.tripped:
        return state.tripped[0]
    recent = _since(state.out_ns, now_ns - policy.nodes_out_window_ns)
    if recent + len(leaving) > policy.nodes_out_max:
        return "nodes_out_max"
    out = sum(state.nodes.values()) + len(leaving)
    if out > max(1, len(state.nodes) * policy.nodes_out_share_max_ppm // 1_000_000):
        return "nodes_out_share_max_ppm"
    return ""


def count(state: HealerState, job: JobState, decided: RecoveryDecided, now_ns: int) -> None:
    """Remember an effective recovery."""
    policy: Policy = state.policy
    if decided.by_cost:
        since_ns = now_ns - policy.forecast_window_ns
        state.moved_ns = (*(at for at in state.moved_ns if at > since_ns), now_ns)
    since_ns = now_ns - policy.shrinks_window_ns
    job.recovered_ns = (*(at for at in job.recovered_ns if at > since_ns), now_ns)
    if decided.action == "shrink":
        job.shrunk_ns = (*(at for at in job.shrunk_ns if at > since_ns), now_ns)
    leaving = [node for node in decided.nodes_out if not state.nodes.get(node, False)]
    since_ns = now_ns - policy.nodes_out_window_ns
    state.out_ns = (*(at for at in state.out_ns if at > since_ns), *(now_ns for _ in leaving))
    for node in leaving:
        state.nodes[node] = True


def trip(state: HealerState, job: JobState, limit: str) -> None:
    """A limit was reached: it holds until it is reset."""
    if limit in CELL_LIMITS and limit not in state.tripped:
        state.tripped = (*state.tripped, limit)
    elif limit in JOB_LIMITS and limit not in job.tripped:
        job.tripped = (*job.tripped, limit)


def reset(state: HealerState, limit: str) -> None:
    """Let a limit count from zero again, or let be decided again what a person vetoed."""
    state.tripped = tuple(each for each in state.tripped if each != limit)
    if limit == "nodes_out_max":
        state.out_ns = ()
    elif limit == "nodes_out_share_max_ppm":
        state.nodes = dict.fromkeys(state.nodes, False)
    for job in state.jobs.values():
        job.tripped = tuple(each for each in job.tripped if each != limit)
        if limit == "vetoed":
            job.vetoed = ()
        elif limit == "recoveries_max":
            job.recovered_ns = ()
        elif limit == "shrinks_max":
            job.shrunk_ns = ()


def _since(moments: tuple[int, ...], since_ns: int) -> int:
    return sum(at > since_ns for at in moments)
