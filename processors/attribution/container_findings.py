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


def _not_begun(told: Told) -> list[Finding]:
    """Containers that could not begin, for the hook that gives them GPUs failed."""
    failed = told.of("hook_failed")
    if not failed:
        return []
    no_driver = any("driver not loaded" in each.message.what for each in failed)
    return [
        Finding(
            verdict="class-only",
            fault_class="gpu.driver" if no_driver else "host.config",
            reason=f"containers of {shown(sorted({e.node for e in failed}))} were given no GPUs:"
            f" {failed[0].message.what}",
            confidence_ppm=600_000,
            level=CONFIGURED - 1,
            proofs=proofs_of((each, "the runtime's hook failed") for each in failed),
            jobs=(told.job,),
            missing=(_OUTSIDE, "whether its driver is loaded: lsmod | grep nvidia"),
        )
    ]


def judge_containers(told: Told) -> list[Finding]:
    """Devices that a container may not open any more."""
    refused = told.of("devices_withdrawn")
    if not refused:
        return _not_begun(told)
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
