"""Containers whose GPUs were taken from them while they ran.

Why: inside, NVML answers "Unknown Error" and the job looks as if its GPU had failed; outside, the
GPUs work. How: where systemd writes the rules for devices of a container's cgroup, it writes them
anew whenever its units are reloaded, without the devices that a runtime's hook had added. That line
beside the error names the setting; the error alone is the kind of fault.

NVIDIA/nvidia-container-toolkit#48 (NOTICE: Containers losing access to GPUs).
"""

from typing import Final

from nemesis.processors.attribution.findings import CONFIGURED, Finding
from nemesis.processors.attribution.report_rules import proofs_of, shown
from nemesis.processors.attribution.reports import Told

_OUTSIDE: Final = "whether they answer outside the container: nvidia-smi -L on the host"
_RELOADS: Final = "when units were reloaded: journalctl -t systemd | grep Reload"


def judge_containers(told: Told) -> list[Finding]:
    """Devices that a container may not open any more."""
    refused = told.of("devices_withdrawn")
    if not refused:
        return []
    reloaded = told.of("units_reloaded")
    hosts = sorted({each.node for each in refused})
    return [
        Finding(
            verdict="attributed" if reloaded else "class-only",
            fault_class="host.config",
            reason=f"a container of {shown(hosts)} may not open its GPUs any more: its runtime"
            " leaves their rules to systemd"
            + (", whose units were reloaded" if reloaded else ", or something else withdrew them"),
            confidence_ppm=800_000 if reloaded else 550_000,
            level=CONFIGURED,
            culprits=tuple(f"config/{host}/container-devices" for host in hosts)
            if reloaded
            else (),
            proofs=proofs_of(
                [(each, "NVML may not open the devices that it finds") for each in refused]
                + [(each, "rules for devices were written anew") for each in reloaded]
            ),
            jobs=(told.job,),
            missing=(_OUTSIDE,) if reloaded else (_OUTSIDE, _RELOADS),
        )
    ]
