"""States of jobs and nodes as every reader of a scheduler's words puts them down.

One setting a job: `STATE exit C:S on NODES: REASON`. One a condition of a node, as Kubernetes and
node-problem-detector report them: `True: REASON MESSAGE`.
"""

import re
from typing import Final

from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

JOB_STATE: Final = "slurm.job_state"
CONDITION: Final = "condition."
_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


def job_state(job: str, state: str, reason: str, exit_code: str, nodes: str) -> SettingRead:
    """How a job or a step of it stands or ended."""
    reason = "" if reason in ("None", "(null)") else reason
    value = f"{state} exit {exit_code}"
    value += f" on {nodes}" if nodes and nodes != "(null)" else ""
    value += f": {reason}" if reason else ""
    component = f"job/{_NAME.sub('_', job)[:80] or 'job'}"
    return SettingRead(**unplaced(), component=component, name=JOB_STATE, value=value[:500])


def node_condition(node: str, kind: str, status: str, says: str) -> SettingRead:
    """A condition of a node."""
    node = _NAME.sub("_", node)[:63]
    component = f"node/{node}" if node else "node//"
    name = CONDITION + (_NAME.sub("_", kind)[:60].lower() or "unnamed")
    return SettingRead(
        **unplaced(node), component=component, name=name, value=f"{status}: {says}"[:500]
    )
