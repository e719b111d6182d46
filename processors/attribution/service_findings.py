"""A service that a job cannot run without and that failed, as systemd tells it.

Why: a host whose driver, fabric, adapters, scheduler or file systems were not started looks like a
broken part from inside a job. How: systemd says of a unit that it failed. One failed unit of those
that GPU jobs stand on is named, of several the kind is told; whatever names a part or a program
outweighs it, because services fail with what they stand on. The fabric manager has its own rule
(host_setting_findings.py), since GPUs tell of it, too.
"""

import re
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import UNEXPLAINED, Finding
from nemesis.processors.attribution.host_setting_findings import FABRIC_MANAGER
from nemesis.processors.attribution.report_rules import proofs, shown
from nemesis.processors.attribution.reports import Told

_NEEDED: Final = re.compile(
    r"service/[^/]*/(?:nvidia\S*|nv-\S+|dcgm\S*|openibd|opensm\S*|rdma\S*|nvlsm|slurm\S*|munge"
    r"|kubelet|k3s\S*|containerd|docker|crio|lnet|lustre\S*|beegfs\S*|gpfs|mmfs\S*|weka\S*|nfs\S*"
    r"|autofs|sssd|systemd-resolved|NetworkManager|systemd-networkd)\Z"
)


def judge_services(told: Told) -> list[Finding]:
    """Services that failed."""
    failed = [
        each
        for each in told.settings
        if each.name == "active"
        and each.value.startswith("failed")
        and _NEEDED.match(each.component)
        and not each.component.endswith(f"/{FABRIC_MANAGER}")
    ]
    if not failed:
        return []
    names = sorted({each.component for each in failed})
    alone = len(names) == 1
    return [
        Finding(
            verdict="attributed" if alone else "class-only",
            fault_class="host.service",
            reason=f"{shown(names)} failed: {failed[0].value[:120]}",
            confidence_ppm=650_000 if alone else 500_000,
            level=UNEXPLAINED + 2,
            culprits=(names[0],) if alone else (),
            proofs=proofs(failed, "systemd says that this service failed"),
            jobs=(told.job,),
            missing=(wanted.SERVICE_LOG,),
        )
    ]
