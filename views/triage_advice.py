"""Why the advised recovery is the smallest that is enough, and what not to do instead.

The actions are chosen by the healer's playbooks; these are the words for people. What not to do
follows from what each fault is: a GPU is not drained for a program's mistake, a job is not started
again into a fabric that still pauses.
"""

from collections.abc import Mapping
from typing import Final

from nemesis.schemas.codes import Action, FaultClass
from nemesis.schemas.inferred import FaultAttributed

_WHY: Final[Mapping[Action, str]] = {
    "none": "nothing here needs a hand",
    "watch": "the work goes on, and what was seen does not justify an interruption",
    "collect_more": "these files prove no cause, and any repair would be a guess",
    "fix_program": "the same program stops at the same place again, on whatever hardware",
    "fix_config": "the setting stays wrong over any restart",
    "fix_fabric": "what is shared is at fault, and other nodes would meet it too",
    "raise_timeout": "it was late, not stuck: it would have gone on",
    "reinit_communicator": "the link is back, and only the connections over it are gone",
    "restart_job": "the processes have to begin again, and no part has to be left out",
    "restart_service": "the service alone is at fault",
    "shrink": "it leaves out who holds the others up, where each replica is whole without",
    "swap_node": "the part cannot be trusted before it was tested, and the others can go on",
    "cordon_node": "it works, only slowly: the next boundary is soon enough",
    "reset_gpu": "a reset gives the device back; its neighbours on the node need none",
    "reboot_node": "the driver itself says that only a reboot gives the device back",
    "drain_node": "the next job there would meet the same part",
    "replace_hardware": "the part itself says that no reset cures it",
}
_WHAT_NOT: Final[Mapping[FaultClass, str]] = {
    "gpu.off_bus": "no reset: a GPU that is off the bus does not answer one",
    "gpu.memory": "no restart of the job on this GPU while the damage may spread",
    "gpu.stall": "no drain of the ranks that only wait",
    "gpu.thermal": "no restart: it comes back as hot",
    "nvlink": "no exchange of the GPUs that report it second",
    "network.link": "no drain of the nodes whose ranks time out",
    "network.fabric": "no restart: it meets the same switch",
    "network.pause": "no restart: the pauses go on",
    "network.config": "no exchange of hardware",
    "straggler.host": "no exchange of its GPUs",
    "desync": "no drain, no restart as it is: hardware is innocent",
    "app.stall": "no drain: no hardware is shown to be at fault",
    "app.program": "no drain of the GPUs that report it",
    "app.oom": "no exchange of the GPU: its memory is full, not bad",
    "app.timeout": "no exchange of hardware",
    "storage": "no drain of the nodes that wait for it",
    "dataloader": "no exchange of GPUs: they wait for data",
    "host.oom": "no exchange of GPUs",
    "host.config": "no exchange of hardware",
    "host.service": "no reboot before the service was started again",
    "software.version": "no exchange of hardware",
}


def why(action: Action) -> str:
    """Why this is done and nothing smaller."""
    return _WHY.get(action, "")


def what_not(verdict: FaultAttributed) -> str:
    """What this fault tempts people to do in vain; "" where nothing does."""
    if verdict.verdict in ("no-fault", "insufficient"):
        return ""
    return _WHAT_NOT.get(verdict.fault_class, "")
